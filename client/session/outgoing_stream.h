// A data stream as one loader makes it: the steps that it holds, where its source stands, what the
// server lets in.
//
//   released | held: pushed, or to be pushed | made next | later
//         held_.begin()                         next_     at most one step ahead of the credits
//
// Steps here are this loader's own: i, i + L, i + 2 L, ... Part of LoaderLedger, which see.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/loader_ledger.h"

namespace cpshard {

class OutgoingStream {
 public:
  OutgoingStream(std::string name, int64_t loader, int64_t num_loaders);

  LoaderStream State() const;
  bool finished() const { return finished_; }
  int64_t held_bytes() const;
  int64_t held_steps() const { return static_cast<int64_t>(held_.size()); }

  // --- from the server

  void Disconnected();
  // Another generation has begun: what was released in the one before says nothing of it.
  void ForgetReleased() {
    released_ = 0;
    of_generation_ = false;
  }
  void Place(const Position& position);
  // `order`: of all credits of the loader.
  void Credit(const LoaderCredit& credit, uint64_t order);
  // A status that is not OK comes back where it does not go away.
  absl::Status Ack(const StepAddress& at, int64_t epoch, int64_t microbatch,
                   const absl::Status& status);
  void Release(const Released& released);
  void LeavePass(const PassDone& done);
  // Batches that are not held any more, for who lets go of them.
  std::vector<MadeStep> TakeDropped() { return std::exchange(dropped_, {}); }

  // --- the source

  std::optional<LoaderLedger::Work> NextWork() const;
  absl::Status Made(const LoaderLedger::Work& work, MadeStep made);
  absl::Status MadeEnd(const LoaderLedger::Work& work, int64_t end_step);

  // --- pushing

  std::optional<EndOfStream> TakeEnd();
  // The order of the first credit that there is something to push for.
  std::optional<uint64_t> NextPush() const;
  // Precondition: NextPush. InvalidArgument: the step is larger than may be pushed.
  absl::StatusOr<LoaderLedger::Push> TakePush();

  bool postponed() const;
  void PushAgain();

 private:
  enum class At { kHere, kUnderWay, kLanded, kPostponed };
  struct Held {
    MadeStep made;
    std::vector<At> microbatches;
    int64_t losses = 0;        // DataLoss
    int64_t devices = 0;       // that servers lost with it ...
    bool device_lost = false;  // ... the last one on this connection
  };
  static constexpr int64_t kMaxLosses = 100;  // of a step; but for the first each waits
  static constexpr int64_t kMaxDevices = 5;   // then it may be why
  struct Credited {
    int64_t bytes = 0;
    uint64_t order = 0;
  };
  // The source makes this step next, if nobody moves it.
  struct Stand {
    int64_t pass = 0, step = 0;
    friend bool operator==(const Stand&, const Stand&) = default;
  };

  absl::Status CountDevice(const StepAddress& at, int64_t microbatch, const absl::Status& status);
  int64_t FirstOwn(int64_t step) const;
  int64_t HeldFrom() const { return held_.empty() ? next_ : held_.begin()->first; }
  void BeginPass(int64_t pass);
  void Drop(int64_t before);
  void LetGo(int64_t before);
  bool IsOfNow(int64_t pass, int64_t epoch) const;
  std::map<int64_t, Credited>::const_iterator Pushable() const;
  std::string Text(int64_t step) const;

  const std::string name_;
  const int64_t loader_, num_loaders_;

  int64_t generation_ = 0, pass_ = 0, epoch_ = 0;
  bool of_generation_ = false;  // the pass is one of the generation seen last
  bool placed_ = false;         // there has been a position in this pass ...
  bool current_ = false;        // ... on this connection
  bool finished_ = false;
  int64_t released_ = 0;  // in this pass and generation

  std::map<int64_t, Held> held_;  // without gaps, up to next_
  std::vector<MadeStep> dropped_;
  int64_t next_;
  std::optional<LoaderState> resume_;  // takes the source to next_
  Stand source_;
  std::optional<int64_t> end_;
  bool end_told_ = false;  // since the last position

  std::map<int64_t, Credited> credits_;  // of steps that are not all there
  int64_t allowed_ = -1;                 // the last step that had credit, or is there
};

}  // namespace cpshard
