// A loader's stream to cpshardd: batches in, futures of their shards out, several in flight.
//
//   auto stream = ShardStream::Open("unix:/run/cpshard/cpshard.sock");
//   PendingShards first = (*stream)->Submit(batch, options, cp_size, ranks);
//   PendingShards second = (*stream)->Submit(...);           // on its way before the first is done
//   absl::StatusOr<ShardResult> shards = first.Wait();
//
// The connection may break and the server may restart in between: what is not answered is sent
// again, for sharding has no memory. The deadline of a batch ends that, or that it was under way
// when the fifth connection broke, or its server lost its device: then it may be why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/batch/batch.h"
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"
#include "proto/options.h"

namespace cpshard {

struct StreamOptions {
  // Of a batch: from Submit to its shards, waiting, reconnecting and sending again included.
  absl::Duration deadline = absl::Seconds(60);

  // Batches sent and not answered; the server's own limits hold besides. 4 is enough from 1 MB
  // batches up, smaller ones gain from 8 and more.
  int64_t max_inflight_batches = 4;

  // Where the server shards. kCuda: a batch fails with FailedPrecondition where it has none.
  ExecutorKind executor = ExecutorKind::kAuto;

  // Has the server check every body's CRC-32C.
  bool checksums = false;

  // Of memory for answers, from 4 KB blocks up: those that arrive, those that callers hold, and
  // idle blocks. An answer that goes over ends its batch with ResourceExhausted.
  int64_t max_answer_bytes = int64_t{8} << 30;

  // Of that, kept for the next answers while nobody holds it.
  int64_t max_idle_bytes = int64_t{1} << 30;
};

struct StreamStats {
  int64_t connects = 0;     // streams opened, the first included
  int64_t resubmitted = 0;  // batches sent again: the connection broke or the server asked for it
  int64_t batches = 0;      // answered with shards
  int64_t buffers_out = 0;  // answers that arrive or that somebody holds, now
};

class PendingBatch;

// The shards of one batch, to come. Copies are handles on the same batch. Thread-safe.
class PendingShards {
 public:
  // Blocks until the batch is done. Tensors of the result are windows on one pooled buffer; streams
  // that were not cut are too. May be asked again: the answer stays until the last handle goes.
  //
  // The server's status with its message, or of this side:
  // DeadlineExceeded: no answer within the deadline; the text says what stood in the way.
  // Cancelled: Cancel, or the stream was closed.
  // InvalidArgument: a shape that does not fit its bytes, and what else no server can take.
  // ResourceExhausted: answers would take more memory of this process than max_answer_bytes.
  // Internal: the server's answer is broken, or is not of the ranks asked for.
  // Unavailable, Internal and others: the connection broke, or the server gave up, five times while
  // the batch was under way, with this status; the server refuses the stream as such; or it wants
  // the batch again later, which would be past the deadline.
  absl::StatusOr<ShardResult> Wait() const;

  bool done() const;

  // Gives the batch up: Wait answers Cancelled, at once, unless the shards are there already. The
  // batch's buffers are let go as soon as the connection lets go of them.
  void Cancel() const;

 private:
  friend class ShardStream;
  explicit PendingShards(std::shared_ptr<PendingBatch> batch) : batch_(std::move(batch)) {}
  std::shared_ptr<PendingBatch> batch_;
};

// Thread-safe. One connection and one gRPC stream at a time.
class ShardStream {
 public:
  // `address`: "host:port", "[v6]:port" or "unix:/path"; see client/address.h. Connects in the
  // background: errors appear in the batches.
  // InvalidArgument: what is no address, a limit below 1, a deadline that is not positive.
  static absl::StatusOr<std::unique_ptr<ShardStream>> Open(absl::string_view address,
                                                           StreamOptions options = {});

  // Cancels what is not answered; pending handles stay valid. At once, whatever the server does -
  // but where a host name is being looked up: that cannot be interrupted, and holds up deadlines
  // too. Not on a thread of gRPC's callbacks: it waits for one of them.
  ~ShardStream();

  ShardStream(const ShardStream&) = delete;
  ShardStream& operator=(const ShardStream&) = delete;

  // Takes the batch (its buffers are shared, not copied, and must not change until it is done) and
  // returns at once: it waits here, not at the server, while max_inflight_batches are under way.
  // Callers that make batches faster than they Wait hold that memory.
  // `ranks` empty = all. Refusals that need no server come through Wait too.
  PendingShards Submit(Batch batch, Options options, std::optional<int64_t> cp_size,
                       std::vector<int64_t> ranks = {});

  StreamStats stats() const;

 private:
  class Impl;
  explicit ShardStream(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // gRPC's callbacks hold it too
};

}  // namespace cpshard
