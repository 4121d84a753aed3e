// The server of a schedule: hands it what arrives, carries away what it says, and notes both.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "tests/simulation/world.h"

namespace cpshard::simulation {
namespace {

template <class... T>
struct Overloaded : T... {
  using T::operator()...;
};
template <class... T>
Overloaded(T...) -> Overloaded<T...>;

// Bytes that stand for a batch: counted as long as somebody holds them.
class CountedPayload : public Payload {
 public:
  CountedPayload(uint64_t content, int64_t bytes, int64_t* live)
      : content(content), bytes_(bytes), live_(live) {
    *live_ += bytes_;
  }
  ~CountedPayload() override { *live_ -= bytes_; }

  const uint64_t content;

 private:
  const int64_t bytes_;
  int64_t* const live_;
};

int64_t ValueOf(const ErrorDetails& details) {
  for (const char* name : {"end_step", "floor"}) {
    const auto it = details.values.find(name);
    int64_t value = 0;
    if (it != details.values.end() && absl::SimpleAtoi(it->second, &value)) return value;
  }
  return -1;
}

void SetStatus(const absl::Status& status, Record& record) {
  record.code = status.code();
  if (status.ok()) return;
  record.text = std::string(status.message());
  if (const auto details = DetailsOf(status)) {
    record.reason = details->reason;
    record.value = ValueOf(*details);
  }
}

DeclaredGroup DeclarationOf(const GroupScenario& group) {
  DeclaredGroup declared{.group = group.job.group, .cp_size = group.cp_size, .options = "options"};
  for (const StreamFacts& stream : group.job.streams) {
    declared.streams.push_back({stream.name, stream.max_step_bytes, stream.num_loaders});
  }
  return declared;
}

}  // namespace

void World::StartServer() {
  DeliveryOptions options = scenario_.server;
  options.instance = absl::StrCat("server ", ++instance_);
  for (const GroupScenario& group : scenario_.groups) {
    if (group.declared) options.groups.push_back(DeclarationOf(group));
  }
  server_ = std::make_unique<Server>(options);
  tick_at_us_ = -1;
  seeks_seen_ = duplicates_seen_ = 0;
  streams_seen_.clear();
  generation_seen_.clear();
  Note(Kind::kServerStarted);
}

void World::StopServer() {
  if (server_ == nullptr) return;
  for (Landing& landing : landings_) {
    if (!std::exchange(landing.over, true)) live_bytes_ -= landing.bytes;
  }
  for (size_t id = 1; id < calls_.size(); ++id) {
    Call& call = calls_[id];
    if (!call.server_alive || call.instance != instance_) continue;
    call.server_alive = false;
    call.unsent = 0;
    call.up.clear();
    call.pinned.clear();
    At(Latency(call), What::kCutClient, id);
  }
  server_.reset();
}

void World::Serve(size_t id, ToServer message) {
  ++operations_;
  const int process = calls_[id].process;
  const auto end_unless_ok = [&](const absl::Status& status) {
    if (!status.ok()) {
      EndFromServer(id, status);
      calls_[id].refused = true;
    }
  };
  const auto noted = [&](Kind kind, const StepAddress& at) -> Record& {
    Record& record = NoteAt(kind, process, at);
    record.call = id;
    return record;
  };
  std::visit(
      Overloaded{
          [&](const OpenSession& open) { ServeOpen(id, open); },
          [&](const SessionName& name) {
            end_unless_ok(server_->Attach(id, name, /*lasting=*/true, Now()));
          },
          [&](const Want& want) {
            Record& record = noted(Kind::kWanted, want.at);
            record.id = want.id;
            record.microbatch = want.from_microbatch.value_or(0);
            if (want.from_microbatch) coverage_.Saw(Event::kGoesOn);
            server_->Want(id, want, Now());
          },
          [&](const GetMessage& get) {
            const absl::Status status = server_->Attach(id, get.session, false, Now());
            if (!status.ok()) return end_unless_ok(status);
            coverage_.Saw(Event::kRepull);
            Record& record = noted(Kind::kWanted, get.want.at);
            record.id = get.want.id;
            record.again = true;
            record.alone = get.want.microbatch.has_value();
            server_->Want(id, get.want, Now());
          },
          [&](const Commit& commit) {
            const Process& from = history_.processes[process];
            if (generation_seen_[from.group] > from.generation) {
              coverage_.Saw(Event::kStaleCommit);
            }
            Record& record = noted(Kind::kCommitted, commit.at);
            const absl::Status status = server_->Commit(id, commit, Now());
            SetStatus(status, record);
            end_unless_ok(status);
          },
          [&](const PassClosed& closed) {
            Record& record = noted(Kind::kPassClosed, {closed.stream, closed.pass, 0});
            const absl::Status status = server_->ClosePass(id, closed, Now());
            SetStatus(status, record);
            end_unless_ok(status);
          },
          [&](const CloseMessage& close) {
            Note(Kind::kClosed, process);
            server_->Close(id, close.session, Now());
          },
          [&](const LoaderHello& hello) { end_unless_ok(server_->Hello(id, hello, Now())); },
          [&](const PushMessage& push) { ServePush(id, push); },
          [&](const EndOfStream& end) {
            noted(Kind::kEndDeclared, {end.stream, end.pass, end.end_step}).epoch = end.epoch;
            end_unless_ok(server_->End(id, end, Now()));
          },
      },
      message);
  AfterCall();
}

void World::ServeOpen(size_t id, const OpenSession& open) {
  const int process = calls_[id].process;
  const absl::StatusOr<OpenedSession> opened = server_->Open(open, Now());
  Record& record = Note(Kind::kOpened, process);
  record.generation = open.generation;
  record.asked = open.streams;
  SetStatus(opened.status(), record);
  if (opened.ok()) {
    record.answered = opened->streams;
    int64_t& seen = generation_seen_[history_.processes[process].group];
    seen = std::max(seen, open.generation);
  }
  Answer(id, opened);
}

void World::ServePush(size_t id, const PushMessage& message) {
  const LoaderLedger::Push& push = message.push;
  const int process = calls_[id].process;
  const int group = history_.processes[process].group;
  const int stream = StreamOf(JobOf(process), push.head.at.stream);
  if (push.head.epoch < streams_seen_[{group, stream}].epoch) coverage_.Saw(Event::kStalePush);
  const PushVerdict verdict = server_->BeginPush(id, push.head, push.batch.bytes, Now());
  if (verdict.push == 0) return;
  live_bytes_ += push.batch.bytes;
  LoaderModel& loader = *LoaderAt(process);
  const bool damaged = loader.damages && !random_.OneIn(4);
  if (damaged) coverage_.Saw(Event::kDamagedPush);
  landings_.push_back(
      {verdict.push, id, push.head, push.batch.digest, push.batch.bytes, instance_, damaged});
  // A first microbatch is there soon, so that it is sent while the others land.
  const bool soon = push.head.microbatch == 0 || random_.OneIn(3);
  const int64_t land_us = soon ? 1 : random_.Below(GroupOf(process).land_us);
  At(land_us, What::kLanded, landings_.size() - 1);
}

void World::Land(Landing& landing, bool cut) {
  if (std::exchange(landing.over, true)) return;
  ++operations_;
  const int process = calls_[landing.call].process;
  live_bytes_ -= landing.bytes;
  if (cut || landing.damaged) {
    const absl::Status why = cut || !calls_[landing.call].server_alive
                                 ? absl::UnavailableError("the connection is gone")
                                 : absl::DataLossError("a checksum does not hold");
    server_->EndPush(landing.push, why, Now());
    return AfterCall();
  }
  LandedBatch batch{.bytes = landing.bytes, .digest = landing.content};
  batch.payload = std::make_shared<CountedPayload>(landing.content, landing.bytes, &live_bytes_);
  const int stream = StreamOf(JobOf(process), landing.head.at.stream);
  batch.row_need = RowNeed(JobOf(process), stream, landing.head.at.pass, landing.head.at.step,
                           landing.head.microbatch);
  Record& record = NoteAt(Kind::kPushed, process, landing.head.at);
  record.microbatch = landing.head.microbatch;
  record.epoch = landing.head.epoch;
  record.content = landing.content;
  server_->EndPush(landing.push, std::move(batch), Now());
  const int group = history_.processes[process].group;
  StreamSeen& seen = streams_seen_[{group, record.stream}];
  if (landing.head.epoch == seen.epoch && landing.head.at.pass == seen.pass &&
      landing.head.last_microbatch) {
    seen.whole[landing.head.at.step] = true;
  }
  AfterCall();
}

void World::AfterCall() {
  for (Output& output : server_->TakeOutputs()) Say(std::move(output));
  (void)server_->TakeAlerts();
  const DeliveryCounters counters = server_->counters();
  if (counters.digest_conflicts > 0) coverage_.Saw(Event::kDigestConflict);
  Record& record = Note(Kind::kMemory);
  record.used = counters.used_bytes;
  record.live = live_bytes_;
  if (counters.duplicates > duplicates_seen_) coverage_.Saw(Event::kDuplicate);
  duplicates_seen_ = counters.duplicates;
  const bool tight =
      scenario_.server.budget_bytes < 50 * history_.jobs[0].streams[0].max_step_bytes;
  if (counters.seeks > seeks_seen_ ||
      (tight && operations_ % 32 == 0 && !coverage_.Has(Event::kBudgetWait))) {
    LookAtViews();
  }
  seeks_seen_ = counters.seeks;
  const absl::Time next = server_->NextTick();
  if (next == absl::InfiniteFuture()) return;
  const int64_t at_us = std::max(now_us_, absl::ToUnixMicros(next)) + 1;
  if (tick_at_us_ >= 0 && tick_at_us_ <= at_us) return;
  tick_at_us_ = at_us;
  At(at_us - now_us_, What::kTick);
}

void World::LookAtViews() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto view = server_->View(history_.jobs[g].group, Now());
    if (!view.ok()) continue;
    for (const DataStreamView& stream : view->streams) {
      const int number = StreamOf(history_.jobs[g], stream.stream);
      StreamSeen& seen = streams_seen_[{static_cast<int>(g), number}];
      if (stream.floor && stream.complete_steps + stream.granted_steps < stream.window_steps &&
          !stream.end_step) {
        coverage_.Saw(Event::kBudgetWait);
      }
      if (!stream.floor || stream.epoch == seen.epoch) continue;
      if (!seen.floor && *stream.floor > 0) coverage_.Saw(Event::kStatesOfReader);
      if (seen.floor && seen.pass == stream.pass) {
        coverage_.Saw(*stream.floor > *seen.floor ? Event::kSeekForwards : Event::kSeekBackwards);
      }
      seen.whole.clear();
      seen.epoch = stream.epoch;
      seen.pass = stream.pass;
      seen.floor = stream.floor;
    }
  }
}

