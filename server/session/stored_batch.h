// A batch that is kept: as it was sent, and cut for all ranks of its group once, so that a rank's
// part of it is handed out without a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/frames.h"
#include "server/executors.h"
#include "server/session/delivery.h"
#include "server/stream/arriving_batch.h"

namespace cpshard {

// Memory and bytes sent. Of what loaders send a batch takes its own bytes, and those of its shards
// that do not lie in them: all, where runs are short. So memory is granted by the factor two, with
// something for plans and small blocks. This is the only place that knows; max_step_bytes of
// readers and credits of loaders are in bytes sent, Delivery counts bytes of memory.
int64_t MemoryOfStep(int64_t sent_bytes);
int64_t MemoryOfBatch(int64_t sent_bytes);  // a batch counts with 4 KiB at least
int64_t SentBytesOfStep(int64_t memory);    // the other way round

// What batches are staged with. Everything outlives them.
struct Staging {
  Limits limits;
  const Executors* executors = nullptr;
  BufferPool* pool = nullptr;
};

// Thread-safe.
class StoredBatch final : public Payload {
 public:
  // Cuts `arrived`, which was planned by `terms`, unless groups of a job have to agree on a length
  // first; then the first part that is asked for does. On a worker. ResourceExhausted: the pool.
  static absl::StatusOr<std::shared_ptr<const StoredBatch>> Make(
      ArrivedBatch arrived, std::shared_ptr<const SessionTerms> terms, const Staging& staging);

  // The shard of a rank, as it would be made for that rank alone; the tensors and scalars of
  // `keys`, if there are any. Every piece of the batch's memory keeps `pin`. Costs slices, unless
  // cp_size, options or min_padded_len are other ones than the last time, or `terms` name another
  // executor than cut it: then the batch is planned and cut anew (on a worker), and what was cut
  // before goes with the last piece of it. That is memory which nobody has counted: as long as
  // those pieces are on their way. InvalidArgument: a key that the shards do not have, or what the
  // plan refuses; ResourceExhausted: the pool.
  absl::StatusOr<Answer> PartOf(const SessionTerms& terms, int64_t rank,
                                std::optional<int64_t> min_padded_len,
                                absl::Span<const std::string> keys,
                                std::shared_ptr<const void> pin) const;

  // What Delivery is told of it.
  LandedBatch Landed(std::shared_ptr<const StoredBatch> self) const;

 private:
  // Cut for all ranks.
  struct Cut {
    std::shared_ptr<const SessionTerms> terms;
    std::optional<int64_t> min_padded_len;
    std::shared_ptr<const ShardPlan> plan;
    BatchReport report;  // of all ranks
    ShardBody body;
    std::vector<int64_t> piece_ends;  // within the body
    int64_t bytes = 0;                // of memory, the batch's own not counted
  };
  using CutPtr = std::shared_ptr<const Cut>;

  StoredBatch(ArrivedBatch arrived, const Staging& staging);

  BatchReport ReportFor(const ShardPlan& plan) const;
  absl::StatusOr<CutPtr> Carry(Cut cut) const;
  absl::StatusOr<std::shared_ptr<const ShardPlan>> PlanBy(
      const SessionTerms& terms, std::optional<int64_t> min_padded_len) const;
  absl::StatusOr<CutPtr> CutFor(const SessionTerms& terms,
                                std::optional<int64_t> min_padded_len) const;

  const ArrivedBatch arrived_;
  const Staging staging_;
  std::optional<int64_t> num_label_tokens_, num_tokens_excl_tail_pad_;
  mutable absl::Mutex mu_;  // held while the batch is cut: other ranks wait for the same cut
  mutable CutPtr cut_ ABSL_GUARDED_BY(mu_);
};

}  // namespace cpshard
