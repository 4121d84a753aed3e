// Launchers and faults of a schedule: groups that start and start again, processes that freeze, end
// and are replaced.
#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/simulation/world.h"

namespace cpshard::simulation {

void World::Launch(int group, size_t item, int64_t cp_size, std::string attempt,
                   int64_t generation) {
  const GroupScenario& scenario = scenario_.groups[group];
  GroupModel& model = groups_[group];
  model.generation = std::max(model.generation, generation);
  Snapshot from{.item = item};
  if (item > 0) {
    from.streams = model.checkpoints.at(item);
  } else {
    for (size_t s = 0; s < scenario.job.streams.size(); ++s) {
      from.streams.push_back({.name = scenario.job.streams[s].name,
                              .closed = static_cast<int>(s) != kTrain,
                              .max_step_bytes = scenario.job.streams[s].max_step_bytes});
    }
  }
  const int number = static_cast<int>(sets_.size());
  ReaderSet& set = sets_.emplace_back();
  set.group = group;
  set.generation = generation;
  set.attempt = std::move(attempt);
  set.cp_size = cp_size;
  set.readers_per_rank = scenario.readers_per_rank;
  for (const ReaderStream& stream : from.streams) set.resume[stream.name] = stream.next_step;
  set.readers.resize(cp_size * scenario.readers_per_rank);
  model.sets.push_back(number);
  for (size_t seat = 0; seat < set.readers.size(); ++seat) SpawnReader(number, seat, from);
}

void World::LaunchAgain(int group) {
  GroupModel& model = groups_[group];
  if (model.finished) return;
  for (const int set : model.sets) {
    if (sets_[set].generation == model.generation && !sets_[set].dead) return;
  }
  const size_t item = model.checkpoints.empty() ? 0 : model.checkpoints.rbegin()->first;
  Launch(group, item, sets_[model.sets.back()].cp_size, "again", model.generation + 1);
}

void World::Kill(int number) {
  ReaderSet& set = sets_[number];
  set.dead = true;
  for (const int process : set.readers) {
    if (ReaderModel& reader = *ReaderAt(process); reader.alive) EndReader(reader);
  }
}

ReaderModel* World::PickReader(int group, uint64_t who) {
  std::vector<int> alive;
  for (const int set : groups_[group].sets) {
    if (sets_[set].dead || sets_[set].generation != groups_[group].generation) continue;
    for (const int process : sets_[set].readers) {
      const ReaderModel& reader = *ReaderAt(process);
      if (reader.alive && !reader.frozen) alive.push_back(process);
    }
  }
  return alive.empty() ? nullptr : ReaderAt(alive[who % alive.size()]);
}

LoaderModel* World::PickLoader(int group, uint64_t who) {
  const auto& seats = seats_[group];
  const int process = seats[who % seats.size()].process;
  if (process < 0) return nullptr;
  LoaderModel& loader = *LoaderAt(process);
  return loader.alive && !loader.frozen ? &loader : nullptr;
}

void World::Apply(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kServerDrain:
      if (server_ == nullptr || !history_.jobs[0].name.empty()) return;
      coverage_.Saw(Event::kServerDrain);
      ++operations_;
      server_->Drain(Now());
      AfterCall();
      At(fault.duration_us / 2, What::kServerStop, instance_);
      return At(fault.duration_us, What::kServerStart);
    case FaultKind::kServerCrash:
      // Another server would wait for a group of the job that has ended.
      if (server_ == nullptr || (ended_group_ && !history_.jobs[0].name.empty())) return;
      coverage_.Saw(Event::kServerCrash);
      StopServer();
      return At(fault.duration_us / 3, What::kServerStart);
    case FaultKind::kRestart:
    case FaultKind::kRestartTwice:
    case FaultKind::kRestartFrozen:
    case FaultKind::kTwoLaunchers:
      return RestartGroup(fault);
    case FaultKind::kReaderBreak:
    case FaultKind::kReaderCrash:
    case FaultKind::kReaderFreeze:
    case FaultKind::kReaderAway:
    case FaultKind::kReaderSlow:
      return ApplyToReader(fault);
    default:
      return ApplyToLoader(fault);
  }
}

void World::ApplyToReader(const Fault& fault) {
  ReaderModel* reader = PickReader(fault.group, fault.who);
  if (reader == nullptr) return;
  switch (fault.kind) {
    case FaultKind::kReaderBreak:
      if (reader->pull_call == 0) return;
      coverage_.Saw(Event::kReaderBreak);
      At(random_.Below(300), What::kCutServer, reader->pull_call);
      return At(random_.Below(300), What::kCutClient, reader->pull_call);
    case FaultKind::kReaderCrash: {
      coverage_.Saw(Event::kReaderCrash);
      const auto& seats = sets_[reader->set].readers;
      const auto seat = std::find(seats.begin(), seats.end(), reader->process) - seats.begin();
      EndReader(*reader);
      return At(fault.duration_us, What::kReaderSpawn, reader->set, seat);
    }
    case FaultKind::kReaderSlow:
      coverage_.Saw(Event::kSlowReader);
      reader->slow = true;
      return At(fault.duration_us, What::kNormal, reader->process);
    default:
      coverage_.Saw(Event::kReaderFreeze);
      if (fault.kind == FaultKind::kReaderAway && reader->pull_call != 0) {
        At(random_.Below(300), What::kCutServer, reader->pull_call);
      }
      return Freeze(reader->process, fault.duration_us);
  }
}