void World::Say(Output output) {
  const size_t id = output.to;
  if (id >= calls_.size() || !calls_[id].server_alive) return;
  if (auto* shard = std::get_if<DeliverShard>(&output.what)) {
    return SayDelivery(id, std::move(*shard));
  }
  if (const auto* end = std::get_if<EndCall>(&output.what)) return EndFromServer(id, end->status);
  if (const auto* status = std::get_if<RequestStatus>(&output.what)) {
    Record& record = Note(Kind::kStatus, calls_[id].process);
    record.call = id;
    record.id = status->id;
    SetStatus(status->status, record);
    if (record.reason == "PEER_LEFT") coverage_.Saw(Event::kPeerLeft);
    if (record.reason == "END_OF_STREAM") coverage_.Saw(Event::kEndOfStream);
    if (absl::IsDeadlineExceeded(status->status)) coverage_.Saw(Event::kDeadline);
    return Answer(id, *status);
  }
  SayToLoader(id, output);
}

void World::SayDelivery(size_t id, DeliverShard shard) {
  Call& call = calls_[id];
  const Process& process = history_.processes[call.process];
  StepAddress& at = shard.head.at;
  int64_t cp_size = shard.terms != nullptr ? shard.terms->cp_size : 0;
  const bool chosen = process.cp_rank == process.cp_size - 1 && at.step >= 2;
  if (scenario_.tampering == Tampering::kOtherCpForOneRank && chosen) cp_size += 1;
  if (scenario_.tampering == Tampering::kGapForOneRank && chosen && !gap_made_) {
    // Nothing of it is sent; the bytes are let go as if it were.
    gap_made_ = shard.head.last;
    server_->Sent(id, at, shard.head.microbatch, Now());
    return;
  }
  Record& record = NoteAt(Kind::kDelivered, call.process, at);
  record.call = id;
  record.id = shard.head.id;
  record.microbatch = shard.head.microbatch;
  record.last = shard.head.last;
  record.digest = shard.head.digest;
  record.content =
      shard.payload == nullptr ? 0 : static_cast<const CountedPayload&>(*shard.payload).content;
  record.cp_size = cp_size;
  record.cp_rank = shard.cp_rank;
  record.generation = shard.terms != nullptr ? shard.terms->generation : 0;
  record.owner = shard.head.owner;
  record.num_loaders = shard.head.num_loaders;
  record.totals = shard.head.totals;
  record.value = shard.min_padded_len.value_or(-1);
  if (shard.head.owner_state) record.state = LoaderState{at.step, *shard.head.owner_state};
  const StreamSeen& seen = streams_seen_[{process.group, record.stream}];
  record.epoch = seen.epoch;
  if (!seen.whole.contains(at.step)) coverage_.Saw(Event::kEarlyRelease);

  call.pinned.push_back({std::move(shard.payload), at, shard.head.microbatch});
  const ReaderModel* reader = ReaderAt(call.process);
  const int64_t write_us = call.write_us + (reader->slow ? 3000 : 0);
  call.last_sent_us = std::max(now_us_, call.last_sent_us) + write_us;
  At(call.last_sent_us - now_us_, What::kSent, id);
  Answer(id, std::move(shard.head), call.last_sent_us + Latency(call));
}

