// Who loads a data stream: seats, and what a loader is told when it takes one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/session/data_stream.h"
#include "server/session/errors.h"

namespace cpshard {

bool DataStream::all_loaders_there() const {
  return !seats_.empty() &&
         std::none_of(seats_.begin(), seats_.end(), [](const LoaderSeat& s) { return s.awaited; });
}

bool DataStream::all_loaders_fresh() const {
  for (int64_t loader = 0; loader < num_loaders(); ++loader) {
    const LoaderStream& hello = seats_[loader].hello;
    if (seats_[loader].generation_seen > 0) return false;
    if (hello.pass > 0 || hello.released > 0 || hello.held_from > loader) return false;
  }
  return true;
}

bool DataStream::idle() const {
  return window_.account().used == 0 &&
         std::none_of(seats_.begin(), seats_.end(),
                      [](const LoaderSeat& s) { return s.peer != 0; });
}

void DataStream::DeclareLoaders(int64_t num_loaders) {
  seats_.assign(num_loaders, {});
  loaders_declared_ = true;
}

void DataStream::AwaitAbsentLoaders() {
  for (LoaderSeat& seat : seats_) seat.awaited |= seat.peer == 0;
}

absl::Status DataStream::CheckHello(const LoaderHello& hello) const {
  if (num_loaders() != 0 && hello.num_loaders != num_loaders()) {
    // A job that starts anew may have another number; one that goes on may not.
    const bool anybody = positioned_ || std::any_of(seats_.begin(), seats_.end(),
                                                    [](const auto& s) { return s.peer != 0; });
    return anybody || loaders_declared_ ? LoadersDiffer(name_, hello.num_loaders, num_loaders())
                                        : absl::OkStatus();
  }
  if (num_loaders() == 0) return absl::OkStatus();
  const LoaderSeat& seat = seats_[hello.loader];
  if (seat.known && hello.incarnation < seat.incarnation) {
    return StaleIncarnation(absl::StrCat("loader ", hello.loader, " of data stream ", name_),
                            hello.incarnation, seat.incarnation);
  }
  return absl::OkStatus();
}

void DataStream::TakeSeat(PeerId peer, const LoaderHello& hello, const LoaderStream& stream,
                          absl::Time now) {
  if (num_loaders() != hello.num_loaders) {
    seats_.assign(hello.num_loaders, {});
    BeginPass(pass_);
  }
  LoaderSeat& seat = seats_[hello.loader];
  const bool is_new_process = seat.known && hello.incarnation > seat.incarnation;
  if (is_new_process) DropUndelivered(hello.loader);
  seat.known = true;
  seat.awaited = false;
  seat.peer = peer;
  seat.incarnation = hello.incarnation;
  seat.heard = now;
  seat.hello = stream;
  seat.generation_seen = hello.generation_seen;
}

void DataStream::LoaderGone(int64_t loader, PeerId peer, absl::Time now) {
  LoaderSeat& seat = seats_[loader];
  if (seat.peer != peer) return;
  seat.peer = 0;
  seat.heard = now;
}

void DataStream::SayPosition(int64_t loader, int64_t generation) {
  LoaderSeat& seat = seats_[loader];
  if (seat.peer == 0) return;
  Position position;
  position.generation = std::max(seat.generation_seen, generation);
  position.stream = name_;
  position.pass = pass_;
  position.epoch = epoch_;
  const int64_t count = num_loaders();
  int64_t step = window_.floor() + (loader - window_.floor() % count + count) % count;
  while (window_.Find(step) != nullptr && window_.Find(step)->complete) step += count;
  position.from_step = step;
  if (const StepPtr there = window_.Find(step)) {
    for (size_t i = 0; i < there->microbatches.size(); ++i) {
      // What an earlier process brought comes again, so that the two can be compared.
      const Microbatch& microbatch = there->microbatches[i];
      if (microbatch.landed && microbatch.incarnation == seat.incarnation) {
        position.landed.push_back(static_cast<int64_t>(i));
      }
    }
  }
  position.state = states_.Below(loader, step);
  position.released = window_.floor();
  outbox_.Say(seat.peer, std::move(position));
  // What it would say in a hello.
  seat.generation_seen = std::max(seat.generation_seen, generation);
  seat.hello.pass = pass_;
  seat.hello.released = window_.floor();
  for (; step < window_.granted_end(); step += count) {
    const StepPtr there = window_.Find(step);
    if (!there->complete) {
      SayCredit(*there);
      continue;
    }
    // It landed ahead of one that is missing: a new process has no other way to know.
    for (int64_t m = 0; m < *there->count; ++m) {
      outbox_.Say(seat.peer, PushAck{At(step), epoch_, m, absl::OkStatus()});
    }
  }
}

// Of incomplete steps: what was delivered stays, and the new process is held to it.
void DataStream::DropUndelivered(int64_t loader) {
  for (int64_t step = window_.frontier(); step < window_.granted_end(); ++step) {
    if (OwnerOf(step) != loader) continue;
    Step& there = *window_.Find(step);
    if (there.complete) continue;
    bool any_delivered = false;
    for (Microbatch& microbatch : there.microbatches) {
      any_delivered |= microbatch.delivered;
      // A landing one ends by itself, and is dropped then: its bytes are in use until it does.
      if (microbatch.landed && !microbatch.delivered) microbatch = {};
    }
    if (!any_delivered) {
      there.TakeBack(0, /*was_last=*/true);
      states_.Drop(loader, step);
    }
  }
}

}  // namespace cpshard
