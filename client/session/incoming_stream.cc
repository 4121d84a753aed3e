#include "client/session/incoming_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard {

IncomingStream::IncomingStream(const ReaderStream& start)
    : name_(start.name),
      max_step_bytes_(start.max_step_bytes),
      pass_(start.pass),
      closed_(start.closed || start.finished),
      finished_(start.finished),
      next_step_(start.next_step),
      resume_(start.resume.value_or(ResumeState{})),
      resume_is_exact_(start.resume.has_value() || start.next_step == 0),
      told_{start.pass, start.next_step} {}

ReaderStream IncomingStream::State() const {
  ReaderStream state;
  state.name = name_;
  state.pass = pass_;
  state.next_step = next_step_;
  state.received = FirstIncomplete() - 1;
  state.closed = closed_;
  state.finished = finished_;
  state.max_step_bytes = max_step_bytes_;
  if (KnowsResume()) state.resume = resume_;
  return state;
}

int64_t IncomingStream::FirstIncomplete() const {
  int64_t step = front();
  while (Complete(step)) ++step;
  return step;
}

bool IncomingStream::Complete(int64_t step) const {
  const auto found = steps_.find(step);
  return found != steps_.end() && found->second.complete;
}

// Once all loaders have given a state since, what was before does not matter any more.
bool IncomingStream::KnowsResume() const {
  return resume_is_exact_ || (resume_.num_loaders > 0 &&
                              static_cast<int64_t>(resume_.loaders.size()) == resume_.num_loaders);
}

// --- connection

void IncomingStream::Told() { told_ = {pass_, next_step_}; }

absl::Status IncomingStream::Opened(const OpenedStream& opened) {
  if (!closed_ && opened.floor && opened.pass == told_.pass && *opened.floor > told_.next_step) {
    return absl::FailedPreconditionError(
        absl::StrCat("data stream '", name_, "': the server has nothing below step ", *opened.floor,
                     " of pass ", opened.pass, ", and this reader needs step ", told_.next_step,
                     "; start a new generation from a checkpoint"));
  }
  if (opened.floor && opened.pass > told_.pass) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data stream '", name_, "': the server is in pass ", opened.pass, ", this reader in pass ",
        told_.pass, "; start a new generation from a checkpoint"));
  }
  const bool of_now = told_.pass == pass_ && told_.next_step == next_step_;
  if (opened.resume && of_now && !KnowsResume()) {
    resume_ = *opened.resume;
    resume_is_exact_ = true;
  }
  return absl::OkStatus();
}

void IncomingStream::Disconnected() {
  asked_.clear();
  postponed_.clear();
  // What has come behind a hole comes again: `received` does not speak for it, so that its commit
  // would be ahead of what a new server knows of.
  steps_.erase(steps_.upper_bound(FirstIncomplete()), steps_.end());
}

// --- requests

std::vector<ReaderLedger::Request> IncomingStream::TakeNews() {
  std::vector<ReaderLedger::Request> news;
  while (told_.pass < pass_) {
    const bool finished = finished_ && told_.pass + 1 == pass_;
    news.push_back(PassClosed{name_, told_.pass, finished});
    told_ = {told_.pass + 1, 0};
  }
  if (told_.next_step < next_step_) {
    told_.next_step = next_step_;
    news.push_back(Commit{{name_, pass_, next_step_ - 1}});
  }
  return news;
}

std::optional<int64_t> IncomingStream::TakeStep(int64_t ahead) {
  const int64_t step = front() + ahead;
  const bool is_over = closed_ || !error_.ok() || (end_ && step >= *end_);
  if (is_over || Complete(step) || !asked_.insert(step).second) return std::nullopt;
  return step;
}

int64_t IncomingStream::Held(int64_t step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? 0 : static_cast<int64_t>(found->second.microbatches.size());
}

absl::Status IncomingStream::CheckHead(const DeliveryHead& head) const {
  const std::string where = absl::StrCat("step ", head.at.step, " microbatch ", head.microbatch,
                                         " of data stream '", name_, "'");
  if (head.num_loaders < 1 || head.owner != head.at.step % head.num_loaders) {
    return absl::InternalError(absl::StrCat(where, " is said to be of loader ", head.owner, " of ",
                                            head.num_loaders,
                                            ": loader i has the steps with step % L == i"));
  }
  if (!head.last) return absl::OkStatus();
  const int64_t count = head.microbatch + 1;
  if (!head.totals || head.totals->num_microbatches != count) {
    return absl::InternalError(absl::StrCat(
        where, " is the last one, but the step's totals ",
        head.totals ? absl::StrCat("count ", head.totals->num_microbatches) : "are missing"));
  }
  return absl::OkStatus();
}

