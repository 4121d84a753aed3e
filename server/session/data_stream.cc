// Positions, credits and the end. (data_stream_loaders.cc: who loads; data_stream_push.cc: what
// lands.)
#include "server/session/data_stream.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/session/errors.h"

namespace cpshard {

DataStream::DataStream(std::string name, const DeliveryOptions& options, Budget& budget,
                       Outbox& outbox)
    : name_(std::move(name)),
      options_(options),
      budget_(budget),
      outbox_(outbox),
      window_(options.replay_steps, options.ahead_steps, budget),
      states_(options.rules) {}

bool DataStream::SetStepBytes(int64_t max_step_bytes) {
  if (!budget_.SetGuarantee(window_.account(), GuaranteeOf(options_, max_step_bytes))) return false;
  max_step_bytes_ = max_step_bytes;
  return true;
}

void DataStream::BeginPass(int64_t pass) {
  pass_ = pass;
  ++epoch_;
  positioned_ = false;
  lowest_end_.reset();
  end_step_.reset();
  window_.Seek(0);
  states_.Seed({});
  digests_.Clear();
  for (LoaderSeat& seat : seats_) seat.declared_end.reset();
}

void DataStream::Seek(int64_t step, const ResumeState& state, int64_t generation) {
  ++epoch_;
  ++outbox_.counters.seeks;
  lowest_end_.reset();
  end_step_.reset();
  window_.Seek(step);
  states_.Seed(state);
  for (LoaderSeat& seat : seats_) seat.declared_end.reset();
  Keep(generation);
}

void DataStream::Keep(int64_t generation) {
  positioned_ = true;
  for (int64_t loader = 0; loader < num_loaders(); ++loader) SayPosition(loader, generation);
}

void DataStream::SayDone(int64_t pass, bool finished) {
  for (const LoaderSeat& seat : seats_) outbox_.Say(seat.peer, PassDone{name_, pass, finished});
}

bool DataStream::SetFloor(int64_t floor) {
  if (!window_.SetFloor(floor)) return false;
  states_.SetFloor(floor);
  for (LoaderSeat& seat : seats_) {
    if (seat.peer == 0) continue;
    outbox_.Say(seat.peer, Released{name_, pass_, epoch_, floor});
    seat.hello.released = floor;
  }
  return true;
}

// --- credits

bool DataStream::WantsGrant() const {
  if (!positioned_ || window_.granted_end() >= window_.end()) return false;
  return !lowest_end_ || window_.granted_end() < *lowest_end_;
}

bool DataStream::Grant() {
  if (!WantsGrant()) return false;
  const StepPtr step = window_.Grant(pass_, epoch_, max_step_bytes_);
  if (step == nullptr) return false;
  SayCredit(*step);
  return true;
}

void DataStream::SayCredit(const Step& step) {
  outbox_.Say(seats_[OwnerOf(step.step)].peer,
              LoaderCredit{At(step.step), epoch_, max_step_bytes_});
}

bool DataStream::TakeBackShared(int64_t generation) {
  std::set<int64_t> owners;
  while (const StepPtr step = window_.TakeBackShared()) owners.insert(OwnerOf(step->step));
  for (const int64_t loader : owners) SayPosition(loader, generation);
  return !owners.empty();
}

// --- the end

absl::Status DataStream::DeclareEnd(PeerId peer, int64_t loader, const EndOfStream& end) {
  if (!IsSeated(peer, loader)) return absl::OkStatus();
  if (!positioned_ || end.pass != pass_ || end.epoch != epoch_) return absl::OkStatus();
  for (int64_t other = 0; other < num_loaders(); ++other) {
    const std::optional<int64_t> theirs = seats_[other].declared_end;
    if (theirs && *theirs != end.end_step) {
      return EndsDiffer(name_, loader, end.end_step, other, *theirs);
    }
  }
  for (int64_t step = std::max(end.end_step, window_.floor()); step < window_.granted_end();
       ++step) {
    if (window_.Find(step)->Begun()) return BeyondEnd(At(step), end.end_step);
  }
  if (end.end_step < window_.floor()) return BeyondEnd(At(window_.floor()), end.end_step);
  seats_[loader].declared_end = lowest_end_ = end.end_step;
  window_.Truncate(end.end_step);
  const bool all = std::all_of(seats_.begin(), seats_.end(), [](const LoaderSeat& seat) {
    return seat.declared_end.has_value();
  });
  if (all) end_step_ = end.end_step;
  return absl::OkStatus();
}

}  // namespace cpshard
