// Large layouts on a stream: their arrays leave the head of the shard for the answer buffer, under
// names that docs/WIRE.md gives. Used inside proto/ only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/exec/shard_body.h"
#include "core/plan/shard_layout.h"
#include "cpshard/v1/service.pb.h"

namespace cpshard {

inline constexpr int64_t kMaxLayoutBytes = int64_t{16} << 10;  // of a layout within a head

// The layout of `rank` has no more bytes on the wire; found from the plan, without making it.
int64_t MaxLayoutBytes(const ShardPlan& plan, int64_t rank);
// ... and no fewer. Exact within a factor of ten.
int64_t MinLayoutBytes(const ShardPlan& plan, int64_t rank);

// Moves the arrays of the layouts over kMaxLayoutBytes to the end of the body; what a rank has in
// common with the one before it is written once. Returns, for every rank, what is left for its head
// - a serialised Shard of the layout without arrays, and the entries that name them -, or nothing
// where the layout can stay in the head. An empty list: all of them can.
// ResourceExhausted: the pool.
absl::StatusOr<std::vector<std::string>> MoveLargeLayouts(const ShardPlan& plan,
                                                          absl::Span<const int64_t> ranks,
                                                          uint64_t digest, ShardBody* body,
                                                          BufferPool& pool);

// The other direction: takes the arrays out of shard->entries and puts their values, read from the
// answer buffer, into shard->layout. InvalidArgument, naming the array: it is not known, was given
// twice, or is no int64 of the right shape inside the answer.
absl::Status RestoreArrays(const Buffer& answer, v1::Shard* shard);

}  // namespace cpshard
