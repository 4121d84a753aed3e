// The trainer's side of a Rank: what blocks, and what is said of the waits.
#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/session/rank_impl.h"
#include "client/session/train_state.h"
#include "core/batch/failpoint.h"
#include "core/plan/status_macros.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

constexpr absl::Duration kClosePause = absl::Milliseconds(100);

bool PeerHasLeft(const absl::Status& status) {
  return absl::IsAborted(status) &&
         DetailsOf(status).value_or(ErrorDetails()).reason == "PEER_LEFT";
}

RankStep ToRankStep(ReceivedStep received) {
  RankStep step{received.at.stream, received.at.pass, received.at.step, received.totals, {}};
  for (ReceivedShard& microbatch : received.microbatches) {
    // The ledger had the only other handle on it.
    auto shard = std::const_pointer_cast<RankShard>(
        std::static_pointer_cast<const RankShard>(microbatch.shard));
    step.microbatches.push_back(
        {std::move(*shard), microbatch.head.digest, std::move(microbatch.executor)});
  }
  return step;
}

}  // namespace

// --- Next

absl::StatusOr<std::optional<RankStep>> Rank::Impl::Next(const std::string& stream) {
  CPSHARD_ASSIGN_OR_RETURN(Received received, AwaitStep(stream));
  Update([] {});  // the next steps can be asked for
  if (auto* const status = std::get_if<absl::Status>(&received)) return *status;
  if (std::holds_alternative<EndOfPass>(received)) return std::nullopt;
  return ToRankStep(std::get<ReceivedStep>(std::move(received)));
}

absl::StatusOr<Rank::Impl::Received> Rank::Impl::AwaitStep(const std::string& stream) {
  Failpoint("before_commit");
  StepAddress at;
  Update([&] {
    mutex_.AssertHeld();
    ledger_.Consumed(stream);
    const ReaderStream state = ledger_.StateOf(stream);
    at = {stream, state.pass, state.next_step};
    // Who was away when the step was prefetched may be back.
    const auto word = word_.find(at);
    if (word != word_.end() && PeerHasLeft(word->second)) word_.erase(word);
  });
  absl::MutexLock lock(&mutex_);
  const absl::Duration copied_before = copied_;
  WaitTally tally;
  ledger_.Await(stream);
  absl::Status status = AwaitReady(at, &tally);
  ledger_.StopAwaiting(stream);
  stats_.last = tally.Finish(copied_ - copied_before);
  stats_.all += stats_.last;
  if (!status.ok()) return status;
  Received received = ledger_.Next(stream);
  if (std::holds_alternative<ReceivedStep>(received)) ++stats_.steps;
  return received;
}

absl::Status Rank::Impl::AwaitReady(const StepAddress& at, WaitTally* tally) {
  const absl::Time give_up = SteadyNow() + options_.timeout;
  while (!ledger_.Ready(at.stream)) {
    if (ended_) return *ended_;
    const auto word = word_.find(at);
    if (word != word_.end() && PeerHasLeft(word->second)) return word->second;
    const absl::Time now = SteadyNow();
    if (now >= give_up) return Late(at);
    const WaitsFor who = WhoIsWaitedFor(at);
    changed_.WaitWithTimeout(&mutex_, give_up - now);
    tally->Add(who, SteadyNow() - now);
  }
  return absl::OkStatus();
}

WaitsFor Rank::Impl::WhoIsWaitedFor(const StepAddress& at) const {
  if (!clock_.up() || landing_.count(at) > 0) return WaitsFor::kServer;
  const auto word = word_.find(at);
  if (word == word_.end()) return WaitsFor::kUnknown;
  if (absl::IsDeadlineExceeded(word->second)) return WhoIsIn(word->second.message());
  return WaitsFor::kServer;
}

absl::Status Rank::Impl::Late(const StepAddress& at) const {
  std::string why = "the server has not said why";
  if (!trouble_.ok()) {
    why = std::string(trouble_.message());
  } else if (const auto word = word_.find(at); word != word_.end()) {
    why = std::string(word->second.message());
  } else if (!clock_.up()) {
    why = absl::StrCat(address().text, " is being connected to");
  }
  return absl::DeadlineExceededError(
      absl::StrCat("step ", at.step, " of data stream '", at.stream, "' pass ", at.pass,
                   " has not come within ", absl::FormatDuration(options_.timeout), ": ", why));
}

// --- passes and checkpoints

void Rank::Impl::Consumed(const std::string& stream) {
  Failpoint("before_commit");
  Update([&] {
    mutex_.AssertHeld();
    ledger_.Consumed(stream);
  });
}

void Rank::Impl::StartPass(const std::string& stream) {
  Update([&] {
    mutex_.AssertHeld();
    ledger_.StartPass(stream);
  });
}

void Rank::Impl::ClosePass(const std::string& stream, bool finished) {
  Update([&] {
    mutex_.AssertHeld();
    ledger_.ClosePass(stream, finished);
    std::erase_if(asked_, [&](const auto& asked) { return asked.second.stream == stream; });
    std::erase_if(word_, [&](const auto& word) { return word.first.stream == stream; });
  });
}

TrainState Rank::Impl::State() const {
  TrainState state{.fingerprint = options_.fingerprint,
                   .data_epoch = options_.data_epoch,
                   .cp_size = options_.cp_size,
                   .options_hash = HashOf(options_.options)};
  absl::MutexLock lock(&mutex_);
  for (const RankStream& stream : options_.streams) {
    ReaderStream of = ledger_.StateOf(stream.name);
    state.streams[stream.name] = {of.pass, of.next_step,
                                  std::move(of.resume).value_or(ResumeState())};
  }
  return state;
}

RankStats Rank::Impl::stats() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

// --- the end of the session

namespace {

// All readers have closed, this one too: the answer that said so was lost.
bool IsOver(const absl::Status& status, int64_t generation) {
  const std::optional<ErrorDetails> details = DetailsOf(status);
  if (!details || details->reason != "STALE_GENERATION") return false;
  const auto current = details->values.find("generation");
  return current != details->values.end() && current->second == absl::StrCat(generation);
}

}  // namespace

absl::Status Rank::Impl::CloseSession(absl::Duration patience) {
  const absl::Time give_up = SteadyNow() + patience;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return absl::OkStatus();
      if (ended_) return *ended_;
    }
    absl::Status status = CloseOnce(give_up - SteadyNow());
    if (IsOver(status, session_.generation)) status = absl::OkStatus();
    const bool again = MayPass(status) || absl::IsNotFound(status);
    if (status.ok() || !again || SteadyNow() + kClosePause >= give_up) {
      {
        absl::MutexLock lock(&mutex_);
        closed_ = status.ok();
      }
      End(absl::CancelledError("the session has been closed"));
      return status;
    }
    absl::MutexLock lock(&mutex_);
    changed_.WaitWithTimeout(&mutex_, kClosePause);
  }
}

// As far as this connection goes.
absl::Status Rank::Impl::CloseOnce(absl::Duration patience) {
  const std::shared_ptr<StreamConnection> up = connection();
  if (up == nullptr) {
    absl::MutexLock lock(&mutex_);
    return absl::UnavailableError(
        absl::StrCat("the session is not closed, for the server is away: ", trouble_.message()));
  }
  absl::Notification answered;
  const auto call =
      CallCloseSession(up->channel(), session_, patience, [&answered] { answered.Notify(); });
  answered.WaitForNotification();
  return call->answer()->status();
}

}  // namespace cpshard
