// Delivery: which batch may come in, where it is kept, who gets it when, and what everybody is
// told. One state machine for all groups of a server. It knows neither gRPC nor threads nor clocks:
// calls and time are handed in, what is to be said is taken out. The rules are those of
// docs/GUARANTEES.md.
//
//   loader   Hello -> Position, credits     BeginPush .. EndPush -> PushAck     End     -> Released
//   reader   Open -> Attach                 Want -> DeliverShard .. Sent        Commit, ClosePass
//
// Of a data stream the steps [floor, floor + replay_steps + ahead_steps) can be in memory:
//
//   released | kept for a replay | being consumed | ready, in order | landing, granted | not
//   granted
//          floor               min(next_step)                   frontier
//
// No memory is touched here: what lands is a Payload, counted by the bytes that its owner names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/config.h"
#include "proto/session_messages.h"
#include "proto/session_views.h"
#include "server/session/rules.h"

namespace cpshard {

struct DeliveryOptions {
  std::string instance;                     // new at every start of a server
  int64_t budget_bytes = int64_t{4} << 30;  // of all groups; never exceeded
  int64_t replay_steps = 1;                 // committed steps that stay, at least 1
  int64_t ahead_steps = 8;                  // beyond them; at least a reader's prefetch + 1
  int64_t max_groups = 64;                  // and as many that only loaders have named
  int64_t max_streams = 16;                 // data streams of a group
  int64_t max_ranks = 4096;                 // readers of a group
  int64_t max_loaders = 256;                // of a data stream
  int64_t max_microbatches = 1024;          // of a step
  int64_t max_wants = kMaxWants;            // of a reader, unanswered
  absl::Duration rank_timeout = absl::Seconds(120);  // a reader without a connection has left then
  DeliveryRules rules;
  // Known from the start: their loaders' pushes are taken before anybody has opened them. All that
  // they are guaranteed fits the budget; max_step_bytes is memory.
  std::vector<DeclaredGroup> groups;
  // What max_step_bytes of so much memory is called in texts and views.
  int64_t (*told_bytes)(int64_t memory) = [](int64_t memory) { return memory; };
};

// A call of a peer on this server: chosen by the caller, never 0, never used again.
using PeerId = uint64_t;

// What a batch is to those who push and send it. A payload that is not needed any more is let go
// inside the next call.
class Payload {
 public:
  virtual ~Payload() = default;
};

// A batch that has landed.
struct LandedBatch {
  std::shared_ptr<const Payload> payload;
  int64_t bytes = 0;    // of memory that goes with the payload
  uint64_t digest = 0;  // computed
  std::optional<int64_t> num_label_tokens, num_tokens_excl_tail_pad;
  std::optional<int64_t> row_need;  // ShardPlan::row_need
};

// What the readers of a generation agreed on.
struct SessionTerms {
  std::string group;
  int64_t generation = 0;  // 0: nobody has opened yet, this is what the configuration declares
  std::string attempt;
  int64_t cp_size = 1;
  int64_t readers_per_rank = 1;
  std::string options, fingerprint, job;
  int64_t job_groups = 1;
  ExecutorKind executor = ExecutorKind::kAuto;
};

// --- what is to be said
// ---------------------------------------------------------------------------

struct DeliverShard {
  DeliveryHead head;
  std::shared_ptr<const Payload> payload;
  std::shared_ptr<const SessionTerms> terms;
  int64_t cp_rank = 0;
  std::vector<std::string> keys;  // of the Want
  std::optional<int64_t>
      min_padded_len;  // the largest row_need of the job's groups, where asked for
};

// A Want that is not answered with shards. Once it is out the Want is gone.
struct RequestStatus {
  uint64_t id = 0;
  absl::Status status;  // with ErrorDetails
};

struct PushAck {
  StepAddress at;
  int64_t epoch = 0;
  int64_t microbatch = 0;
  absl::Status status;  // OK: it is here, and stays until it is released
};

struct DrainNotice {};

// The call is to be ended with this status; for CloseSession, answered with it.
struct EndCall {
  absl::Status status;
};

struct Output {
  PeerId to = 0;
  std::variant<DeliverShard, RequestStatus, Position, LoaderCredit, PushAck, Released, PassDone,
               DrainNotice, EndCall>
      what;
};

// For the log: somebody has to look at it.
struct Alert {
  std::string code, group, text;
  bool is_notice = false;  // ... or may: everything goes on
};

// What is to be done with a batch that a loader begins to push.
struct PushVerdict {
  // 0: nothing, its bytes are to be dropped; the loader is told by an output, if at all.
  uint64_t push = 0;
  std::shared_ptr<const SessionTerms> terms;  // to plan with
};

struct DeliveryCounters {
  int64_t sessions = 0, loaders = 0, used_bytes = 0, most_used_bytes = 0;  // now
  int64_t pushed = 0, delivered = 0, duplicates = 0, refused = 0;  // batches, since the start
  int64_t digest_conflicts = 0, digest_changes = 0, seeks = 0, generations = 0;
};

// Not thread-safe. Every call may add outputs; order among those of one peer is the order to send
// them in. Errors carry ErrorDetails; codes are those of docs/GUARANTEES.md.
class Delivery {
 public:
  explicit Delivery(DeliveryOptions options);
  ~Delivery();

