// One CP group: its generation, its readers, and where they stand in its data streams.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/data_stream.h"
#include "server/session/job.h"
#include "server/session/outbox.h"

namespace cpshard {

// Where a reader stands in one data stream.
struct Standing {
  int64_t pass = 0;
  bool open = false, finished = false;
  int64_t next_step = 0;  // the first step not committed
  int64_t opened_at = 0;  // ... as it said when it opened
  int64_t received = -1;  // likewise
  int64_t delivered = -1;
  std::optional<ResumeState> resume;  // of opened_at - 1, until there is a position
  // Of the step that was delivered in part last.
  struct Begun {
    int64_t step = -1, epoch = 0;
    int64_t next = 0;  // microbatch
  } begun;
};

struct Reader {
  std::string name;
  int64_t cp_rank = 0;
  int64_t incarnation = 0;
  bool closed = false;  // its session, for good
  PeerId peer = 0;      // its connection
  absl::Time away_since;
  bool left = false;  // away for too long
  int64_t wants = 0;
  std::map<std::string, Standing> standings;  // by data stream
  StallTime stall;                            // of its process, as its commits said ...
  int64_t elapsed_us = 0;                     // ... in so much time
};

// A call that carries a reader's requests.
struct ReaderCall {
  PeerId peer = 0;
  std::string reader;
  int64_t cp_rank = 0;
  std::shared_ptr<const SessionTerms> terms;  // of its generation
  bool lasting = false;
  int64_t incarnation = 0;
};

// A request that waits for its step.
struct Waiter {
  ReaderCall call;
  Want want;
  int64_t next = 0;      // microbatch
  bool counted = false;  // in its reader's wants
  absl::Time deadline = absl::InfiniteFuture();
};

// What holds a step for a call until its bytes are out.
struct Delivered {
  PeerId peer = 0;
  int64_t microbatch = 0;
  StepPtr step;
  std::string stream;
};

class Group {
 public:
  Group(std::string name, const DeliveryOptions& options, Budget& budget, Outbox& outbox,
        Jobs& jobs);
  ~Group();

  const std::string& name() const { return name_; }
  // By readers: a group that is declared alone has terms, of generation 0.
  bool opened() const { return terms_ != nullptr && terms_->generation > 0; }
  bool declared() const { return declared_.has_value(); }
  // Somebody of its present generation is connected to read.
  bool HasReaders() const;
  // There is a complete step that this one has not been sent.
  bool HasMore(const std::string& reader) const;
  bool ended() const { return ended_; }
  // Nobody is there, and nobody waits to close.
  bool abandoned() const { return abandoned_ && closing_.empty(); }
  const std::shared_ptr<const SessionTerms>& terms() const { return terms_; }
  bool draining = false;

  // As the configuration has it. Precondition: nothing has happened yet; its guarantees fit.
  void Declare(const DeclaredGroup& declared);

  // --- readers (group_open.cc, group_readers.cc)

  absl::StatusOr<OpenedSession> Open(const OpenSession& open, absl::Time now);
  absl::StatusOr<ReaderCall> Attach(PeerId peer, const SessionName& session, bool lasting);
  // A call of a reader that has no connection: it is there.
  void Seen(const ReaderCall& call, absl::Time now);
  void OnWant(const ReaderCall& call, const Want& want, absl::Time now);
  absl::Status OnCommit(const ReaderCall& call, const Commit& commit);
  absl::Status OnPassClosed(const ReaderCall& call, const PassClosed& closed);
  void OnClose(PeerId peer, const SessionName& session);
  void ReaderGone(const ReaderCall& call, absl::Time now);
  // A CloseSession call that nobody waits for any more.
  void ForgetCall(PeerId peer) { closing_.erase(peer); }

  // --- loaders (group_loaders.cc)

  absl::Status Hello(PeerId peer, const LoaderHello& hello, absl::Time now);
  std::optional<PushTicket> BeginPush(PeerId peer, int64_t loader, const PushHead& head,
                                      int64_t bytes, uint64_t push, absl::Time now);
  void EndPush(const PushTicket& ticket, absl::StatusOr<LandedBatch> landed);
  absl::Status DeclareEnd(PeerId peer, int64_t loader, const EndOfStream& end);
  void LoaderGone(int64_t loader, PeerId peer, absl::Time now);

  // --- time and room

  void Tick(absl::Time now);
  absl::Time next_tick() const { return next_tick_; }
  // Gives credits that are guaranteed; then `one_more`, of the shared room. True: one was given.
  void GrantGuaranteed();
  bool GrantShared();
  bool WantsGrant() const;
  // A guaranteed credit is wanted, and was not to be had.
  bool LacksGuaranteed() const;
  // Takes back credits of shared room that nothing has come for. False: there are none.
  bool TakeBackShared();
  // Serves what waits: other groups of the job have moved.
  void ServeAll();
  bool WaitsForJob() const { return terms_ != nullptr && !ended_ && terms_->job_groups > 1; }

