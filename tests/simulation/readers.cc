// Readers of a schedule: the real ledger, connected again and again, and a trainer that takes what
// it is due, saves checkpoints, and at the end closes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "tests/simulation/world.h"

namespace cpshard::simulation {
namespace {

constexpr size_t kShadows = 4;

bool Retryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

std::string ReasonOf(const absl::Status& status) {
  const auto details = DetailsOf(status);
  return details ? details->reason : "";
}

}  // namespace

void World::SpawnReader(int number, size_t seat, const Snapshot& from) {
  ReaderSet& set = sets_[number];
  const GroupScenario& scenario = scenario_.groups[set.group];
  Process process{.reader = true, .group = set.group};
  process.incarnation = ++groups_[set.group].incarnation;
  process.cp_rank = static_cast<int64_t>(seat) / set.readers_per_rank;
  process.name = absl::StrCat("r", process.cp_rank, ".", seat % set.readers_per_rank);
  process.generation = set.generation;
  process.attempt = set.attempt;
  process.cp_size = set.cp_size;
  process.readers_per_rank = set.readers_per_rank;
  process.first_item = from.item;
  // What it has received of what it did not consume is gone with its process.
  std::vector<ReaderStream> streams = from.streams;
  for (ReaderStream& stream : streams) stream.received = stream.next_step - 1;
  const OpenSession open{.group = scenario.job.group,
                         .generation = set.generation,
                         .attempt = set.attempt,
                         .cp_size = set.cp_size,
                         .readers_per_rank = set.readers_per_rank,
                         .options = "options",
                         .fingerprint = "data",
                         .job = scenario.job.name,
                         .job_groups = scenario.job.name.empty() ? 1 : 2,
                         .resume = set.resume,
                         .reader = process.name,
                         .cp_rank = process.cp_rank,
                         .incarnation = process.incarnation,
                         .streams = streams};
  const int id = static_cast<int>(history_.processes.size());
  history_.processes.push_back(process);
  model_of_.push_back(static_cast<int>(readers_.size()));
  ReaderModel& reader = readers_.emplace_back();
  reader.process = id;
  reader.set = number;
  reader.ledger = std::make_unique<ReaderLedger>(open, scenario.prefetch);
  reader.item = from.item;
  reader.shadows.push_back(from);
  set.readers[seat] = id;
  // A job that is declared starts with its loaders.
  const int64_t later_us = scenario.declared && set.generation == 1 ? 5000 : 0;
  At(random_.Below(500) + later_us, What::kConnect, id);
}

// A process takes the seat of one that is gone, alone.
void World::RespawnReader(int number, size_t seat) {
  ReaderSet& set = sets_[number];
  if (set.dead) return;
  const ReaderModel& last = *ReaderAt(set.readers[seat]);
  if (last.alive || last.closed) return;
  SpawnReader(number, seat, RestartPoint(last, random_.OneIn(4) ? 1 : 0));
  // The others have gone home: they all had closed, this one too.
  if (set.any_closed) ReaderClosed(*ReaderAt(set.readers[seat]));
}

// Where the process' successor begins: behind what it consumed, or for a `value` of 0 a little
// before that: what a server keeps for it, unless it has been started again since. Then the group
// starts again, which sources that cannot go back do not survive.
Snapshot World::RestartPoint(const ReaderModel& reader, int64_t value) {
  const Snapshot& latest = reader.shadows.back();
  if (value != 0 || !GroupOf(reader.process).rewinds) return latest;
  if (!JobOf(reader.process).name.empty()) return latest;
  for (const Snapshot& earlier : reader.shadows) {
    bool near = earlier.item < latest.item;
    for (size_t s = 0; s < latest.streams.size(); ++s) {
      const ReaderStream &was = earlier.streams[s], &is = latest.streams[s];
      near = near && was.pass == is.pass && was.closed == is.closed &&
             was.next_step + history_.replay_steps >= is.next_step;
    }
    if (!near) continue;
    coverage_.Saw(Event::kReaderStepsBack);
    return earlier;
  }
  return latest;
}

void World::ConnectReader(ReaderModel& reader) {
  if (reader.open_call != 0 || reader.pull_call != 0) return;
  if (reader.closing && sets_[reader.set].any_closed) return ReaderClosed(reader);
  reader.open_call = Dial(reader.process);
  Send(reader.open_call, reader.ledger->OpenMessage());
}

void World::ToReader(ReaderModel& reader, size_t call, ToClient message) {
  if (call == reader.open_call) {
    reader.open_call = 0;
    HangUp(call);
    const auto* opened = std::get_if<absl::StatusOr<OpenedSession>>(&message);
    if (opened == nullptr) {
      return At(1000 + random_.Below(2000), What::kConnect, reader.process);
    }
    return OnOpened(reader, *opened);
  }
  if (call == reader.close_call) {
    reader.close_call = 0;
    HangUp(call);
    const auto* end = std::get_if<EndCall>(&message);
    return OnClosed(reader, end != nullptr ? end->status : absl::UnavailableError("broken"));
  }
  if (call == reader.get_call) {
    const auto* head = std::get_if<ShardHead>(&message);
    if (head == nullptr || head->last) HangUp(std::exchange(reader.get_call, 0));
    return;
  }
  if (call != reader.pull_call) return;
  if (auto* head = std::get_if<ShardHead>(&message)) {
    const absl::Status status = reader.ledger->OnDelivery({std::move(*head), nullptr});
    if (!status.ok()) {
      Note(Kind::kClientFault, reader.process).text = status.ToString();
      LostPull(reader);
    }
    PollReader(reader);
  } else if (const auto* status = std::get_if<RequestStatus>(&message)) {
    reader.ledger->OnRequestStatus(status->id, status->status);
    if (reader.ledger->postponed()) At(300 + random_.Below(3000), What::kPoll, reader.process);
    PollReader(reader);
  } else {
    LostPull(reader);
  }
}

SessionName World::SessionOf(const ReaderModel& reader) const {
  const Process& process = history_.processes[reader.process];
  return {JobOf(reader.process).group, process.generation, process.name, process.incarnation};
}

void World::OnOpened(ReaderModel& reader, const absl::StatusOr<OpenedSession>& opened) {
  if (!opened.ok()) {
    if (!Retryable(opened.status())) return FailReader(reader, opened.status());
    if (ReasonOf(opened.status()) == "BUDGET") coverage_.Saw(Event::kGroupWaits);
    return At(1000 + random_.Below(2000), What::kConnect, reader.process);
  }
  if (const absl::Status status = reader.ledger->OnOpened(*opened); !status.ok()) {
    Note(Kind::kClientFault, reader.process).text = status.ToString();
    return FailReader(reader, status);
  }
  reader.pull_call = Dial(reader.process);
  Send(reader.pull_call, SessionOf(reader));
  PollReader(reader);
}

void World::OnClosed(ReaderModel& reader, const absl::Status& status) {
  if (status.ok() || sets_[reader.set].any_closed) return ReaderClosed(reader);
  if (!Retryable(status)) return FailReader(reader, status);
  At(1000 + random_.Below(2000), What::kPoll, reader.process);
}

void World::LostPull(ReaderModel& reader) {
  HangUp(std::exchange(reader.pull_call, 0));
  reader.ledger->Disconnected();
  At(200 + random_.Below(2000), What::kConnect, reader.process);
}

void World::PollReader(ReaderModel& reader) {
  if (!reader.alive || reader.frozen) return;
  Train(reader);
  if (reader.alive) AskServer(reader);
}

void World::AskServer(ReaderModel& reader) {
  if (reader.pull_call == 0) return;
  for (ReaderLedger::Request& request : reader.ledger->TakeRequests()) {
    if (auto* want = std::get_if<Want>(&request)) {
      if (random_.OneIn(12)) want->timeout_ms = 1 + random_.Below(6);
      Send(reader.pull_call, std::move(*want));
    } else if (auto* commit = std::get_if<Commit>(&request)) {
      Send(reader.pull_call, std::move(*commit));
    } else {
      Send(reader.pull_call, std::move(std::get<PassClosed>(request)));
    }
  }
  if (!reader.closing) return;
  // Has a peer been told, then all had closed; on another server this one would wait for ever.
  if (sets_[reader.set].any_closed) return ReaderClosed(reader);
  if (reader.close_call != 0) return;
  reader.close_call = Dial(reader.process);
  Send(reader.close_call, CloseMessage{SessionOf(reader)});
}

void World::AskOnceMore(ReaderModel& reader, const StepAddress& at) {
  if (reader.get_call != 0) return;
  GetMessage get{SessionOf(reader), {.id = 1, .at = at, .timeout_ms = 2}};
  if (random_.OneIn(2)) get.want.microbatch = 0;
  reader.get_call = Dial(reader.process);
  Send(reader.get_call, std::move(get));
}

void World::Train(ReaderModel& reader) {
  const Job& job = JobOf(reader.process);
  while (reader.alive && !reader.training && !reader.closing) {
    if (reader.item == job.items.size()) {
      for (const StreamFacts& stream : job.streams) {
        if (!reader.ledger->StateOf(stream.name).finished) {
          reader.ledger->ClosePass(stream.name, /*finished=*/true);
        }
      }
      reader.closing = true;
      return;
    }
    const Item& item = job.items[reader.item];
    const std::string& name = job.streams[item.stream].name;
    if (item.step == 0 && reader.ledger->StateOf(name).closed) reader.ledger->StartPass(name);
    if (item.stream == kValidation) coverage_.Saw(Event::kValidation);
    if (item.stream == kTrain && item.pass > 0) coverage_.Saw(Event::kSeveralPasses);
    if (!reader.ledger->Ready(name)) {
      // The server may need the room of the step before.
      reader.ledger->Consumed(name);
      return TakeShadow(reader, reader.item);
    }
    const auto next = reader.ledger->Next(name);
    if (const auto* failure = std::get_if<absl::Status>(&next)) {
      return FailReader(reader, *failure);
    }
    if (const auto* end = std::get_if<EndOfPass>(&next)) {
      NoteAt(Kind::kTrainedEnd, reader.process, end->at);
      AfterTraining(reader);
      continue;
    }
    const auto& step = std::get<ReceivedStep>(next);
    Record& record = NoteAt(Kind::kTrained, reader.process, step.at);
    record.totals = step.totals;
    record.microbatch = static_cast<int64_t>(step.microbatches.size());
    for (const ReceivedShard& shard : step.microbatches) {
      record.content = Mix(record.content ^ shard.head.digest);
    }
    TakeShadow(reader, reader.item);
    reader.training = true;
    if (random_.OneIn(40)) AskOnceMore(reader, step.at);
    const int64_t train_us = GroupOf(reader.process).train_us;
    At(train_us / 2 + random_.Below(train_us), What::kTrained, reader.process);
  }
}

// The item is done with: it is consumed now, or with the next one.
void World::AfterTraining(ReaderModel& reader) {
  const Job& job = JobOf(reader.process);
  const Item& item = job.items[reader.item];
  const std::string& name = job.streams[item.stream].name;
  const size_t next = ++reader.item;
  const bool saves = next % GroupOf(reader.process).checkpoint_every == 0;
  const bool turns = next < job.items.size() && job.items[next].stream != item.stream;
  bool consumed = item.closes;
  if (item.closes) {
    if (!item.ends) reader.ledger->Consumed(name);
    reader.ledger->ClosePass(name, item.finishes);
  } else if (saves || turns || random_.OneIn(2)) {
    reader.ledger->Consumed(name);
    consumed = true;
  }
  if (consumed) TakeShadow(reader, next);
  if (saves) SaveCheckpoint(reader);
}

void World::TakeShadow(ReaderModel& reader, size_t item) {
  if (reader.shadows.back().item == item) return;
  Snapshot snapshot{.item = item};
  for (const StreamFacts& stream : JobOf(reader.process).streams) {
    snapshot.streams.push_back(reader.ledger->StateOf(stream.name));
  }
  reader.shadows.push_back(std::move(snapshot));
  if (reader.shadows.size() > kShadows) reader.shadows.erase(reader.shadows.begin());
}

void World::SaveCheckpoint(ReaderModel& reader) {
  const Snapshot& snapshot = reader.shadows.back();
  Record& record = Note(Kind::kCheckpoint, reader.process);
  record.step = static_cast<int64_t>(snapshot.item);
  record.asked = snapshot.streams;
  const ReaderSet& set = sets_[reader.set];
  GroupModel& group = groups_[set.group];
  const int64_t saved = ++group.savings[{reader.set, snapshot.item}];
  if (saved == set.cp_size * set.readers_per_rank) {
    group.checkpoints[snapshot.item] = snapshot.streams;
  }
}

// What the library gives up on, its process does not survive; its launcher starts the group anew.
void World::FailReader(ReaderModel& reader, const absl::Status& status) {
  EndReader(reader);
  ReaderSet& set = sets_[reader.set];
  if (set.dead) return;
  At(random_.Below(500), What::kKillSet, reader.set);
  if (ReasonOf(status) == "TERMS_DIFFER") {
    coverage_.Saw(Event::kRefusedLauncher);
    GroupModel& group = groups_[set.group];
    if (random_.OneIn(3) && set.generation == group.generation) {
      set.dead = true;
      const size_t item = group.checkpoints.empty() ? 0 : group.checkpoints.rbegin()->first;
      Launch(set.group, item, set.cp_size, set.attempt, group.generation + 1);
    }
  }
  At(1000 + random_.Below(2000), What::kLaunch, set.group);
}

void World::EndReader(ReaderModel& reader) {
  reader.alive = false;
  reader.inbox.clear();
  HangUp(std::exchange(reader.open_call, 0));
  HangUp(std::exchange(reader.pull_call, 0));
  HangUp(std::exchange(reader.close_call, 0));
  HangUp(std::exchange(reader.get_call, 0));
}

void World::ReaderClosed(ReaderModel& reader) {
  reader.closed = true;
  EndReader(reader);
  ReaderSet& set = sets_[reader.set];
  GroupModel& group = groups_[set.group];
  set.any_closed = true;
  bool all = true;
  for (const int process : set.readers) {
    all = all && ReaderAt(process)->closed;
    if (ReaderAt(process)->alive) At(1, What::kPoll, process);
  }
  // Those that were frozen at the end learn of it late: then a newer generation goes on.
  if (!all || set.generation < group.generation) return;
  group.finished = true;
  for (const int number : group.sets) {
    if (number != reader.set) Kill(number);
  }
}

}  // namespace cpshard::simulation