  // --- readers

  // Nothing changes on an error.
  // InvalidArgument: a name, number or shape that cannot be. ResourceExhausted: too many groups or
  // streams; the room that its data streams are guaranteed is not there. Aborted: a lower
  // generation or incarnation, or a reader that is behind what was released. FailedPrecondition:
  // other terms than the generation's; a generation that has failed. Unavailable: draining.
  absl::StatusOr<OpenedSession> Open(const OpenSession& open, absl::Time now);

  // A call that carries requests of an open session. `lasting`: it is the reader's connection,
  // which replaces the one before; its end is what a lease dies with. NotFound, Aborted.
  absl::Status Attach(PeerId peer, const SessionName& session, bool lasting, absl::Time now);

  void Want(PeerId peer, const cpshard::Want& want, absl::Time now);
  // FailedPrecondition: ahead of what was delivered; to end the call with. A stale one is ignored.
  absl::Status Commit(PeerId peer, const cpshard::Commit& commit, absl::Time now);
  absl::Status ClosePass(PeerId peer, const PassClosed& closed, absl::Time now);
  // The bytes of one delivery are not needed any more.
  void Sent(PeerId peer, const StepAddress& at, int64_t microbatch, absl::Time now);

  // Answered with EndCall (OK) to `peer` once all readers of the generation have closed; an error
  // is answered at once.
  void Close(PeerId peer, const SessionName& session, absl::Time now);

  // --- loaders

  // FailedPrecondition: another number of loaders; Aborted: a lower incarnation; InvalidArgument,
  // ResourceExhausted. A group that nobody has opened is waited for.
  absl::Status Hello(PeerId peer, const LoaderHello& hello, absl::Time now);

  // The head of a batch of `bytes` has come. Unless the verdict says to drop it, one EndPush
  // follows.
  PushVerdict BeginPush(PeerId peer, const PushHead& head, int64_t bytes, absl::Time now);
  // It has landed, or cannot: then with why. A push whose peer is gone may be ended too.
  void EndPush(uint64_t push, absl::StatusOr<LandedBatch> landed, absl::Time now);

  // FailedPrecondition: another end than declared before, or steps beyond it are here.
  absl::Status End(PeerId peer, const EndOfStream& end, absl::Time now);

  // --- all

  // The call has ended, and nothing of it holds bytes of a payload.
  void Disconnect(PeerId peer, absl::Time now);

  // No new sessions and credits; complete steps are still delivered.
  void Drain(absl::Time now);

  // Whether there is a complete step that the reader of this call has not been sent.
  bool HasMore(PeerId peer) const;

  // What time alone brings: deadlines of Wants, readers that have left.
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  std::vector<Output> TakeOutputs();
  std::vector<Alert> TakeAlerts();

  // NotFound.
  absl::StatusOr<GroupView> View(const std::string& group, absl::Time now) const;
  std::vector<GroupView> Views(absl::Time now) const;
  DeliveryCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
