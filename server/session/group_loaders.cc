// What loaders bring.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {

absl::Status Group::Hello(PeerId peer, const LoaderHello& hello, absl::Time now) {
  for (const LoaderStream& asked : hello.streams) {
    const Named* named = Find(asked.name);
    if (named == nullptr && declared()) return UnknownStream(name_, asked.name);
    if (named == nullptr) {
      if (static_cast<int64_t>(streams_.size()) < 2 * options_.max_streams) continue;
      return TooMany(
          absl::StrCat("group ", name_, " has ", streams_.size(),
                       " data streams already, of runs that are over too (max_data_streams)"));
    }
    CPSHARD_RETURN_IF_ERROR(named->stream->CheckHello(hello));
  }
  std::set<PeerId> replaced;
  for (const LoaderStream& asked : hello.streams) {
    DataStream& stream = *Make(asked.name).stream;
    if (hello.num_loaders == stream.num_loaders()) {
      const PeerId old = stream.seats()[hello.loader].peer;
      if (old != 0 && old != peer) replaced.insert(old);
    } else {
      Find(asked.name)->sought = false;  // its window goes with the loaders that filled it
    }
    stream.TakeSeat(peer, hello, asked, now);
  }
  LearnGeneration(now);
  for (const LoaderStream& asked : hello.streams) {
    Named& named = *Find(asked.name);
    DataStream& stream = *named.stream;
    if (opened() && hello.generation_seen == terms_->generation) DropZombies(named, asked);
    // One that was started for the next generation, before its readers, waits for them.
    const bool of_next = opened() && hello.generation_seen > terms_->generation;
    if (named.over && !of_next) {
      outbox_.Say(peer, PassDone{asked.name, stream.pass(), /*finished=*/true});
    } else if (stream.positioned()) {
      stream.SayPosition(hello.loader, RunningGeneration());
    }
  }
  const std::string who = absl::StrCat("loader ", hello.loader, " of group ", name_);
  for (const PeerId old : replaced) outbox_.Say(old, EndCall{Replaced(who)});
  Prefetch();
  Settle();
  return absl::OkStatus();
}

// A declared group that nobody has opened begins at step 0 as soon as its loaders are there. Not
// one that has been under way, on a server before this one: its readers know where it is. Nor one
// whose run has ended: a loader that comes late to it cannot be told from one of the next run, and
// is done.
void Group::Prefetch() {
  if (!declared() || opened() || !failure_.ok()) return;
  for (auto& [name, named] : streams_) {
    DataStream& stream = *named.stream;
    if (named.sought || !stream.all_loaders_there() || !stream.all_loaders_fresh()) continue;
    stream.Seek(0, {}, RunningGeneration());
    named.sought = named.prefetched = true;
  }
}

// Readers that opened before a loader could tell that their next step is gone.
void Group::DropZombies(const Named& named, const LoaderStream& told) {
  if (!failure_.ok() || !named.in_terms || named.over || named.stream->positioned()) return;
  for (auto it = readers_.begin(); it != readers_.end();) {
    const Standing& standing = it->second.standings.at(told.name);
    const bool in_it = standing.open && !it->second.closed;
    const bool gone = in_it && (standing.pass < told.pass ||
                                (standing.pass == told.pass && standing.opened_at < told.released));
    if (!gone) {
      ++it;
      continue;
    }
    DropWaiters(it->second.peer);
    outbox_.Say(it->second.peer,
                EndCall{Zombie(absl::StrCat("reader ", it->first, " of group ", name_),
                               {told.name, standing.pass, standing.opened_at}, told.released)});
    it = readers_.erase(it);
  }
}