  // What was delivered since the last call, for who keeps it until it is sent.
  std::vector<Delivered> TakeDelivered() { return std::move(delivered_); }

  GroupView View(absl::Time now) const;

 private:
  struct Named {
    std::unique_ptr<DataStream> stream;
    bool in_terms = false;  // of this generation
    int64_t max_step_bytes = 0;
    bool over = false;                       // all readers have finished
    std::optional<StepAddress> last_end;     // of the pass whose end was agreed last
    bool sought = false;                     // the window is of this pass, and can be kept
    bool prefetched = false;                 // ... from step 0 on, before readers have come
    int64_t announced = 0;                   // steps before it are known to the job
    std::optional<int64_t> settled;          // the last generation that its pass was settled in
    std::multimap<int64_t, Waiter> waiters;  // by step
  };

  // group_open.cc
  absl::Status CheckOpen(const OpenSession& open) const;
  absl::Status CheckDeclared(const OpenSession& open) const;
  absl::Status CheckTerms(const OpenSession& open) const;
  absl::Status CheckSeat(const OpenSession& open) const;
  absl::Status CheckStandings(const OpenSession& open) const;
  absl::Status CheckRoom(const OpenSession& open) const;
  void BeginGeneration(const OpenSession& open);
  void Fence(int64_t generation);
  void Seat(const OpenSession& open, absl::Time now);

  // group_loaders.cc
  void LearnGeneration(absl::Time now);
  void PruneStreams();
  void Prefetch();
  void DropZombies(const Named& named, const LoaderStream& told);

  // group_position.cc
  bool AllSeated() const;
  void Settle();  // positions, passes and floors follow from the standings
  void SettleStream(Named& named);
  void SettlePass(Named& named);
  void SetPosition(Named& named);
  std::optional<ResumeState> StateBefore(const Named& named, int64_t step) const;
  void SettleFloor(Named& named);
  bool IsIn(const Reader& reader, const Named& named) const;
  static bool AtEnd(const Named& named, const StepAddress& next);
  void Fail(const absl::Status& status);
  void EndGroup();
  bool AllLeft() const;  // or have closed
  bool OnlyClosersAreHere() const;
  bool AllSeatedHaveClosed() const;
  void EndWithoutTheRest();
  void Abandon(absl::Time now);
  void GiveRoom(Named& named);  // to others, but for what is declared
  void Resume();
  void LeaveJob();
  void LeaveJobAt(const StepAddress& end);

  // group_readers.cc
  int64_t CurrentGeneration() const;
  int64_t RunningGeneration() const;  // 0: nobody has opened, or all have closed
  absl::Status CheckProcess(const ReaderCall& call) const;

  // group_deliver.cc
  void Serve(Named& named);                        // those whose step can be there
  void RefuseSome(Named& named);                   // those that will not be served, whatever lands
  bool ServeWaiter(Named& named, Waiter& waiter);  // true: it is answered
  bool MayDeliver(const Named& named, const Step& step) const;
  std::optional<absl::Status> Refusal(const Named& named, const Waiter& waiter) const;
  void Deliver(Named& named, Waiter& waiter, Step& step, int64_t microbatch);
  void Answer(Waiter& waiter, absl::Status status);
  void Uncount(Waiter& waiter);
  void DropWaiters(PeerId peer);
  void AnswerAll(const std::string& reader, const absl::Status& status);

  // group_loaders.cc
  void Announce(Named& named);

  // group_view.cc
  std::string WaitingFor(const Named& named, int64_t step, absl::Time now) const;

  Named* Find(const std::string& stream);
  Reader* FindReader(const std::string& reader);
  Named& Make(const std::string& stream);

  const std::string name_;
  const DeliveryOptions& options_;
  Budget& budget_;
  Outbox& outbox_;
  Jobs& jobs_;

  std::map<std::string, Named> streams_;
  std::shared_ptr<const SessionTerms> terms_;
  std::map<std::string, int64_t> resume_;  // as the generation's first opener said
  std::map<std::string, Reader> readers_;
  std::map<PeerId, std::string> closing_;  // CloseSession calls that wait
  absl::Status failure_;
  bool ended_ = false;
  bool abandoned_ = false;                 // its readers have left, and their room is given away
  int64_t generation_seen_ = 0;            // the highest that a loader has been told of
  std::optional<DeclaredGroup> declared_;  // in the configuration
  std::map<PeerId, std::string> calls_;    // GetShard calls, by whose reader
  absl::Time seated_at_ = absl::InfinitePast();  // the last reader that opened
  absl::Time next_tick_ = absl::InfiniteFuture();
  std::vector<Delivered> delivered_;
};

}  // namespace cpshard
