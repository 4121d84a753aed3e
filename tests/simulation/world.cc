#include "tests/simulation/world.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard::simulation {
namespace {

constexpr int64_t kPatienceUs = 3'000'000;  // after the last fault
constexpr int64_t kMostOperations = 60'000;

}  // namespace

World::World(const Scenario& scenario) : scenario_(scenario), random_(Hash({scenario.seed, 5})) {
  history_.budget_bytes = scenario_.server.budget_bytes;
  history_.replay_steps = scenario_.server.replay_steps;
  calls_.emplace_back();
  for (const GroupScenario& group : scenario_.groups) {
    history_.jobs.push_back(group.job);
    history_.same_content = history_.same_content && group.same_content;
    groups_.emplace_back();
    auto& seats = seats_.emplace_back();
    const auto& streams = group.job.streams;
    for (size_t s = 0; s < streams.size(); ++s) {
      if (group.shared_loaders && s > 0) {
        for (auto& seat : seats) seat.streams.push_back(static_cast<int>(s));
        continue;
      }
      for (int64_t i = 0; i < streams[s].num_loaders; ++i) {
        seats.push_back({.loader = i, .streams = {static_cast<int>(s)}});
      }
    }
  }
}

World::~World() { StopServer(); }

Outcome World::Run() {
  StartServer();
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!scenario_.groups[g].rewinds) coverage_.Saw(Event::kNoRewind);
    for (size_t seat = 0; seat < seats_[g].size(); ++seat) {
      At(random_.Below(3000), What::kLoaderSpawn, g, seat);
    }
    Launch(static_cast<int>(g), 0, scenario_.groups[g].cp_size, "first", 1);
  }
  if (groups_.size() > 1) coverage_.Saw(Event::kTwoGroups);
  if (!history_.jobs[0].name.empty()) coverage_.Saw(Event::kOneJob);
  for (size_t f = 0; f < scenario_.faults.size(); ++f) {
    if (!scenario_.faults[f].dropped) At(scenario_.faults[f].at_us, What::kFault, f);
  }
  const int64_t deadline_us = scenario_.quiet_from_us + kPatienceUs;
  bool finished = false;
  while (!queue_.empty() && operations_ < kMostOperations) {
    const Happening happening = queue_.top();
    if (happening.at_us > deadline_us) break;
    queue_.pop();
    now_us_ = happening.at_us;
    Handle(happening);
    finished = Finished();
    if (finished) break;
  }
  if (finished) {
    Note(Kind::kFinished);
  } else {
    Note(Kind::kStuck).text = WhoWaits();
  }
  StopServer();
  return {std::move(history_), coverage_, operations_};
}

void World::At(int64_t in_us, What what, int64_t a, int64_t b) {
  queue_.push({now_us_ + in_us, order_++, what, a, b});
}

Record& World::Note(Kind kind, int process) {
  Record& record = history_.records.emplace_back();
  record.kind = kind;
  record.at_us = now_us_;
  record.instance = instance_;
  record.process = process;
  return record;
}

Record& World::NoteAt(Kind kind, int process, const StepAddress& at) {
  Record& record = Note(kind, process);
  record.stream = StreamOf(JobOf(process), at.stream);
  record.pass = at.pass;
  record.step = at.step;
  return record;
}

void World::Handle(const Happening& happening) {
  const int64_t a = happening.a;
  switch (happening.what) {
    case What::kUp:
      return ArriveUp(a);
    case What::kDown:
      return ArriveDown(a);
    case What::kCutServer:
      return CutServer(a);
    case What::kCutClient:
      return CutClient(a);
    case What::kSent:
      return OnSent(a);
    case What::kStalled:
      if (calls_[a].unsent > 0) CutServer(a);
      return;
    case What::kLanded:
      return Land(landings_[a], false);
    case What::kTick:
      tick_at_us_ = -1;
      if (server_ == nullptr) return;
      ++operations_;
      server_->Tick(Now());
      return AfterCall();
    case What::kServerStart:
      if (server_ == nullptr) StartServer();
      return;
    case What::kServerStop:
      if (instance_ == a && server_ != nullptr) StopServer();
      return;
    case What::kFault:
      return Apply(scenario_.faults[a]);
    case What::kRestart:
      return RestartLatest(static_cast<int>(a));
    case What::kWake:
      return Wake(static_cast<int>(a));
    case What::kReaderSpawn:
      return RespawnReader(static_cast<int>(a), happening.b);
    case What::kLoaderSpawn:
      return SpawnLoader(static_cast<int>(a), happening.b);
    case What::kLaunch:
      return LaunchAgain(static_cast<int>(a));
    case What::kKillSet:
      return Kill(static_cast<int>(a));
    default:
      break;
  }
  // The rest happens to one process; what happens to a frozen one waits.
  ReaderModel* reader = ReaderAt(static_cast<int>(a));
  LoaderModel* loader = LoaderAt(static_cast<int>(a));
  const bool alive = reader != nullptr ? reader->alive : loader->alive;
  const bool frozen = reader != nullptr ? reader->frozen : loader->frozen;
  if (!alive) return;
  if (frozen) {
    const int64_t until_us = reader != nullptr ? reader->frozen_until_us : loader->frozen_until_us;
    return At(std::max<int64_t>(until_us - now_us_, 0) + 1, happening.what, a);
  }
  switch (happening.what) {
    case What::kPoll:
      if (reader != nullptr) {
        reader->ledger->AskAgain();
        return PollReader(*reader);
      }
      loader->ledger->PushAgain();
      return PollLoader(*loader);
    case What::kConnect:
      return reader != nullptr ? ConnectReader(*reader) : ConnectLoader(*loader);
    case What::kTrained:
      reader->training = false;
      AfterTraining(*reader);
      return PollReader(*reader);
    case What::kMade:
      return OnMade(*loader);
    case What::kFreeze:
      return Freeze(static_cast<int>(a), happening.b);
    case What::kNormal:
      if (reader != nullptr) {
        reader->slow = false;
      } else {
        loader->slow = loader->repeats = loader->damages = false;
      }
      return;
    default:
      return;
  }
}

