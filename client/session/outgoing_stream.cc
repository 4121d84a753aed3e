#include "client/session/outgoing_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/with_text.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

}  // namespace

OutgoingStream::OutgoingStream(std::string name, int64_t loader, int64_t num_loaders)
    : name_(std::move(name)),
      loader_(loader),
      num_loaders_(num_loaders),
      next_(loader),
      source_{0, loader} {}

// Of a generation that it has only heard of, it cannot say that a pass is over.
LoaderStream OutgoingStream::State() const {
  return {name_, of_generation_ ? pass_ : 0, released_, HeldFrom()};
}

int64_t OutgoingStream::held_bytes() const {
  int64_t bytes = 0;
  for (const auto& [step, held] : held_) {
    for (const MadeBatch& batch : held.made.microbatches) bytes += batch.bytes;
  }
  return bytes;
}

// This loader's first step at or behind `step`.
int64_t OutgoingStream::FirstOwn(int64_t step) const {
  if (step <= loader_) return loader_;
  return loader_ + (step - loader_ + num_loaders_ - 1) / num_loaders_ * num_loaders_;
}

bool OutgoingStream::IsOfNow(int64_t pass, int64_t epoch) const {
  return current_ && pass == pass_ && epoch == epoch_;
}

std::string OutgoingStream::Text(int64_t step) const {
  return absl::StrCat("step ", step, " of data stream '", name_, "' pass ", pass_);
}

// --- from the server

void OutgoingStream::Disconnected() {
  current_ = false;
  credits_.clear();
  for (auto& [step, held] : held_) held.device_lost = false;
}

void OutgoingStream::BeginPass(int64_t pass) {
  pass_ = pass;
  placed_ = current_ = false;
  released_ = 0;
  Drop(kAll);
  next_ = loader_;
  resume_.reset();
  end_.reset();
  credits_.clear();
}

void OutgoingStream::Drop(int64_t before) {
  const auto end = held_.lower_bound(before);
  for (auto step = held_.begin(); step != end; ++step) {
    dropped_.push_back(std::move(step->second.made));
  }
  held_.erase(held_.begin(), end);
}

void OutgoingStream::LetGo(int64_t before) {
  released_ = std::max(released_, before);
  Drop(released_);
  credits_.erase(credits_.begin(), credits_.lower_bound(released_));
}

void OutgoingStream::Place(const Position& position) {
  if (finished_ && position.generation <= generation_) return;
  const bool goes_on = IsOfNow(position.pass, position.epoch);
  if (position.pass != pass_) BeginPass(position.pass);
  generation_ = position.generation;
  epoch_ = position.epoch;
  of_generation_ = placed_ = current_ = true;
  finished_ = end_told_ = false;
  credits_.clear();
  LetGo(position.released);

  const int64_t from = FirstOwn(position.from_step);
  if (from < HeldFrom() || from > next_) {
    Drop(kAll);
    next_ = from;
  }
  if (from == next_) resume_ = position.state;
  allowed_ = from - 1;
  for (auto step = held_.lower_bound(from); step != held_.end(); ++step) {
    for (At& at : step->second.microbatches) {
      if (!(goes_on && at == At::kUnderWay)) at = At::kHere;
    }
  }
  const auto partly = held_.find(from);
  if (partly == held_.end()) return;
  std::vector<At>& microbatches = partly->second.microbatches;
  for (const int64_t landed : position.landed) {
    if (landed >= 0 && landed < static_cast<int64_t>(microbatches.size())) {
      microbatches[landed] = At::kLanded;
    }
  }
}

void OutgoingStream::Credit(const LoaderCredit& credit, uint64_t order) {
  const int64_t step = credit.at.step;
  if (!IsOfNow(credit.at.pass, credit.epoch) || step != FirstOwn(step)) return;
  PushAgain();
  credits_.emplace(step, Credited{0, order}).first->second.bytes = credit.bytes;
  allowed_ = std::max(allowed_, step);
  // All of it has landed, and still the server asks for it.
  const auto held = held_.find(step);
  if (held == held_.end()) return;
  std::vector<At>& microbatches = held->second.microbatches;
  const bool landed = std::all_of(microbatches.begin(), microbatches.end(),
                                  [](At at) { return at == At::kLanded; });
  if (landed) std::fill(microbatches.begin(), microbatches.end(), At::kHere);
}

