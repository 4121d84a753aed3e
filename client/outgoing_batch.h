// A batch laid out for a stream: its head, and its bytes as pieces of one batch buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/expected_ranks.h"
#include "core/batch/batch.h"
#include "core/exec/executor_kind.h"
#include "proto/options.h"

namespace cpshard {

// Shares the bytes of the batch's tensors. Sent any number of times, it does not change.
struct OutgoingBatch {
  struct Piece {
    int64_t offset = 0;  // in the batch buffer
    Buffer bytes;
  };

  std::string begin;          // a serialised BatchBegin
  std::vector<Piece> pieces;  // ascending, without overlap, none empty; zeros lie between them
  ExpectedRanks expected;     // of the answer; none of a batch that is pushed
  int64_t total_bytes = 0;    // a multiple of 64, so that the body of every frame is one
};

// Streams that the layout reads come first, so that the server can plan, or refuse, early.
// InvalidArgument, ResourceExhausted: a batch that no server can take (a shape that does not fit
// its bytes, a name used twice, a head over 64 KiB). What a layout refuses is left to the server.
absl::StatusOr<OutgoingBatch> LayOutBatch(Batch batch, const Options& options,
                                          std::optional<int64_t> cp_size,
                                          std::vector<int64_t> ranks,
                                          ExecutorKind executor = ExecutorKind::kAuto);

// The same of a batch that is pushed: what is read, by which ranks, and who shards it, is its
// group's to say.
absl::StatusOr<OutgoingBatch> LayOutPushedBatch(Batch batch);

// Bytes [offset, offset + size) of the batch buffer as windows; none is empty.
// Precondition: the range lies inside total_bytes.
std::vector<Buffer> BodyOf(const OutgoingBatch& batch, int64_t offset, int64_t size);

}  // namespace cpshard
