#include "client/shard_stream.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/address.h"
#include "client/pending_batch.h"
#include "client/shard_stream_impl.h"
#include "client/wakeup_fd.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::Status Check(const StreamOptions& options) {
  if (options.max_inflight_batches < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_inflight_batches is ", options.max_inflight_batches, "; 1 or more are possible"));
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch's deadline of ", absl::FormatDuration(options.deadline), " is over at once"));
  }
  if (options.max_answer_bytes < 1 || options.max_idle_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_answer_bytes is ", options.max_answer_bytes,
                                                   ", max_idle_bytes ", options.max_idle_bytes,
                                                   "; from 1 and from 0 on are possible"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardResult> PendingShards::Wait() const { return batch_->Wait(); }
bool PendingShards::done() const { return batch_->done(); }
void PendingShards::Cancel() const { batch_->Cancel(); }

absl::StatusOr<std::unique_ptr<ShardStream>> ShardStream::Open(absl::string_view address,
                                                               StreamOptions options) {
  CPSHARD_RETURN_IF_ERROR(Check(options));
  CPSHARD_ASSIGN_OR_RETURN(Address parsed, Address::Parse(address));
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<WakeupFd> wakeup, WakeupFd::Make());
  auto impl = std::make_shared<Impl>(std::move(parsed), options, std::move(wakeup));
  impl->Start();
  return std::unique_ptr<ShardStream>(new ShardStream(std::move(impl)));
}

ShardStream::ShardStream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardStream::~ShardStream() {
  impl_->CloseAll();
  impl_->Close();
}

PendingShards ShardStream::Submit(Batch batch, Options options, std::optional<int64_t> cp_size,
                                  std::vector<int64_t> ranks) {
  return PendingShards(impl_->Submit(std::move(batch), options, cp_size, std::move(ranks)));
}

StreamStats ShardStream::stats() const { return impl_->stats(); }

}  // namespace cpshard
