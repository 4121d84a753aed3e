// One schedule: a server (the real state machine), readers and loaders (the real ledgers),
// trainers, sources and launchers (models), on a network that delays and breaks and a clock that is
// only counted. Nothing here judges; what happened stands in the history.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/session/loader_ledger.h"
#include "client/session/reader_ledger.h"
#include "server/session/delivery.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/history.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scenario.h"

namespace cpshard::simulation {

struct CloseMessage {
  SessionName session;
};
// One step once more, beside the connection.
struct GetMessage {
  SessionName session;
  Want want;
};
struct PushMessage {
  LoaderLedger::Push push;
};
using ToServer = std::variant<OpenSession, SessionName, Want, Commit, PassClosed, CloseMessage,
                              GetMessage, LoaderHello, PushMessage, EndOfStream>;
// `Broken`: the connection is gone.
struct Broken {};
using ShardHead = DeliveryHead;
using ToClient =
    std::variant<absl::StatusOr<OpenedSession>, ShardHead, RequestStatus, Position, LoaderCredit,
                 PushAck, Released, PassDone, DrainNotice, EndCall, Broken>;
using Server = cpshard::Delivery;

// A call: messages keep their order each way. The first one finds the server.
struct Call {
  int process = 0;
  int instance = 0;  // that it has reached; 0: none yet
  bool client_alive = true, server_alive = true;
  bool refused = false;  // the server has ended it with an error; it reads no more of it
  bool opens = false;    // it is an OpenSession: no peer
  int64_t latency_us = 0, write_us = 0;
  int64_t last_up_us = 0, last_down_us = 0, last_sent_us = 0;
  std::deque<ToServer> up;
  std::deque<ToClient> down;
  struct Pinned {  // held by the server until it is sent
    std::shared_ptr<const Payload> payload;
    StepAddress at;
    int64_t microbatch = 0;
  };
  std::deque<Pinned> pinned;
  int unsent = 0;  // those that a frozen client has not taken
};

// What the server reads of a batch between BeginPush and EndPush.
struct Landing {
  uint64_t push = 0;
  size_t call = 0;
  PushHead head;
  uint64_t content = 0;
  int64_t bytes = 0;
  int instance = 0;
  bool damaged = false, over = false;
};

struct Snapshot {
  size_t item = 0;
  std::vector<ReaderStream> streams;
};

struct ReaderModel {
  int process = 0;
  int set = 0;
  std::unique_ptr<ReaderLedger> ledger;
  bool alive = true, frozen = false, slow = false;
  int64_t frozen_until_us = 0;
  size_t open_call = 0, pull_call = 0, close_call = 0, get_call = 0;  // 0: none
  // trainer
  size_t item = 0;
  bool training = false;  // on what Next returned
  bool closing = false, closed = false;
  std::vector<Snapshot> shadows;
  std::vector<std::pair<size_t, ToClient>> inbox;  // while frozen
};

struct LoaderModel {
  int process = 0;
  std::unique_ptr<LoaderLedger> ledger;
  bool alive = true, frozen = false, slow = false;
  int64_t frozen_until_us = 0;
  size_t push_call = 0;
  size_t last_call = 0;  // the one by which it has to learn of the end
  bool busy = false, repeats = false, damages = false;
  std::vector<int> streams;  // of the job
  struct Source {
    int64_t pass = 0, next = 0;    // where it stands
    int64_t positioned_pass = -1;  // that it has been told a first step of
  };
  std::map<std::string, Source> sources;
  LoaderLedger::Work work;
  std::optional<PushMessage> last_push;
  std::vector<std::pair<size_t, ToClient>> inbox;
};

// Readers that one launcher started together.
struct ReaderSet {
  int group = 0;
  int64_t generation = 0;
  std::string attempt;
  int64_t cp_size = 1, readers_per_rank = 1;
  std::map<std::string, int64_t> resume;
  std::vector<int> readers;  // the latest process of each seat
  bool dead = false, any_closed = false;
};

struct GroupModel {
  int64_t generation = 0;
  int64_t incarnation = 0;  // of readers
  std::vector<int> sets;
  std::map<size_t, std::vector<ReaderStream>> checkpoints;  // complete: by item
  std::map<std::pair<int, size_t>, int64_t> savings;        // (set, item) -> readers
  bool finished = false;
};

struct Outcome {
  History history;
  Coverage coverage;
  int64_t operations = 0;
};

class World {
 public:
  explicit World(const Scenario& scenario);
  ~World();

  // To the end of the schedule, or until nothing helps.
  Outcome Run();

 private:
  enum class What {
    kUp,         // a: call
    kDown,       // a: call
    kCutServer,  // a: call; the server notices
    kCutClient,  // a: call
    kSent,       // a: call
    kStalled,    // a: call; cut off if it still takes nothing
    kLanded,     // a: landing
    kTick,
    kServerStart,
    kServerStop,   // a: instance
    kFault,        // a: fault
    kFreeze,       // a: process, b: for so long
    kWake,         // a: process
    kRestart,      // a: group, from its last checkpoint
    kPoll,         // a: process
    kConnect,      // a: process
    kTrained,      // a: process
    kMade,         // a: process
    kReaderSpawn,  // a: set, b: seat
    kLoaderSpawn,  // a: group, b: seat
    kLaunch,       // a: group
    kKillSet,      // a: set
    kNormal,       // a: process; slow, repeating and damaging are over
  };
  struct Happening {
    int64_t at_us = 0;
    uint64_t order = 0;
    What what = What::kTick;
    int64_t a = 0, b = 0;
    bool operator>(const Happening& other) const {
      return std::tie(at_us, order) > std::tie(other.at_us, other.order);
    }
  };

