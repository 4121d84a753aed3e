// The steps of one data stream that are in memory, or may come: a range of steps that moves up.
//
//   floor ............ frontier ......... granted_end ......... end
//   complete, in order | landing, credited | may be credited later
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "proto/session_messages.h"
#include "server/session/budget.h"
#include "server/session/delivery.h"

namespace cpshard {

struct Microbatch {
  uint64_t push = 0;  // landing; 0: not
  bool landed = false;
  bool delivered = false;
  int64_t incarnation = 0;  // of the loader that brought it
  LandedBatch batch;        // landed, or as many bytes as are to land
};

// Counted in its account from its credit on until it has left the window and nobody holds it.
struct Step {
  int64_t step = 0, pass = 0, epoch = 0;
  std::vector<Microbatch> microbatches;
  std::optional<int64_t> count;        // of microbatches, once the last one has been seen
  std::optional<StepTotals> declared;  // by the loader
  StepTotals totals;                   // counted; once complete
  bool complete = false;

  std::shared_ptr<Account> account;
  int64_t charged = 0;
  int64_t pins = 0;  // deliveries and landings that hold bytes
  bool in_window = true;

  int64_t bytes() const;  // landed and landing
  bool Begun() const;     // something has landed, or is about to
  // What was said with a microbatch that is not here after all.
  void TakeBack(int64_t microbatch, bool was_last);
  bool Landed(int64_t microbatch) const {
    return microbatch >= 0 && microbatch < static_cast<int64_t>(microbatches.size()) &&
           microbatches[microbatch].landed;
  }
};

using StepPtr = std::shared_ptr<Step>;

// Not thread-safe.
class Window {
 public:
  // `budget` must outlive the object and its steps.
  Window(int64_t replay_steps, int64_t ahead_steps, Budget& budget);
  ~Window();

  int64_t floor() const { return floor_; }
  int64_t frontier() const { return frontier_; }  // the first step that is not complete
  int64_t granted_end() const { return floor_ + static_cast<int64_t>(steps_.size()); }
  int64_t end() const { return floor_ + replay_steps_ + ahead_steps_; }
  int64_t replay_steps() const { return replay_steps_; }
  StepPtr Find(int64_t step) const;  // nullptr: no credit for it is out

  Account& account() { return *account_; }
  const Account& account() const { return *account_; }

  // Drops everything and begins at `step`.
  void Seek(int64_t step);
  // Drops steps before `floor`, which is not above the frontier. False: it is there already.
  bool SetFloor(int64_t floor);
  // Drops steps from `end` on.
  void Truncate(int64_t end);

  // Credits the next step. nullptr: the window is full, or the budget.
  StepPtr Grant(int64_t pass, int64_t epoch, int64_t max_step_bytes);

  // Drops the last step if it is beyond the guarantee and nothing has come for it. nullptr: it is
  // not so.
  StepPtr TakeBackShared();

  // All of it has landed: what it does not need of its credit goes back.
  void Complete(Step& step);

  // A delivery or a landing holds bytes of the step until Unpin.
  static void Pin(Step& step) { ++step.pins; }
  void Unpin(Step& step) { Unpin(step, budget_); }
  static void Unpin(Step& step, Budget& budget);

 private:
  void Leave(Step& step);

  const int64_t replay_steps_, ahead_steps_;
  Budget& budget_;
  const std::shared_ptr<Account> account_ = std::make_shared<Account>();
  int64_t floor_ = 0, frontier_ = 0;
  std::deque<StepPtr> steps_;  // from the floor on
};

}  // namespace cpshard
