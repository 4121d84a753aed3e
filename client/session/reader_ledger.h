// A reader's side of a session as a state machine: what to ask for, what may be handed to the
// trainer, what has been consumed, what a checkpoint has to hold. No threads, no gRPC, no clock.
//
//   OpenMessage -> OnOpened -> TakeRequests (Want ...) -> OnDelivery -> Next -> Next (commits the
//                                                  one before) ... Disconnected -> OpenMessage ...
//
// Steps of a data stream leave Next strictly in order, each once, whatever the server does; what
// has been received is not asked for again after a reconnect. A step that was handed out is not
// consumed yet: after a restart of the process the trainer gets it again, from this object never.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/session_messages.h"

namespace cpshard {

// One microbatch as it was received; `shard` is opaque here.
struct ReceivedShard {
  DeliveryHead head;
  std::shared_ptr<const void> shard;
  std::string executor;  // that made it
};

struct ReceivedStep {
  StepAddress at;
  StepTotals totals;
  std::vector<ReceivedShard> microbatches;
};

struct EndOfPass {
  StepAddress at;  // the first step that there is not: step = end_step
};

class IncomingStream;

// Not thread-safe.
class ReaderLedger {
 public:
  // `open` as of the checkpoint: streams with next_step and the resume state of next_step - 1; what
  // it says of `received` is not used. `prefetch`, at least 0: with step n being the next that Next
  // returns, all up to n + prefetch are asked for.
  ReaderLedger(OpenSession open, int64_t prefetch);
  ~ReaderLedger();
  ReaderLedger(ReaderLedger&&) noexcept;
  ReaderLedger& operator=(ReaderLedger&&) noexcept;

  // --- connection

  // To open the session with, now: next_step, received, pass, closed, and the resume state of
  // exactly next_step - 1. What is said here TakeRequests does not say again.
  OpenSession OpenMessage();

  // The session is open, with the last OpenMessage. FailedPrecondition: the server's position
  // cannot be.
  absl::Status OnOpened(const OpenedSession& opened);

  // The connection is gone: requests that were not answered will be made again.
  void Disconnected();

  // --- requests

  using Request = std::variant<Want, Commit, PassClosed>;
  // What to send now, in this order: of wants those first that the trainer needs first, and never
  // more than kMaxWants unanswered ones. Nothing while the session is not open.
  std::vector<Request> TakeRequests();

  // Requests that failed for now and wait for AskAgain, or for the next OnOpened: so that they do
  // not go to and fro as fast as the wire takes them. The caller has the clock.
  bool postponed() const;
  void AskAgain();

  // --- answers

  // Internal: a delivery that was not asked for, out of its order, or that does not say what it
  // has to; the call is to be cancelled. A repeated one, or of a pass that was left, is dropped.
  absl::Status OnDelivery(ReceivedShard received);
  // A request failed. Its step is asked for again where that may help: at once after
  // DeadlineExceeded, after AskAgain for ResourceExhausted, Unavailable and Aborted with reason
  // PEER_LEFT. OutOfRange with reason END_OF_STREAM ends the pass; anything else is what Next
  // returns from then on, behind the steps that have been received.
  void OnRequestStatus(uint64_t id, const absl::Status& status);
  // There is no memory for what the request brings. What has been received behind its step, be it
  // a part of a step, is let go of: the steps are asked for again, in their order, after AskAgain.
  // If the trainer waits for it, what other data streams have received makes way too, but for the
  // next steps of those that are awaited as well; and until it is here nothing but such steps is
  // asked for or lands, lest others take the room that has been made.
  void OnNoMemory(uint64_t id);
  // Whether what the request brings is to be kept. If not, OnNoMemory instead of OnDelivery.
  bool Lands(uint64_t id) const;

  // --- the trainer

  // The trainer waits for the data stream's next step; it does not any more.
  void Await(const std::string& stream) { awaited_.insert(stream); }
  void StopAwaiting(const std::string& stream);

  // Opens the data stream's pass if it is closed: a validation stream between two passes.
  void StartPass(const std::string& stream);

  // Whether Next has something, be it an error. Who waits for it calls Consumed first: a server
  // without room for another step makes room only then.
  bool Ready(const std::string& stream) const;
  // The next step, and thereby the commit of the one before; or the end of the pass, as often as it
  // is asked, which commits its last step. The error that stands in the way; NotFound: no such data
  // stream; FailedPrecondition: its pass is not open. Precondition: Ready (else Unavailable).
  std::variant<ReceivedStep, EndOfPass, absl::Status> Next(const std::string& stream);

  // The trainer has consumed what Next returned last, before it asks for the next one: a checkpoint
  // is about to be taken. Commits it.
  void Consumed(const std::string& stream);

  // Leaves the pass; the next one is opened by StartPass. What was received is dropped. Of a data
  // stream without an open pass only `finished` changes anything: there will be none.
  void ClosePass(const std::string& stream, bool finished);

  // For the checkpoint: the first step not consumed, and what resumes there.
  ReaderStream StateOf(const std::string& stream) const;

 private:
  struct Asked {
    StepAddress at;
    int64_t next_microbatch = 0;
    bool begun = false;  // something has come
  };

  IncomingStream* Find(const std::string& stream) const;
  // A step that is awaited lacks memory.
  bool RoomIsShort() const;
  void LetGoBehind(const std::string& stream, int64_t step);
  void TakeWants(int64_t ahead, std::vector<Request>* requests);

  OpenSession open_;  // without streams
  int64_t prefetch_;
  std::map<std::string, std::unique_ptr<IncomingStream>> streams_;
  bool opened_ = false;
  std::map<uint64_t, Asked> asked_;  // Wants that are not answered, by id
  uint64_t next_id_ = 1;
  std::set<std::string> awaited_;      // data streams
  std::set<std::string> lack_memory_;  // of these: for the next step
};

}  // namespace cpshard