void World::ApplyToLoader(const Fault& fault) {
  LoaderModel* loader = PickLoader(fault.group, fault.who);
  if (loader == nullptr) return;
  const auto seat = static_cast<int64_t>(fault.who % seats_[fault.group].size());
  switch (fault.kind) {
    case FaultKind::kLoaderBreak:
      if (loader->push_call == 0) return;
      coverage_.Saw(Event::kLoaderBreak);
      At(random_.Below(300), What::kCutServer, loader->push_call);
      return At(random_.Below(300), What::kCutClient, loader->push_call);
    case FaultKind::kLoaderCrash:
      coverage_.Saw(Event::kLoaderCrash);
      EndLoader(*loader);
      return At(fault.duration_us / 2, What::kLoaderSpawn, fault.group, seat);
    case FaultKind::kLoaderFreeze:
      coverage_.Saw(Event::kLoaderFreeze);
      return Freeze(loader->process, fault.duration_us);
    case FaultKind::kLoaderReplaced:
      coverage_.Saw(Event::kLoaderReplacedFrozen);
      At(random_.Below(fault.duration_us), What::kLoaderSpawn, fault.group, seat);
      return Freeze(loader->process, fault.duration_us);
    case FaultKind::kLoaderSlow:
      coverage_.Saw(Event::kSlowLoader);
      loader->slow = true;
      break;
    case FaultKind::kLoaderRepeats:
      loader->repeats = true;
      break;
    default:
      loader->damages = true;
      break;
  }
  At(fault.duration_us, What::kNormal, loader->process);
}

void World::RestartGroup(const Fault& fault) {
  GroupModel& group = groups_[fault.group];
  if (group.finished) return;
  coverage_.Saw(Event::kRestart);
  const int64_t cp_was = sets_[group.sets.back()].cp_size;
  for (const int number : group.sets) {
    if (sets_[number].dead) continue;
    if (fault.kind != FaultKind::kRestartFrozen) {
      Kill(number);
      continue;
    }
    // They do not know yet that others have taken over, and some of what they say is late.
    coverage_.Saw(Event::kRestartFrozen);
    for (const int process : sets_[number].readers) {
      const ReaderModel& reader = *ReaderAt(process);
      if (!reader.alive || reader.frozen) continue;
      calls_[reader.pull_call].latency_us += 1000 + random_.Below(5000);
      At(random_.Below(4000), What::kFreeze, process, fault.duration_us);
    }
  }
  size_t item = 0;
  const bool twice = fault.kind == FaultKind::kRestartTwice;
  if (twice) At(fault.duration_us / 3, What::kRestart, fault.group);
  if (!group.checkpoints.empty() && !twice && fault.value % 5 != 0) {
    auto checkpoint = std::prev(group.checkpoints.end());
    if (fault.value % 2 == 0) {
      checkpoint = std::next(group.checkpoints.begin(), random_.Below(group.checkpoints.size()));
    }
    item = checkpoint->first;
  }
  const bool changes = fault.value % 3 == 0 && !scenario_.groups[fault.group].declared;
  const int64_t cp_size = changes ? random_.Between(1, 4) : cp_was;
  if (cp_size != cp_was) coverage_.Saw(Event::kCpChange);
  const int64_t generation = group.generation + 1;
  Launch(fault.group, item, cp_size, "one", generation);
  if (fault.kind != FaultKind::kTwoLaunchers) return;
  coverage_.Saw(Event::kTwoLaunchers);
  Launch(fault.group, item, cp_size, "other", generation);
}

// From the last checkpoint, whoever is at work.
void World::RestartLatest(int group) {
  GroupModel& model = groups_[group];
  if (model.finished || model.checkpoints.empty()) return;
  for (const int number : model.sets) {
    if (!sets_[number].dead) Kill(number);
  }
  Launch(group, model.checkpoints.rbegin()->first, sets_[model.sets.back()].cp_size, "latest",
         model.generation + 1);
}

void World::Freeze(int process, int64_t duration_us) {
  const int64_t until_us = now_us_ + duration_us;
  if (ReaderModel* reader = ReaderAt(process)) {
    reader->frozen = true;
    reader->frozen_until_us = until_us;
  } else {
    LoaderModel& loader = *LoaderAt(process);
    loader.frozen = true;
    loader.frozen_until_us = until_us;
  }
  At(duration_us, What::kWake, process);
}

// What has come for it meanwhile comes at once; the server gets rid of what it could not send.
void World::Wake(int process) {
  ReaderModel* reader = ReaderAt(process);
  LoaderModel* loader = LoaderAt(process);
  std::vector<std::pair<size_t, ToClient>> inbox;
  if (reader != nullptr) {
    if (!reader->alive) return;
    reader->frozen = false;
    inbox = std::exchange(reader->inbox, {});
    if (Call& call = calls_[reader->pull_call]; reader->pull_call != 0) {
      for (int unsent = std::exchange(call.unsent, 0); unsent > 0; --unsent) {
        At(1 + random_.Below(100), What::kSent, reader->pull_call);
      }
    }
  } else {
    if (!loader->alive) return;
    loader->frozen = false;
    inbox = std::exchange(loader->inbox, {});
  }
  for (auto& [call, message] : inbox) {
    if (reader != nullptr && reader->alive) ToReader(*reader, call, std::move(message));
    if (loader != nullptr && loader->alive) ToLoader(*loader, call, std::move(message));
  }
  At(1, What::kPoll, process);
}

}  // namespace cpshard::simulation
