// Requests and their steps: who gets what, when, and who is told that it will not come.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {

void Group::Serve(Named& named) {
  const int64_t last = options_.rules.release_in_order ? named.stream->window().frontier()
                                                       : named.stream->window().end();
  for (auto it = named.waiters.begin(); it != named.waiters.end() && it->first <= last;) {
    it = ServeWaiter(named, it->second) ? named.waiters.erase(it) : std::next(it);
  }
}

void Group::RefuseSome(Named& named) {
  for (auto it = named.waiters.begin(); it != named.waiters.end();) {
    auto refusal = Refusal(named, it->second);
    if (refusal) Answer(it->second, *std::move(refusal));
    it = refusal ? named.waiters.erase(it) : std::next(it);
  }
}

void Group::ServeAll() {
  for (auto& [name, named] : streams_) Serve(named);
}

std::optional<absl::Status> Group::Refusal(const Named& named, const Waiter& waiter) const {
  if (!failure_.ok()) return failure_;
  if (named.over && AtEnd(named, waiter.want.at)) {
    return EndReached(waiter.want.at, named.last_end->step);
  }
  const DataStream& stream = *named.stream;
  const StepAddress& at = waiter.want.at;
  if (stream.pass() == at.pass && stream.positioned()) {
    const int64_t late = !options_.rules.same_end_for_all && waiter.call.cp_rank == 0 ? 1 : 0;
    if (stream.end_step() && at.step >= *stream.end_step() + late) {
      return EndReached(at, *stream.end_step() + late);
    }
    if (at.step < stream.window().floor()) return BelowFloor(at, stream.window().floor());
    const StepPtr step = stream.window().Find(at.step);
    if (step != nullptr && step->complete && at.step < stream.window().frontier()) {
      return std::nullopt;
    }
  }
  for (const auto& [name, reader] : readers_) {
    if (!reader.left || reader.closed || reader.name == waiter.call.reader) continue;
    const Standing& standing = reader.standings.at(at.stream);
    return PeerLeft(name, reader.cp_rank, standing.next_step - 1, options_.rank_timeout);
  }
  return std::nullopt;
}

bool Group::MayDeliver(const Named& named, const Step& step) const {
  const Window& window = named.stream->window();
  if (!options_.rules.release_in_order) return step.complete;
  if (!step.complete) {
    return step.declared && step.step == window.frontier() && !WaitsForJob();
  }
  if (step.step >= window.frontier()) return false;
  if (!WaitsForJob()) return true;
  // In order for the job too: a group that starts again lacks what others have had.
  for (int64_t before = window.floor(); before <= step.step; ++before) {
    if (!jobs_.Ready(terms_->job, named.stream->At(before))) return false;
  }
  return true;
}

bool Group::ServeWaiter(Named& named, Waiter& waiter) {
  if (auto refusal = Refusal(named, waiter)) {
    Answer(waiter, *std::move(refusal));
    return true;
  }
  const DataStream& stream = *named.stream;
  const Want& want = waiter.want;
  if (!stream.positioned() || stream.pass() != want.at.pass) return false;
  const StepPtr step = stream.window().Find(want.at.step);
  if (step == nullptr) return false;
  if (want.microbatch && step->complete && *want.microbatch >= *step->count) {
    Answer(waiter, absl::InvalidArgumentError(absl::StrCat(Name(want.at), " has ", *step->count,
                                                           " microbatches; asked for was ",
                                                           *want.microbatch)));
    return true;
  }
  while (step->Landed(waiter.next) && MayDeliver(named, *step)) {
    const int64_t microbatch = waiter.next++;
    Deliver(named, waiter, *step, microbatch);
    const bool last = step->count && microbatch + 1 == *step->count;
    if (last || want.microbatch) {
      Uncount(waiter);
      return true;
    }
  }
  return false;
}

void Group::Deliver(Named& named, Waiter& waiter, Step& step, int64_t microbatch) {
  const DataStream& stream = *named.stream;
  Microbatch& batch = step.microbatches[microbatch];
  DeliverShard deliver;
  DeliveryHead& head = deliver.head;
  head.id = waiter.want.id;
  head.at = waiter.want.at;
  head.microbatch = microbatch;
  head.last = step.count && microbatch + 1 == *step.count;
  if (step.complete) head.totals = step.totals;
  if (!step.complete) head.totals = step.declared;
  head.digest = batch.batch.digest;
  head.num_loaders = stream.num_loaders();
  head.owner = step.step % head.num_loaders;
  if (head.last) head.owner_state = stream.states().Of(head.owner, step.step);
  deliver.payload = batch.batch.payload;
  deliver.terms = waiter.call.terms;
  deliver.cp_rank = waiter.call.cp_rank;
  deliver.keys = waiter.want.keys;
  if (WaitsForJob()) {
    deliver.min_padded_len = jobs_.NeedOf(terms_->job, waiter.want.at, microbatch);
  }
  batch.delivered = true;
  Window::Pin(step);
  delivered_.push_back(
      {waiter.call.peer, microbatch, stream.window().Find(step.step), stream.name()});
  // Of a step that was not delivered to its end nothing can be committed.
  if (Reader* reader = FindReader(waiter.call.reader)) {
    Standing& standing = reader->standings.at(stream.name());
    if (head.last) standing.delivered = std::max(standing.delivered, step.step);
    if (!head.last && !waiter.want.microbatch && waiter.call.lasting) {
      standing.begun = {step.step, stream.epoch(), microbatch + 1};
    }
  }
  ++outbox_.counters.delivered;
  outbox_.Say(waiter.call.peer, std::move(deliver));
}

