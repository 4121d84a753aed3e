// A data stream as one reader receives it: the steps that come in, the one that the trainer has in
// hand, what it has consumed, and the state that resumes behind that.
//
//   consumed | in hand (0 or 1 step) | received, in order | asked for, or partly here | later
//        next_step                 front                                      front + prefetch
//
// Part of ReaderLedger, which see; requests have their ids there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client/session/reader_ledger.h"

namespace cpshard {

class IncomingStream {
 public:
  explicit IncomingStream(const ReaderStream& start);

  ReaderStream State() const;

  // --- connection

  // The server learns State() with OpenSession.
  void Told();
  absl::Status Opened(const OpenedStream& opened);
  void Disconnected();

  // --- requests

  // What has been consumed and left since the server was told.
  std::vector<ReaderLedger::Request> TakeNews();
  // The step so far behind the front, if it is to be asked for now.
  std::optional<int64_t> TakeStep(int64_t ahead);
  // Microbatches of the step that are here.
  int64_t Held(int64_t step) const;
  // The step that the trainer gets next.
  int64_t front() const { return next_step_ + (in_hand_ ? 1 : 0); }
  bool IsFront(int64_t step) const { return step == front(); }

  // Precondition of these: the step was asked for in this pass.
  // In the order of microbatches, which begins anew with every request. Internal: it lacks or
  // contradicts what has to be said.
  absl::Status Receive(ReceivedShard received);
  void AskAtOnce(int64_t step) { asked_.erase(step); }
  void Postpone(int64_t step) { postponed_.insert(step); }
  // Lets go of what has been received behind it, and postpones that.
  void LetGoBehind(int64_t step);
  // The request for `step` was answered with the end of the pass.
  void End(int64_t step, int64_t end_step);
  void Fail(absl::Status status);

  bool postponed() const { return !postponed_.empty(); }
  void AskAgain();

  // --- the trainer

  void StartPass() { closed_ = finished_; }
  bool Ready() const;
  std::variant<ReceivedStep, EndOfPass, absl::Status> Next();
  void Consume();
  void ClosePass(bool finished);

  int64_t pass() const { return pass_; }

 private:
  struct Step {
    std::vector<ReceivedShard> microbatches;
    StepTotals totals;
    bool complete = false;
  };
  // Of the step in hand: what its consumption adds to the resume state.
  struct InHand {
    int64_t owner = 0, num_loaders = 0;
    std::optional<std::string> owner_state;
  };
  struct Position {
    int64_t pass = 0, next_step = 0;
  };

  int64_t FirstIncomplete() const;
  bool Complete(int64_t step) const;
  bool KnowsResume() const;
  absl::Status CheckHead(const DeliveryHead& head) const;

  const std::string name_;
  const int64_t max_step_bytes_;
  int64_t pass_;
  bool closed_, finished_;

  int64_t next_step_;
  std::optional<InHand> in_hand_;
  std::map<int64_t, Step> steps_;  // from the front on
  std::optional<int64_t> end_;
  absl::Status error_;

  // Of next_step - 1. Not exact: loaders are missing in it whose states were never heard of.
  ResumeState resume_;
  bool resume_is_exact_;

  std::set<int64_t> asked_;      // and not answered, or postponed
  std::set<int64_t> postponed_;  // of these
  Position told_;                // what the server knows
};

}  // namespace cpshard