  void At(int64_t in_us, What what, int64_t a = 0, int64_t b = 0);
  void Handle(const Happening& happening);
  absl::Time Now() const { return absl::UnixEpoch() + absl::Microseconds(now_us_); }
  Record& Note(Kind kind, int process = -1);
  Record& NoteAt(Kind kind, int process, const StepAddress& at);
  bool Finished() const;
  std::string WhoWaits() const;

  // network.cc
  size_t Dial(int process);
  void Send(size_t call, ToServer message);
  void Answer(size_t call, ToClient message, int64_t not_before_us = 0);
  void ArriveUp(size_t call);
  void ArriveDown(size_t call);
  void HangUp(size_t call);  // the client's side is gone
  void ToProcess(size_t call, ToClient message);
  void CutServer(size_t call);
  void CutClient(size_t call);

  // server.cc
  void StartServer();
  void StopServer();
  void Serve(size_t call, ToServer message);
  void ServePush(size_t call, const PushMessage& message);
  void ServeOpen(size_t call, const OpenSession& open);
  void Land(Landing& landing, bool cut);
  void AfterCall();
  void Say(Output output);
  void SayDelivery(size_t call, DeliverShard shard);
  void SayToLoader(size_t call, const Output& output);
  void TellLoadersOfEnd(int group);
  void EndFromServer(size_t call, absl::Status status);
  void OnSent(size_t call);
  void LookAtViews();

  // readers.cc
  void SpawnReader(int set, size_t seat, const Snapshot& from);
  void RespawnReader(int set, size_t seat);
  void ConnectReader(ReaderModel& reader);
  void ToReader(ReaderModel& reader, size_t call, ToClient message);
  void PollReader(ReaderModel& reader);
  void Train(ReaderModel& reader);
  void AfterTraining(ReaderModel& reader);
  void TakeShadow(ReaderModel& reader, size_t item);
  void SaveCheckpoint(ReaderModel& reader);
  void OnOpened(ReaderModel& reader, const absl::StatusOr<OpenedSession>& opened);
  void OnClosed(ReaderModel& reader, const absl::Status& status);
  void AskServer(ReaderModel& reader);
  void AskOnceMore(ReaderModel& reader, const StepAddress& at);
  SessionName SessionOf(const ReaderModel& reader) const;
  Snapshot RestartPoint(const ReaderModel& reader, int64_t value);
  void LostPull(ReaderModel& reader);
  void FailReader(ReaderModel& reader, const absl::Status& status);
  void EndReader(ReaderModel& reader);  // the process is gone
  void ReaderClosed(ReaderModel& reader);

  // loaders.cc
  void SpawnLoader(int group, size_t seat);
  void ConnectLoader(LoaderModel& loader);
  void ToLoader(LoaderModel& loader, size_t call, ToClient message);
  void PollLoader(LoaderModel& loader);
  void MakeStep(LoaderModel& loader);
  void OnMade(LoaderModel& loader);
  void LostPush(LoaderModel& loader);
  void EndLoader(LoaderModel& loader);
  void RespawnLoader(int process, int64_t in_us);

  // launcher.cc
  void Launch(int group, size_t item, int64_t cp_size, std::string attempt, int64_t generation);
  void LaunchAgain(int group);
  void Kill(int set);
  void Apply(const Fault& fault);
  void ApplyToReader(const Fault& fault);
  void ApplyToLoader(const Fault& fault);
  void RestartGroup(const Fault& fault);
  void RestartLatest(int group);
  void Freeze(int process, int64_t duration_us);
  void Wake(int process);
  ReaderModel* PickReader(int group, uint64_t who);
  LoaderModel* PickLoader(int group, uint64_t who);

  const Job& JobOf(int process) const { return history_.jobs[history_.processes[process].group]; }
  const GroupScenario& GroupOf(int process) const {
    return scenario_.groups[history_.processes[process].group];
  }
  ReaderModel* ReaderAt(int process);
  LoaderModel* LoaderAt(int process);
  int64_t Latency(const Call& call) { return call.latency_us / 2 + random_.Below(call.latency_us); }

  const Scenario scenario_;
  Random random_;
  History history_;
  Coverage coverage_;
  int64_t now_us_ = 0;
  uint64_t order_ = 0;
  int64_t operations_ = 0;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;

  int64_t live_bytes_ = 0;          // outlives the server
  std::unique_ptr<Server> server_;  // null: it is down
  int instance_ = 0;
  int64_t tick_at_us_ = -1;  // of the one in the queue
  bool gap_made_ = false, ended_group_ = false;

  std::deque<Call> calls_;  // by PeerId; the first stands for none
  std::deque<Landing> landings_;
  std::deque<ReaderModel> readers_;
  std::deque<LoaderModel> loaders_;
  std::vector<int> model_of_;  // by process: of readers_ or loaders_
  std::deque<ReaderSet> sets_;
  std::vector<GroupModel> groups_;
  struct LoaderSeatModel {
    int64_t loader = 0;
    std::vector<int> streams;
    int64_t incarnation = 0;
    int process = -1;  // the latest
  };
  std::vector<std::vector<LoaderSeatModel>> seats_;  // by group

  // What was seen of the server, for the coverage.
  struct StreamSeen {
    int64_t epoch = 0;
    std::optional<int64_t> floor;
    int64_t pass = 0;
    std::map<int64_t, bool> whole;  // step -> its last microbatch has landed
  };
  std::map<std::pair<int, int>, StreamSeen> streams_seen_;  // (group, stream)
  std::map<int, int64_t> generation_seen_;                  // group -> opened on this instance
  int64_t seeks_seen_ = 0, duplicates_seen_ = 0;
};

}  // namespace cpshard::simulation