absl::Status IncomingStream::Receive(ReceivedShard received) {
  const DeliveryHead& head = received.head;
  if (absl::Status status = CheckHead(head); !status.ok()) return status;
  if (!resume_.loaders.empty() && resume_.num_loaders != head.num_loaders) {
    Fail(absl::FailedPreconditionError(
        absl::StrCat("step ", head.at.step, " of data stream '", name_, "' comes of ",
                     head.num_loaders, " loaders, but this session resumes with states of ",
                     resume_.num_loaders, "; start ", resume_.num_loaders, " loaders")));
    return absl::OkStatus();
  }
  Step& step = steps_[head.at.step];
  const auto at = static_cast<size_t>(head.microbatch);
  if (at > step.microbatches.size()) {
    return absl::InternalError(absl::StrCat("step ", head.at.step, " of data stream '", name_,
                                            "': microbatch ", at, " came, but not the one before"));
  }
  if (at < step.microbatches.size()) {
    // It was here before a disconnect. Should it have changed since, then all that follows has.
    if (step.microbatches[at].head.digest == head.digest && !head.last) return absl::OkStatus();
    step.microbatches.erase(step.microbatches.begin() + head.microbatch, step.microbatches.end());
  }
  if (head.last) {
    step.totals = *head.totals;
    step.complete = true;
    asked_.erase(head.at.step);
  }
  step.microbatches.push_back(std::move(received));
  return absl::OkStatus();
}

void IncomingStream::End(int64_t step, int64_t end_step) {
  asked_.erase(step);
  const int64_t unseen = steps_.empty() ? front() : steps_.rbegin()->first + 1;
  std::string instead;
  if (end_ && *end_ != end_step) {
    instead = absl::StrCat("at step ", *end_, " before");
  } else if (end_step < unseen) {
    instead = absl::StrCat("step ", unseen - 1, " was received");
  } else if (end_step > step) {
    instead = absl::StrCat("that is the answer for step ", step);
  }
  if (instead.empty()) {
    end_ = end_step;
  } else {
    Fail(absl::FailedPreconditionError(
        absl::StrCat("data stream '", name_, "' pass ", pass_, " is said to end at step ", end_step,
                     ", but ", instead,
                     "; the ranks would not end together: start a new generation from a "
                     "checkpoint")));
  }
}

void IncomingStream::Fail(absl::Status status) {
  if (error_.ok()) error_ = std::move(status);
}

void IncomingStream::LetGoBehind(int64_t step) {
  const auto first = steps_.upper_bound(step);
  for (auto at = first; at != steps_.end(); ++at) {
    asked_.insert(at->first);
    Postpone(at->first);
  }
  steps_.erase(first, steps_.end());
}

void IncomingStream::AskAgain() {
  for (const int64_t step : postponed_) asked_.erase(step);
  postponed_.clear();
}

// --- the trainer

bool IncomingStream::Ready() const {
  return closed_ || Complete(front()) || !error_.ok() || end_ == front();
}

std::variant<ReceivedStep, EndOfPass, absl::Status> IncomingStream::Next() {
  if (closed_) {
    return absl::FailedPreconditionError(
        absl::StrCat("data stream '", name_, "' is ",
                     finished_ ? "finished" : "between two passes; open the next one first"));
  }
  if (Complete(front())) {
    Consume();
    const auto first = steps_.find(next_step_);
    ReceivedStep step{
        {name_, pass_, next_step_}, first->second.totals, std::move(first->second.microbatches)};
    steps_.erase(first);
    const DeliveryHead& last = step.microbatches.back().head;
    in_hand_ = {last.owner, last.num_loaders, last.owner_state};
    return step;
  }
  if (end_ == front()) {
    Consume();
    return EndOfPass{{name_, pass_, *end_}};
  }
  if (!error_.ok()) return error_;
  return absl::UnavailableError(
      absl::StrCat("step ", front(), " of data stream '", name_, "' is not here yet"));
}

void IncomingStream::Consume() {
  if (!in_hand_) return;
  resume_.num_loaders = in_hand_->num_loaders;
  if (in_hand_->owner_state) {
    resume_.loaders[in_hand_->owner] = {next_step_, *std::move(in_hand_->owner_state)};
  }
  in_hand_.reset();
  ++next_step_;
}

void IncomingStream::ClosePass(bool finished) {
  if (finished_ || (closed_ && !finished)) return;
  Consume();  // for the number of loaders
  ++pass_;
  closed_ = true;
  finished_ = finished;
  next_step_ = 0;
  steps_.clear();
  end_.reset();
  resume_.loaders.clear();
  resume_is_exact_ = true;
  Disconnected();
}

}  // namespace cpshard