void Group::Answer(Waiter& waiter, absl::Status status) {
  Uncount(waiter);
  outbox_.Say(waiter.call.peer, RequestStatus{waiter.want.id, std::move(status)});
}

void Group::Uncount(Waiter& waiter) {
  if (!waiter.counted) return;
  waiter.counted = false;
  if (Reader* reader = FindReader(waiter.call.reader)) --reader->wants;
}

void Group::DropWaiters(PeerId peer) {
  if (peer == 0) return;
  for (auto& [name, named] : streams_) {
    for (auto it = named.waiters.begin(); it != named.waiters.end();) {
      const bool of_this = it->second.call.peer == peer;
      if (of_this) Uncount(it->second);
      it = of_this ? named.waiters.erase(it) : std::next(it);
    }
  }
}

// Of a reader whose process is gone, on whichever call.
void Group::AnswerAll(const std::string& reader, const absl::Status& status) {
  for (auto& [name, named] : streams_) {
    for (auto it = named.waiters.begin(); it != named.waiters.end();) {
      const bool of_this = it->second.call.reader == reader;
      if (of_this) Answer(it->second, status);
      it = of_this ? named.waiters.erase(it) : std::next(it);
    }
  }
}

// --- time and room

void Group::Tick(absl::Time now) {
  next_tick_ = absl::InfiniteFuture();
  if (opened() && generation_seen_ > terms_->generation) LearnGeneration(now);
  bool somebody_left = false;
  for (auto& [name, reader] : readers_) {
    if (reader.peer != 0 || reader.closed || reader.left || ended_) continue;
    if (reader.wants > 0) reader.away_since = now;  // a single call waits
    const absl::Time leaves = reader.away_since + options_.rank_timeout;
    reader.left = now >= leaves;
    somebody_left |= reader.left;
    if (!reader.left) next_tick_ = std::min(next_tick_, leaves);
  }
  if (OnlyClosersAreHere()) {
    const absl::Time ends = seated_at_ + options_.rank_timeout;
    if (now >= ends) return EndWithoutTheRest();
    next_tick_ = std::min(next_tick_, ends);
  }
  // One of a job stays: the others hold what it had, and cannot go on without it.
  if (AllLeft() && !abandoned_ && !ended_ && !WaitsForJob()) Abandon(now);
  for (auto& [name, named] : streams_) {
    if (somebody_left) RefuseSome(named);
    for (auto it = named.waiters.begin(); it != named.waiters.end();) {
      const bool late = it->second.deadline <= now;
      if (late) {
        Answer(it->second, NotReady(it->second.want.at, WaitingFor(named, it->first, now)));
      } else {
        next_tick_ = std::min(next_tick_, it->second.deadline);
      }
      it = late ? named.waiters.erase(it) : std::next(it);
    }
  }
}

void Group::GrantGuaranteed() {
  if (draining) return;
  for (auto& [name, named] : streams_) {
    const Account& account = named.stream->window().account();
    const int64_t step = named.stream->max_step_bytes();
    while (account.used + step <= account.guarantee && named.stream->Grant()) {
    }
  }
}

bool Group::WantsGrant() const {
  return !draining && std::any_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    return entry.second.stream->WantsGrant();
  });
}

bool Group::LacksGuaranteed() const {
  return !draining && std::any_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    const DataStream& stream = *entry.second.stream;
    const Account& account = stream.window().account();
    return account.used + stream.max_step_bytes() <= account.guarantee && stream.WantsGrant();
  });
}

bool Group::TakeBackShared() {
  bool any = false;
  for (auto& [name, named] : streams_) {
    if (named.stream->positioned()) {
      any |= named.stream->TakeBackShared(RunningGeneration());
    }
  }
  return any;
}

bool Group::GrantShared() {
  if (draining) return false;
  return std::any_of(streams_.begin(), streams_.end(),
                     [](auto& entry) { return entry.second.stream->Grant(); });
}

}  // namespace cpshard
