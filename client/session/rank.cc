#include "client/session/rank.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/session/rank_impl.h"
#include "client/session/train_state.h"
#include "core/plan/status_macros.h"
#include "proto/session_checks.h"

namespace cpshard {
namespace {

absl::Status Differs(absl::string_view what, absl::string_view checkpoint, absl::string_view ours) {
  return absl::FailedPreconditionError(absl::StrCat("the checkpoint was written with ", what, " '",
                                                    checkpoint, "' and is to be resumed with '",
                                                    ours, "'"));
}

absl::Status CheckFits(const std::optional<TrainState>& state, const RankOptions& options) {
  if (!state) return absl::OkStatus();
  if (state->fingerprint != options.fingerprint) {
    return Differs("a data set of fingerprint", state->fingerprint, options.fingerprint);
  }
  const std::string hash = HashOf(options.options);
  if (state->options_hash != hash) return Differs("options of hash", state->options_hash, hash);
  return absl::OkStatus();
}

absl::Status CheckNumbers(const RankOptions& options) {
  if (options.prefetch < 0 || options.max_bytes < 1 || options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefetch is ", options.prefetch, ", max_bytes ", options.max_bytes, ", timeout ",
        absl::FormatDuration(options.timeout), "; from 0 on, from 1 on, and above 0 are possible"));
  }
  if (options.streams.empty()) {
    return absl::InvalidArgumentError("a session without a data stream has nothing to read");
  }
  return absl::OkStatus();
}

// A pass that a checkpoint was taken in goes on, wanted or not.
ReaderStream StreamOf(const RankStream& stream, const std::optional<TrainState>& state) {
  ReaderStream at{.name = stream.name,
                  .closed = stream.closed || stream.finished,
                  .finished = stream.finished,
                  .max_step_bytes = stream.max_step_bytes};
  if (!state) return at;
  const auto found = state->streams.find(stream.name);
  if (found == state->streams.end()) return at;
  at.pass = found->second.pass;
  at.next_step = found->second.next_step;
  at.closed = stream.finished || (stream.closed && at.next_step == 0);
  if (found->second.resume.num_loaders > 0) at.resume = found->second.resume;
  return at;
}

OpenSession OpenOf(const RankOptions& options) {
  OpenSession open{.group = options.group,
                   .generation = options.generation,
                   .attempt = options.attempt,
                   .cp_size = options.cp_size,
                   .readers_per_rank = options.readers_per_rank,
                   .options = options.options.ToBytes(),
                   .fingerprint = options.fingerprint,
                   .job = options.job,
                   .job_groups = options.job_groups,
                   .executor = options.executor,
                   .reader = options.reader,
                   .cp_rank = options.cp_rank,
                   .incarnation = options.incarnation};
  for (const RankStream& stream : options.streams) {
    open.streams.push_back(StreamOf(stream, options.position ? options.position : options.resume));
    open.resume[stream.name] = StreamOf(stream, options.resume).next_step;
  }
  return open;
}

}  // namespace

Stall& Stall::operator+=(const Stall& other) {
  loader += other.loader;
  peer += other.peer;
  server += other.server;
  copy += other.copy;
  return *this;
}

absl::StatusOr<std::unique_ptr<Rank>> Rank::Open(absl::string_view address, RankOptions options) {
  if (options.reader.empty()) options.reader = absl::StrCat("rank", options.cp_rank);
  if (options.incarnation == 0) options.incarnation = absl::ToUnixMicros(absl::Now());
  CPSHARD_RETURN_IF_ERROR(CheckNumbers(options));
  CPSHARD_RETURN_IF_ERROR(options.options.MakeSharder().status());
  CPSHARD_RETURN_IF_ERROR(CheckFits(options.resume, options));
  CPSHARD_RETURN_IF_ERROR(CheckFits(options.position, options));
  OpenSession open = OpenOf(options);
  CPSHARD_RETURN_IF_ERROR(Check(open));
  CPSHARD_ASSIGN_OR_RETURN(Address parsed, Address::Parse(address));
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<WakeupFd> wakeup, WakeupFd::Make());
  auto impl = std::make_shared<Impl>(std::move(parsed), std::move(wakeup), std::move(options),
                                     std::move(open));
  impl->Start();
  return std::unique_ptr<Rank>(new Rank(std::move(impl)));
}

Rank::Rank(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Rank::~Rank() {
  impl_->End(absl::CancelledError("the rank has hung up"));
  impl_->Close();
}

absl::StatusOr<std::optional<RankStep>> Rank::Next(const std::string& stream) {
  return impl_->Next(stream);
}
void Rank::Consumed(const std::string& stream) { impl_->Consumed(stream); }
void Rank::StartPass(const std::string& stream) { impl_->StartPass(stream); }
void Rank::ClosePass(const std::string& stream, bool finished) {
  impl_->ClosePass(stream, finished);
}
TrainState Rank::State() const { return impl_->State(); }
absl::Status Rank::Close(absl::Duration patience) { return impl_->CloseSession(patience); }
RankStats Rank::stats() const { return impl_->stats(); }

}  // namespace cpshard
