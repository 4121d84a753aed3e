// What the source is asked for, and what comes of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/outgoing_stream.h"

namespace cpshard {
namespace {

absl::Status CheckMade(const MadeStep& made, const std::string& text) {
  const auto count = static_cast<int64_t>(made.microbatches.size());
  if (count == 0) return absl::InvalidArgumentError(absl::StrCat(text, " has no microbatch"));
  if (made.totals && made.totals->num_microbatches != count) {
    return absl::InvalidArgumentError(absl::StrCat(text, " has ", count,
                                                   " microbatches, but its totals count ",
                                                   made.totals->num_microbatches));
  }
  if (made.state && made.state->size() > kMaxLoaderStateBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " comes with a loader state of ", made.state->size(), " bytes; at most ",
                     kMaxLoaderStateBytes,
                     " can be kept: keep what is larger elsewhere, and its "
                     "name in the state"));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<LoaderLedger::Work> OutgoingStream::NextWork() const {
  if (finished_ || !placed_ || (end_ && next_ >= *end_)) return std::nullopt;
  if (next_ - num_loaders_ > allowed_) return std::nullopt;  // one ahead is enough
  LoaderLedger::Work work{name_, pass_, next_, std::nullopt};
  if (source_ != Stand{pass_, next_}) work.rewind = {resume_};
  return work;
}

absl::Status OutgoingStream::Made(const LoaderLedger::Work& work, MadeStep made) {
  source_ = {work.pass, work.step + num_loaders_};
  if (finished_ || work.pass != pass_ || work.step != next_) {
    dropped_.push_back(std::move(made));
    return absl::OkStatus();
  }
  if (absl::Status status = CheckMade(made, Text(work.step)); !status.ok()) return status;
  Held& held = held_[next_];
  held.microbatches.assign(made.microbatches.size(), At::kHere);
  held.made = std::move(made);
  next_ += num_loaders_;
  return absl::OkStatus();
}

absl::Status OutgoingStream::MadeEnd(const LoaderLedger::Work& work, int64_t end_step) {
  source_ = {work.pass, work.step};
  if (finished_ || work.pass != pass_) return absl::OkStatus();
  const int64_t last = held_.empty() ? -1 : held_.rbegin()->first;
  if (end_step < 0 || end_step > work.step || end_step <= last) {
    return absl::InvalidArgumentError(
        absl::StrCat("data stream '", name_, "' pass ", pass_, " is said to end at step ", end_step,
                     ", but there is no step ", work.step,
                     last >= 0 ? absl::StrCat(", and there is step ", last) : "",
                     ": the end is the first step that no loader has"));
  }
  if (end_ && *end_ != end_step) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data stream '", name_, "' pass ", pass_, " ended at step ", *end_, ", and now at step ",
        end_step, ": a source has to give the same again after a rewind"));
  }
  end_ = end_step;
  return absl::OkStatus();
}

}  // namespace cpshard
