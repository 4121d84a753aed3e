// Loaders of a schedule: the real ledger, connected again and again, and a source that makes steps
// where it stands.
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "tests/simulation/world.h"

namespace cpshard::simulation {

void World::SpawnLoader(int group, size_t number) {
  LoaderSeatModel& seat = seats_[group][number];
  if (groups_[group].finished) return;
  const Job& job = scenario_.groups[group].job;
  Process process{.reader = false, .group = group, .incarnation = ++seat.incarnation};
  process.loader = seat.loader;
  process.rewinds = scenario_.groups[group].rewinds;
  LoaderHello hello{.group = job.group,
                    .loader = seat.loader,
                    .num_loaders = job.streams[seat.streams[0]].num_loaders,
                    .incarnation = process.incarnation};
  const int id = static_cast<int>(history_.processes.size());
  history_.processes.push_back(process);
  model_of_.push_back(static_cast<int>(loaders_.size()));
  LoaderModel& loader = loaders_.emplace_back();
  loader.process = id;
  loader.streams = seat.streams;
  for (const int stream : seat.streams) {
    hello.streams.push_back({.name = job.streams[stream].name});
    loader.sources[job.streams[stream].name].next = seat.loader;
  }
  loader.ledger = std::make_unique<LoaderLedger>(std::move(hello));
  seat.process = id;
  At(random_.Below(500), What::kConnect, id);
}

void World::ConnectLoader(LoaderModel& loader) {
  if (loader.push_call != 0) return;
  loader.push_call = Dial(loader.process);
  Send(loader.push_call, loader.ledger->HelloMessage());
  loader.ledger->Connected();
  PollLoader(loader);
}

void World::ToLoader(LoaderModel& loader, size_t call, ToClient message) {
  if (call != loader.push_call) return;
  LoaderLedger& ledger = *loader.ledger;
  if (const auto* position = std::get_if<Position>(&message)) {
    Record& record =
        NoteAt(Kind::kTold, loader.process, {position->stream, position->pass, position->released});
    record.generation = position->generation;
    record.value = position->from_step;
    ledger.OnPosition(*position);
  } else if (const auto* released = std::get_if<Released>(&message)) {
    NoteAt(Kind::kTold, loader.process, {released->stream, released->pass, released->before});
    ledger.OnReleased(*released);
  } else if (const auto* credit = std::get_if<LoaderCredit>(&message)) {
    ledger.OnCredit(*credit);
  } else if (const auto* ack = std::get_if<PushAck>(&message)) {
    ledger.OnAck(ack->at, ack->epoch, ack->microbatch, ack->status);
    if (ledger.postponed()) At(300 + random_.Below(3000), What::kPoll, loader.process);
  } else if (const auto* done = std::get_if<PassDone>(&message)) {
    ledger.OnPassDone(*done);
  } else if (const auto* end = std::get_if<EndCall>(&message)) {
    if (absl::IsAborted(end->status)) {
      const auto details = DetailsOf(end->status);
      // Another process has its seat. (Another connection of its own it would know of.)
      if (details && details->reason == "STALE_INCARNATION") return EndLoader(loader);
    }
    LostPush(loader);
  } else if (std::holds_alternative<Broken>(message)) {
    LostPush(loader);
  }
  if (!ledger.failure().ok()) {
    EndLoader(loader);
    return RespawnLoader(loader.process, 2000 + random_.Below(3000));
  }
  PollLoader(loader);
}

void World::LostPush(LoaderModel& loader) {
  HangUp(std::exchange(loader.push_call, 0));
  loader.ledger->Disconnected();
  At(200 + random_.Below(2000), What::kConnect, loader.process);
}

void World::PollLoader(LoaderModel& loader) {
  if (!loader.alive || loader.frozen) return;
  if (loader.ledger->finished()) {
    EndLoader(loader);
    // Unless the group goes on from a checkpoint: then it is started again.
    return RespawnLoader(loader.process, 2000 + random_.Below(2000));
  }
  if (loader.push_call != 0) {
    while (auto message = loader.ledger->NextMessage()) {
      if (const auto* end = std::get_if<EndOfStream>(&*message)) {
        Send(loader.push_call, *end);
        continue;
      }
      PushMessage push{std::move(std::get<LoaderLedger::Push>(*message))};
      if (loader.repeats && loader.last_push) Send(loader.push_call, *loader.last_push);
      loader.last_push = push;
      Send(loader.push_call, std::move(push));
    }
  }
  MakeStep(loader);
}

void World::MakeStep(LoaderModel& loader) {
  if (loader.busy) return;
  auto work = loader.ledger->NextWork();
  if (!work) return;
  LoaderModel::Source& source = loader.sources[work->stream];
  if (work->rewind) {
    Record& record = NoteAt(Kind::kRewound, loader.process, {work->stream, work->pass, work->step});
    record.state = work->rewind->state;
    record.last = source.positioned_pass == work->pass;  // not where the pass begins
    source.pass = work->pass;
    source.next = work->step;
  } else if (source.pass != work->pass || source.next != work->step) {
    Note(Kind::kClientFault, loader.process).text =
        absl::StrCat("the source stands before ", work->stream, "/", source.pass, "/", source.next,
                     " and is to make ", work->pass, "/", work->step, " without a rewind");
  }
  source.positioned_pass = work->pass;
  loader.work = std::move(*work);
  loader.busy = true;
  const int64_t make_us = GroupOf(loader.process).make_us;
  At(make_us / 2 + random_.Below(make_us), What::kMade, loader.process);
}

void World::OnMade(LoaderModel& loader) {
  const Job& job = JobOf(loader.process);
  const LoaderLedger::Work& work = loader.work;
  const int stream = StreamOf(job, work.stream);
  const StreamFacts& facts = job.streams[stream];
  loader.busy = false;
  if (work.step >= facts.length) {
    loader.ledger->MadeEnd(work, facts.length);
    return PollLoader(loader);
  }
  const Process& process = history_.processes[loader.process];
  const uint64_t variant = GroupOf(loader.process).same_content ? 0 : process.incarnation;
  MadeStep made;
  for (int64_t m = 0; m < Microbatches(job, stream, work.pass, work.step); ++m) {
    made.microbatches.push_back({.bytes = Bytes(job, stream, work.pass, work.step, m),
                                 .digest = Content(job, stream, work.pass, work.step, m, variant)});
  }
  if (facts.declares_totals) made.totals = Totals(job, stream, work.pass, work.step);
  made.state = StateBehind(job, stream, work.pass, work.step);
  loader.sources[work.stream].next = work.step + facts.num_loaders;
  loader.ledger->Made(work, std::move(made));
  PollLoader(loader);
}

void World::RespawnLoader(int process, int64_t in_us) {
  const int group = history_.processes[process].group;
  for (size_t seat = 0; seat < seats_[group].size(); ++seat) {
    if (seats_[group][seat].process == process) At(in_us, What::kLoaderSpawn, group, seat);
  }
}

void World::EndLoader(LoaderModel& loader) {
  loader.alive = false;
  loader.inbox.clear();
  HangUp(std::exchange(loader.push_call, 0));
}

}  // namespace cpshard::simulation
