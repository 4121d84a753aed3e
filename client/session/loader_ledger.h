// A loader's side of a session as a state machine: which step to make next, what to push, what to
// keep until it is released. No threads, no gRPC, no clock.
//
//   OnPosition -> NextWork (rewind, make) -> Made -> NextMessage (with a credit) -> OnAck
//              -> OnReleased (lets go) ... OnPassDone
//
// A loader makes its steps in order, one ahead of what it has credit for: so it finds the end
// without a credit. What it made stays until it is released, and is pushed again to a server that
// lacks it; only a position below what is held asks the source to rewind.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/session_messages.h"

namespace cpshard {

// One microbatch that a source made; `batch` is opaque here.
struct MadeBatch {
  std::shared_ptr<const void> batch;
  int64_t bytes = 0;
  uint64_t digest = 0;
};

struct MadeStep {
  std::vector<MadeBatch> microbatches;  // at least one
  std::optional<StepTotals> totals;     // where the source knows them
  std::optional<std::string> state;     // to go on behind this step
};

class OutgoingStream;

// Not thread-safe.
class LoaderLedger {
 public:
  // `hello`: group, loader, num_loaders, incarnation and the data streams' names; nothing is held.
  explicit LoaderLedger(LoaderHello hello);
  ~LoaderLedger();
  LoaderLedger(LoaderLedger&&) noexcept;
  LoaderLedger& operator=(LoaderLedger&&) noexcept;

  // --- connection

  LoaderHello HelloMessage() const;
  void Connected();     // the hello has been sent
  void Disconnected();  // what was pushed and not acknowledged is pushed again

  // --- from the server, while connected; what is of another pass or epoch is dropped

  void OnPosition(const Position& position);
  void OnCredit(const LoaderCredit& credit);
  // OK: it has landed. DataLoss: it is pushed again, at once. ResourceExhausted, Unavailable,
  // Aborted: with the next credit, connection or PushAgain. Others stay: failure(). So does the
  // fifth device that a server loses with one step.
  void OnAck(const StepAddress& at, int64_t epoch, int64_t microbatch, const absl::Status& status);
  void OnReleased(const Released& released);
  void OnPassDone(const PassDone& done);

  // What is not held any more since the last call. Its batches may be the caller's own memory, and
  // what lets go of that runs when they do: not under a lock.
  std::vector<MadeStep> TakeDropped();

  // --- the source

  struct Work {
    std::string stream;
    int64_t pass = 0;
    int64_t step = 0;
    // Present: the source does not stand before `step`; it has to go there first, forwards or
    // backwards. With the state behind an earlier step of this loader, or from the start of the
    // pass where there is none. (A new source stands at the start of pass 0.)
    struct Rewind {
      std::optional<LoaderState> state;
    };
    std::optional<Rewind> rewind;
  };
  // What the source is to make now, of any data stream; nullopt: there is nothing to do. The same
  // again until Made, MadeEnd or a message that changes it: the source does one work at a time, and
  // says Made or MadeEnd of each that it took.
  std::optional<Work> NextWork() const;
  // Dropped when a position has asked for something else meanwhile. A step that cannot be pushed
  // (no microbatch, totals or a state that do not hold) is a failure().
  void Made(const Work& work, MadeStep made);
  // There is no such step: the data stream ends at or before it. `end_step` is the first step that
  // no loader has; alike for all loaders.
  void MadeEnd(const Work& work, int64_t end_step);

  // --- pushing

  struct Push {
    PushHead head;
    MadeBatch batch;
  };
  using Message = std::variant<Push, EndOfStream>;
  // The next one to send, in order of credits; nullopt: nothing now.
  std::optional<Message> NextMessage();

  // Batches that were refused for now and wait for PushAgain, or for the next credit or connection.
  // The caller has the clock.
  bool postponed() const;
  void PushAgain();

  // --- looking

  // All data streams are done with, for good.
  bool finished() const;
  // What ended the loader: a refusal that does not go away. OK: nothing.
  absl::Status failure() const { return failure_; }
  int64_t held_bytes() const;
  int64_t held_steps() const;

 private:
  OutgoingStream* Find(const std::string& stream) const;
  void Fail(absl::Status status);

  LoaderHello hello_;  // without streams
  std::map<std::string, std::unique_ptr<OutgoingStream>> streams_;
  std::string last_made_;  // the data stream whose turn comes last
  bool connected_ = false;
  uint64_t next_order_ = 1;  // of credits
  absl::Status failure_;
};

}  // namespace cpshard
