// The plan of a batch whose tensors lie in the caller's memory: what the handle of the C interface
// is. Errors and preconditions are those of cpshard.h, as absl::Status.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/verify/verify.h"
#include "core/batch/batch.h"
#include "core/plan/inspect.h"
#include "core/plan/plan.h"
#include "core/plan/shard_layout.h"
#include "proto/codec.h"
#include "proto/in_process.h"

namespace cpshard::embedded {

// What goes into a message, as the flags of cpshard.h.
struct With {
  bool digest = false;
  bool totals = false;
  Arrays arrays = Arrays::kShapes;
};

// The message of cpshard_needs.
absl::StatusOr<std::string> NeedsOf(absl::string_view request);

// Thread-safe. What is made on demand (digest, totals) is made once.
class EmbeddedPlan {
 public:
  static absl::StatusOr<std::unique_ptr<EmbeddedPlan>> Make(absl::string_view request,
                                                            absl::Span<const void* const> tensors);

  absl::StatusOr<std::string> Reply(absl::Span<const int64_t> ranks, const With& with) const;
  absl::StatusOr<std::string> Shard(int64_t rank, const With& with) const;

  // The record of a rank without the digest; the one asked for last is kept.
  absl::StatusOr<std::shared_ptr<const ShardLayout>> LayoutOf(int64_t rank) const;

  absl::StatusOr<uint64_t> Digest() const;

  // dests[k * streams + s], as cpshard_plan_write.
  absl::Status Write(absl::Span<const int64_t> ranks, absl::Span<void* const> dests) const;

  absl::StatusOr<verify::Findings> Verify(const std::string& ranks_dir,
                                          absl::Span<const int64_t> ranks,
                                          std::vector<std::string> streams) const;

  // Of one tensor of the shards.
  struct Stream {
    const std::string* name = nullptr;
    const std::string* source = nullptr;  // nullptr: none
    bool writable = true;
    bool as_sent = false;
  };
  absl::StatusOr<Stream> StreamAt(size_t index) const;

  const ShardPlan& plan() const { return plan_; }
  const BatchSpec& spec() const { return request_.spec; }

 private:
  EmbeddedPlan(Request request, Sharder sharder)
      : request_(std::move(request)), sharder_(std::move(sharder)) {}

  // OK: every tensor has its bytes. FailedPrecondition, with the names of those that have not.
  absl::Status CheckComplete(absl::string_view what) const;
  absl::Status CheckSource(const StreamPlan& stream) const;
  absl::Status CheckLimits(absl::Span<const int64_t> ranks) const;
  const Inspection& Inspected() const;

  Request request_;  // the batch: windows on the caller's memory, of the tensors at hand
  Sharder sharder_;
  ShardPlan plan_;

  mutable absl::Mutex mutex_;
  mutable std::optional<uint64_t> digest_ ABSL_GUARDED_BY(mutex_);
  mutable std::unique_ptr<Inspection> inspection_ ABSL_GUARDED_BY(mutex_);
  mutable std::unique_ptr<LayoutRecords> records_ ABSL_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const ShardLayout> last_layout_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cpshard::embedded