ReaderModel* World::ReaderAt(int process) {
  return history_.processes[process].reader ? &readers_[model_of_[process]] : nullptr;
}

LoaderModel* World::LoaderAt(int process) {
  return history_.processes[process].reader ? nullptr : &loaders_[model_of_[process]];
}

bool World::Finished() const {
  for (const GroupModel& group : groups_) {
    if (!group.finished) return false;
  }
  // A loader learns of the end by the connection that it had then, or not at all.
  for (const LoaderModel& loader : loaders_) {
    if (!loader.alive || loader.last_call == 0 || loader.push_call != loader.last_call) continue;
    const Call& call = calls_[loader.last_call];
    if (call.client_alive && call.server_alive && call.instance == instance_ &&
        server_ != nullptr) {
      return false;
    }
  }
  return true;
}

std::string World::WhoWaits() const {
  std::string text = absl::StrCat("operations ", operations_, ", ",
                                  queue_.empty() ? "nothing is left to happen" : "");
  for (const ReaderModel& reader : readers_) {
    if (!reader.alive) continue;
    const Process& process = history_.processes[reader.process];
    absl::StrAppend(&text, "\n    reader ", process.name, " of generation ", process.generation,
                    " at item ", reader.item, " of ", JobOf(reader.process).items.size(),
                    reader.frozen ? ", frozen" : "", reader.training ? ", training" : "",
                    reader.closing ? ", closing" : "",
                    reader.pull_call == 0 ? ", not connected" : "");
  }
  for (const LoaderModel& loader : loaders_) {
    if (!loader.alive) continue;
    absl::StrAppend(&text, "\n    loader ", history_.processes[loader.process].loader, " of group ",
                    history_.processes[loader.process].group, ", holds ",
                    loader.ledger->held_bytes(), " bytes", loader.busy ? ", making" : "",
                    loader.push_call == 0 ? ", not connected" : "",
                    loader.ledger->finished() ? ", finished" : "");
    if (const auto work = loader.ledger->NextWork()) {
      absl::StrAppend(&text, ", to make ", work->stream, "/", work->pass, "/", work->step);
    }
  }
  if (server_ == nullptr) return absl::StrCat(text, "\n    the server is down");
  for (const GroupView& group : server_->Views(Now())) {
    absl::StrAppend(&text, "\n    group ", group.group, " generation ", group.generation, " ",
                    group.failure);
    for (const ReaderView& reader : group.readers) {
      absl::StrAppend(&text, "\n      ", reader.reader, reader.connected ? " connected" : " away",
                      reader.closed ? " closed" : "", ", wants ", reader.wants);
      for (const ReaderStreamView& stream : reader.streams) {
        absl::StrAppend(&text, "; ", stream.stream, "/", stream.pass, stream.open ? " open" : "",
                        " next ", stream.next_step, " delivered ", stream.delivered);
      }
    }
    for (const DataStreamView& stream : group.streams) {
      absl::StrAppend(&text, "\n      ", stream.stream, "/", stream.pass, " epoch ", stream.epoch,
                      " floor ", stream.floor.value_or(-1), " frontier ",
                      stream.frontier.value_or(-1), " end ", stream.end_step.value_or(-1),
                      " complete ", stream.complete_steps, " granted ", stream.granted_steps,
                      " used ", stream.used_bytes, " waiting for ", stream.waiting_for);
    }
  }
  return text;
}

}  // namespace cpshard::simulation