absl::Status OutgoingStream::Ack(const StepAddress& at, int64_t epoch, int64_t microbatch,
                                 const absl::Status& status) {
  if (!IsOfNow(at.pass, epoch)) return absl::OkStatus();
  if (status.ok()) allowed_ = std::max(allowed_, at.step);  // a process before this one pushed it
  const auto held = held_.find(at.step);
  if (held == held_.end()) return absl::OkStatus();
  std::vector<At>& microbatches = held->second.microbatches;
  if (microbatch < 0 || microbatch >= static_cast<int64_t>(microbatches.size())) {
    return absl::OkStatus();
  }
  At& state = microbatches[microbatch];
  if (status.ok()) {
    state = At::kLanded;
    const bool all = std::all_of(microbatches.begin(), microbatches.end(),
                                 [](At here) { return here == At::kLanded; });
    if (all) credits_.erase(at.step);
    return absl::OkStatus();
  }
  if (absl::IsDataLoss(status)) {
    if (++held->second.losses > kMaxLosses) {
      return WithText(status, absl::StrCat(Text(at.step), " microbatch ", microbatch, " was lost ",
                                           held->second.losses,
                                           " times; does its source write to it while it is "
                                           "pushed? ",
                                           status.message()));
    }
    state = held->second.losses == 1 ? At::kHere : At::kPostponed;
  } else if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status) ||
             absl::IsAborted(status) || absl::IsDeadlineExceeded(status) ||
             absl::IsCancelled(status)) {
    state = At::kPostponed;
    return CountDevice(at, microbatch, status);
  } else {
    return WithText(status, absl::StrCat(Text(at.step), " microbatch ", microbatch,
                                         " was refused: ", status.message()));
  }
  return absl::OkStatus();
}

// A server that loses its device with a step is started again, and gets the same step: if the step
// is why, that has no end.
absl::Status OutgoingStream::CountDevice(const StepAddress& at, int64_t microbatch,
                                         const absl::Status& status) {
  const std::optional<ErrorDetails> details = DetailsOf(status);
  Held& held = held_.at(at.step);
  if (!details || details->reason != "DEVICE_LOST" || held.device_lost) return absl::OkStatus();
  held.device_lost = true;
  if (++held.devices < kMaxDevices) return absl::OkStatus();
  return WithText(status, absl::StrCat(Text(at.step), " microbatch ", microbatch,
                                       " was being sharded when ", held.devices,
                                       " servers lost their device, and may be why; leave it out, "
                                       "or shard it with executor cpu: ",
                                       status.message()));
}

void OutgoingStream::Release(const Released& released) {
  if (IsOfNow(released.pass, released.epoch)) LetGo(released.before);
}

void OutgoingStream::LeavePass(const PassDone& done) {
  // One that is finished is so in whatever pass: a group that resumed may end in an earlier one.
  if (finished_ || (done.pass < pass_ && !done.finished)) return;
  BeginPass(done.pass + 1);
  of_generation_ = true;
  finished_ = done.finished;
}

// --- pushing

std::optional<EndOfStream> OutgoingStream::TakeEnd() {
  if (!current_ || !end_ || end_told_) return std::nullopt;
  end_told_ = true;
  return EndOfStream{name_, pass_, epoch_, *end_};
}

std::map<int64_t, OutgoingStream::Credited>::const_iterator OutgoingStream::Pushable() const {
  return std::find_if(credits_.begin(), credits_.end(), [&](const auto& credit) {
    const auto held = held_.find(credit.first);
    if (held == held_.end()) return false;
    const std::vector<At>& microbatches = held->second.microbatches;
    return std::find(microbatches.begin(), microbatches.end(), At::kHere) != microbatches.end();
  });
}

std::optional<uint64_t> OutgoingStream::NextPush() const {
  const auto credit = Pushable();
  if (credit == credits_.end()) return std::nullopt;
  return credit->second.order;
}

absl::StatusOr<LoaderLedger::Push> OutgoingStream::TakePush() {
  const auto& [step, credit] = *Pushable();
  Held& held = held_.at(step);
  const MadeStep& made = held.made;
  int64_t bytes = 0;
  for (const MadeBatch& batch : made.microbatches) bytes += batch.bytes;
  if (bytes > credit.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Text(step), " has ", bytes, " bytes in ", made.microbatches.size(),
                     " microbatches, more than the ", credit.bytes,
                     " that the readers opened it with: raise their max_step_bytes"));
  }
  const auto here = std::find(held.microbatches.begin(), held.microbatches.end(), At::kHere);
  *here = At::kUnderWay;
  const auto microbatch = here - held.microbatches.begin();

  LoaderLedger::Push push;
  push.batch = made.microbatches[microbatch];
  push.head.at = {name_, pass_, step};
  push.head.epoch = epoch_;
  push.head.microbatch = microbatch;
  push.head.last_microbatch = here + 1 == held.microbatches.end();
  push.head.digest = push.batch.digest;
  if (microbatch == 0) push.head.totals = made.totals;
  if (push.head.last_microbatch) push.head.state = made.state;
  return push;
}

bool OutgoingStream::postponed() const {
  return std::any_of(credits_.begin(), credits_.end(), [&](const auto& credit) {
    const auto held = held_.find(credit.first);
    if (held == held_.end()) return false;
    const std::vector<At>& microbatches = held->second.microbatches;
    return std::find(microbatches.begin(), microbatches.end(), At::kPostponed) !=
           microbatches.end();
  });
}

void OutgoingStream::PushAgain() {
  for (auto& [step, held] : held_) {
    std::replace(held.microbatches.begin(), held.microbatches.end(), At::kPostponed, At::kHere);
  }
}

}  // namespace cpshard