void World::OnSent(size_t id) {
  Call& call = calls_[id];
  if (!call.server_alive || call.pinned.empty()) return;
  if (ReaderAt(call.process)->frozen) {
    if (++call.unsent == 1) At(5000 + random_.Below(10'000), What::kStalled, id);
    return;
  }
  const StepAddress at = std::move(call.pinned.front().at);
  const int64_t microbatch = call.pinned.front().microbatch;
  call.pinned.pop_front();
  ++operations_;
  server_->Sent(id, at, microbatch, Now());
  AfterCall();
}

void World::SayToLoader(size_t id, const Output& output) {
  const int process = calls_[id].process;
  const int group = history_.processes[process].group;
  if (const auto* position = std::get_if<Position>(&output.what)) {
    Record& record =
        NoteAt(Kind::kPosition, process, {position->stream, position->pass, position->from_step});
    record.call = id;
    record.epoch = position->epoch;
    record.generation = position->generation;
    record.state = position->state;
    record.value = position->released;
    if (scenario_.groups[group].declared &&
        !server_->View(scenario_.groups[group].job.group, Now())->opened) {
      coverage_.Saw(Event::kDeclared);
    }
    StreamSeen& seen = streams_seen_[{group, record.stream}];
    if (seen.epoch != position->epoch || seen.pass != position->pass) {
      LookAtViews();  // how far it went
      seen.whole.clear();
      seen.epoch = position->epoch;
      seen.pass = position->pass;
      seen.floor = position->released;
    }
    Answer(id, *position);
  } else if (const auto* released = std::get_if<Released>(&output.what)) {
    Record& record =
        NoteAt(Kind::kReleased, process, {released->stream, released->pass, released->before});
    record.epoch = released->epoch;
    StreamSeen& seen = streams_seen_[{group, record.stream}];
    if (seen.pass == released->pass) seen.floor = released->before;
    Answer(id, *released);
  } else if (const auto* credit = std::get_if<LoaderCredit>(&output.what)) {
    Answer(id, *credit);
  } else if (const auto* ack = std::get_if<PushAck>(&output.what)) {
    Answer(id, *ack);
  } else if (const auto* done = std::get_if<PassDone>(&output.what)) {
    Answer(id, *done);
  } else if (const auto* drain = std::get_if<DrainNotice>(&output.what)) {
    Answer(id, *drain);
  }
}

// A group has closed: the loaders that are connected learn of it.
void World::TellLoadersOfEnd(int group) {
  ended_group_ = true;
  for (LoaderModel& loader : loaders_) {
    if (history_.processes[loader.process].group != group || loader.last_call != 0) continue;
    if (calls_[loader.push_call].instance == instance_) loader.last_call = loader.push_call;
  }
}

void World::EndFromServer(size_t id, absl::Status status) {
  Call& call = calls_[id];
  Record& record = Note(Kind::kEnded, call.process);
  record.call = id;
  SetStatus(status, record);
  const Process& process = history_.processes[call.process];
  if (process.reader && status.ok()) TellLoadersOfEnd(process.group);
  Answer(id, EndCall{std::move(status)});
  // What the client has sent meanwhile still arrives; then the call is over.
  At(random_.OneIn(2) ? 1 : random_.Below(4 * call.latency_us), What::kCutServer, id);
}

}  // namespace cpshard::simulation