// A loader has seen it elsewhere. Of readers of an earlier one, that were here first, there is
// nothing to wait for. It counts while the loader that says so has the seat, and for rank_timeout
// without a connection: one that was mistaken is corrected by its replacement.
void Group::LearnGeneration(absl::Time now) {
  const int64_t before = std::exchange(generation_seen_, 0);
  for (const auto& [name, named] : streams_) {
    for (const LoaderSeat& seat : named.stream->seats()) {
      const absl::Time forgotten = seat.heard + options_.rank_timeout;
      if (!seat.known || (seat.peer == 0 && forgotten <= now)) continue;
      generation_seen_ = std::max(generation_seen_, seat.generation_seen);
      const bool matters = opened() && seat.generation_seen > terms_->generation;
      if (matters && seat.peer == 0) next_tick_ = std::min(next_tick_, forgotten);
    }
  }
  if (!opened() || terms_->generation >= generation_seen_ || before >= generation_seen_) return;
  for (auto& [name, named] : streams_) named.stream->Suspend();
  Fence(generation_seen_);
}

// Data streams of earlier generations that nobody loads any more.
void Group::PruneStreams() {
  if (!opened()) return;
  std::erase_if(streams_, [](const auto& entry) {
    return !entry.second.in_terms && entry.second.stream->idle();
  });
}

std::optional<PushTicket> Group::BeginPush(PeerId peer, int64_t loader, const PushHead& head,
                                           int64_t bytes, uint64_t push, absl::Time now) {
  Named* named = Find(head.at.stream);
  if (named == nullptr) {
    ++outbox_.counters.refused;
    outbox_.Say(
        peer, PushAck{head.at, head.epoch, head.microbatch, UnknownStream(name_, head.at.stream)});
    return std::nullopt;
  }
  named->stream->Heard(loader, now);
  absl::Status failure;
  auto ticket = named->stream->BeginPush(peer, loader, head, bytes, push, &failure);
  if (!failure.ok()) Fail(failure);
  return ticket;
}

void Group::EndPush(const PushTicket& ticket, absl::StatusOr<LandedBatch> landed) {
  Named* named = Find(ticket.head.at.stream);
  if (named == nullptr) return;  // pruned: it held no memory
  absl::Status failure;
  const bool moved = named->stream->EndPush(ticket, std::move(landed), &failure);
  if (named->stream->TakeNews()) {
    outbox_.alerts.push_back({"DIGEST_CHANGED", name_, named->stream->notice(), true});
  }
  if (!failure.ok()) return Fail(failure);
  if (!moved) return;
  if (WaitsForJob()) Announce(*named);
  SettleFloor(*named);
  Serve(*named);
}

// In order, so that the job's steps become ready in order too.
void Group::Announce(Named& named) {
  const Window& window = named.stream->window();
  named.announced = std::max(named.announced, window.floor());
  for (; named.announced < window.frontier(); ++named.announced) {
    const StepPtr step = window.Find(named.announced);
    std::vector<std::optional<int64_t>> needs;
    for (const Microbatch& microbatch : step->microbatches) {
      needs.push_back(microbatch.batch.row_need);
    }
    jobs_.Add(terms_->job, name_, named.stream->At(step->step), std::move(needs));
    outbox_.job_moved = terms_->job;
  }
}

absl::Status Group::DeclareEnd(PeerId peer, int64_t loader, const EndOfStream& end) {
  Named* named = Find(end.stream);
  if (named == nullptr) return UnknownStream(name_, end.stream);
  if (absl::Status status = named->stream->DeclareEnd(peer, loader, end); !status.ok()) {
    Fail(status);
    return status;
  }
  if (named->stream->end_step()) {
    named->last_end = named->stream->At(*named->stream->end_step());
    if (WaitsForJob()) {
      LeaveJobAt(named->stream->At(*named->stream->end_step()));
    }
    RefuseSome(*named);
  }
  return absl::OkStatus();
}

void Group::LoaderGone(int64_t loader, PeerId peer, absl::Time now) {
  for (auto& [name, named] : streams_) {
    if (loader < named.stream->num_loaders()) named.stream->LoaderGone(loader, peer, now);
  }
  LearnGeneration(now);  // for when it is forgotten
  PruneStreams();
}

}  // namespace cpshard
