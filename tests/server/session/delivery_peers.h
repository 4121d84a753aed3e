// Loaders and readers that do what a test tells them, over a Delivery and a clock that the test
// moves. Nothing is sent: what a peer is told lands in its mailbox at once.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/delivery.h"

namespace cpshard {

inline constexpr char kTrain[] = "train";
inline constexpr char kVal[] = "val";
inline constexpr int64_t kStepBytes = 100;  // max_step_bytes where a test names no other

// A window of four steps, of which one is a committed one; names nothing that a test must wait for.
DeliveryOptions SmallOptions();

// What one call was told, in order, by kind.
struct Mailbox {
  std::vector<DeliverShard> shards;
  std::vector<RequestStatus> answers;
  std::vector<Position> positions;
  std::vector<LoaderCredit> credits;
  std::vector<PushAck> acks;
  std::vector<Released> released;
  std::vector<PassDone> dones;
  std::vector<absl::Status> ends;
  int drains = 0;
  std::vector<std::string> lines;  // all of it, as text
};

class DeliveryWorld {
 public:
  explicit DeliveryWorld(DeliveryOptions options = SmallOptions());

  PeerId Connect() { return next_peer_++; }
  void Disconnect(PeerId peer);
  void Pass(absl::Duration time);  // and Tick
  // Sorts what is to be said into the mailboxes.
  void Deliver();
  Mailbox& BoxOf(PeerId peer) { return boxes_[peer]; }

  const DeliveryOptions options;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  Delivery delivery;
  std::vector<Alert> alerts;

 private:
  PeerId next_peer_ = 1;
  std::map<PeerId, Mailbox> boxes_;
};

// A reader r<rank> of group g that has consumed nothing, in generation 1.
OpenSession OpenOf(int64_t rank, int64_t cp_size,
                   const std::vector<std::string>& streams = {kTrain});
ReaderStream& StreamOf(OpenSession& open, const std::string& stream = kTrain);

class ScriptedReader {
 public:
  ScriptedReader(DeliveryWorld& world, OpenSession session)
      : open(std::move(session)), world_(world) {}

  OpenSession open;  // what Open() says
  SessionName name() const { return {open.group, open.generation, open.reader, open.incarnation}; }

  absl::StatusOr<OpenedSession> Open();
  // A call that replaces the one before as the reader's own.
  absl::Status Attach();
  void Start();  // both, which must succeed
  void Disconnect() { world_.Disconnect(peer); }

  // The id of the request.
  uint64_t Ask(int64_t step, const std::string& stream = kTrain, int64_t pass = 0);
  uint64_t Ask(Want want);  // the id is set
  // nullopt: it waits. OK: its last microbatch has come.
  std::optional<absl::Status> AnswerTo(uint64_t id) const;
  // Asks and returns the answer; what has not come waits on.
  std::optional<absl::Status> Get(int64_t step, const std::string& stream = kTrain,
                                  int64_t pass = 0) {
    return AnswerTo(Ask(step, stream, pass));
  }
  absl::Status Commit(int64_t step, const std::string& stream = kTrain, int64_t pass = 0);
  absl::Status ClosePass(int64_t pass, bool finished = false, const std::string& stream = kTrain);
  void SentAll();  // all that was delivered on the present call
  // A CloseSession call; its answer, nullopt: it waits.
  PeerId Close();
  std::optional<absl::Status> EndOf(PeerId call) const;

  Mailbox& box() const { return world_.BoxOf(peer); }
  std::vector<int64_t> steps() const;  // delivered on the present call, in order

  PeerId peer = 0;

 private:
  DeliveryWorld& world_;
  uint64_t next_id_ = 1;
  size_t sent_ = 0;
};

// Loader i of L of group g.
LoaderHello HelloOf(int64_t loader, int64_t num_loaders,
                    const std::vector<std::string>& streams = {kTrain});

// One batch. What is not named is a function of its address.
struct Item {
  int64_t step = 0;
  int64_t microbatch = 0;
  bool last = true;
  std::string stream = kTrain;
  int64_t bytes = 40;
  std::optional<int64_t> pass, epoch;  // of the last Position
  std::optional<uint64_t> digest;      // that it lands with
  bool send_digest = true;
  std::optional<StepTotals> totals;
  std::optional<std::string> state;
  std::optional<int64_t> num_label_tokens = 7, num_tokens_excl_tail_pad = 9;
  std::optional<int64_t> row_need;
};

class ScriptedLoader {
 public:
  ScriptedLoader(DeliveryWorld& world, LoaderHello says) : hello(std::move(says)), world_(world) {}

  LoaderHello hello;  // what Hello() says

  absl::Status Hello();  // on a new call
  void Start();          // which must succeed
  void Disconnect() { world_.Disconnect(peer); }

  // nullopt: it was dropped without a word.
  std::optional<absl::Status> Push(const Item& item);
  // All steps from `step` on that the loader owns, below `end`, which must succeed.
  void PushSteps(int64_t step, int64_t end, const std::string& stream = kTrain);
  // The two halves of Push. 0: its bytes are dropped.
  uint64_t Begin(const Item& item);
  void Finish(uint64_t push, const Item& item);
  void Break(uint64_t push, absl::Status why);
  absl::Status End(int64_t end_step, const std::string& stream = kTrain);

  Mailbox& box() const { return world_.BoxOf(peer); }
  // Of the last Position of the data stream. Precondition: there is one.
  const Position& position(const std::string& stream = kTrain) const;
  std::vector<int64_t> credits(const std::string& stream = kTrain) const;  // steps, in order
  // `before` of the last Released, or `released` of a later Position.
  std::optional<absl::Status> last_ack() const;

  PeerId peer = 0;

 private:
  PushHead HeadOf(const Item& item) const;
  DeliveryWorld& world_;
};

// The digest that an item lands with if the test names none.
uint64_t DigestOf(const Item& item);

// A group g of readers and loaders over data streams, at step 0.
struct ScriptedGroup {
  ScriptedGroup(DeliveryWorld& world, int64_t cp_size, int64_t num_loaders,
                const std::vector<std::string>& streams = {kTrain}, const std::string& group = "g");
  void Start();
  // Every loader its own steps of [step, end).
  void PushSteps(int64_t step, int64_t end, const std::string& stream = kTrain);
  // Every reader asks for the steps, gets them, and commits them.
  void Consume(int64_t step, int64_t end, const std::string& stream = kTrain);
  GroupView View() const;

  DeliveryWorld& world;
  const std::string group;
  std::deque<ScriptedReader> readers;
  std::deque<ScriptedLoader> loaders;
};

// A status of this code whose details name this reason.
testing::Matcher<absl::Status> Refused(absl::StatusCode code, const std::string& reason);
testing::Matcher<absl::Status> IsOkStatus();

}  // namespace cpshard
