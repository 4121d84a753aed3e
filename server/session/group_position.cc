// Where data streams stand: passes, positions and floors, as they follow from where the readers
// stand.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {

bool Group::AllSeated() const {
  return static_cast<int64_t>(readers_.size()) == terms_->cp_size * terms_->readers_per_rank;
}

// Whether the reader takes part in the pass that the data stream is in.
bool Group::IsIn(const Reader& reader, const Named& named) const {
  const Standing& standing = reader.standings.at(named.stream->name());
  return !reader.closed && !standing.finished && standing.pass == named.stream->pass();
}

// Whether there is nothing behind `next` in its pass.
bool Group::AtEnd(const Named& named, const StepAddress& next) {
  const std::optional<StepAddress>& end = named.last_end;
  return end && end->pass == next.pass && next.step >= end->step;
}

void Group::Settle() {
  if (!opened() || ended_ || terms_->generation < CurrentGeneration() || !AllSeated()) return;
  for (auto& [name, named] : streams_) {
    if (named.in_terms) SettleStream(named);
  }
  if (AllSeatedHaveClosed()) EndGroup();
}

void Group::SettleStream(Named& named) {
  SettlePass(named);
  if (named.over || !failure_.ok()) return;
  DataStream& stream = *named.stream;
  if (stream.positioned()) {
    SettleFloor(named);
    RefuseSome(named);
    Serve(named);
    return;
  }
  if (!stream.all_loaders_there()) return;
  for (const auto& [name, reader] : readers_) {
    if (IsIn(reader, named) && !reader.standings.at(stream.name()).open) return;
  }
  SetPosition(named);
}

// The pass is the lowest that a reader is in: those at a later one have closed it.
void Group::SettlePass(Named& named) {
  DataStream& stream = *named.stream;
  std::optional<int64_t> lowest;
  for (const auto& [name, reader] : readers_) {
    const Standing& standing = reader.standings.at(stream.name());
    if (reader.closed || standing.finished) continue;
    lowest = std::min(standing.pass, lowest.value_or(standing.pass));
  }
  named.settled = terms_->generation;
  if (WaitsForJob() &&
      jobs_.EnterPass(terms_->job, name_, stream.name(), lowest.value_or(INT64_MAX))) {
    outbox_.job_moved = terms_->job;
  }
  if (lowest == stream.pass()) return;
  if (!lowest) {
    if (named.over) return;
    named.over = true;
    // A new server has not seen the passes that they have left.
    int64_t last = stream.pass();
    for (const auto& [name, reader] : readers_) {
      last = std::max(last, reader.standings.at(stream.name()).pass - 1);
    }
    stream.SayDone(last, /*finished=*/true);
    stream.BeginPass(last);
    GiveRoom(named);
    named.sought = false;
    return;
  }
  if (*lowest > stream.pass()) stream.SayDone(*lowest - 1, /*finished=*/false);
  stream.BeginPass(*lowest);
  named.sought = false;
}

void Group::SetPosition(Named& named) {
  DataStream& stream = *named.stream;
  const Window& window = stream.window();
  int64_t position = INT64_MAX;
  for (const auto& [name, reader] : readers_) {
    if (!IsIn(reader, named)) continue;
    const Standing& standing = reader.standings.at(stream.name());
    // Not next_step: what was committed meanwhile came without the states of loaders.
    position = std::min(position, standing.opened_at);
    const int64_t loaders = standing.resume ? standing.resume->num_loaders : 0;
    if (loaders != 0 && loaders != stream.num_loaders()) {
      return Fail(LoadersDiffer(stream.name(), stream.num_loaders(), loaders));
    }
  }
  if (position == INT64_MAX) return;
  // Behind step 0 it depends on the state that it began from, and it began from none.
  if (std::exchange(named.prefetched, false) && position > 0) named.sought = false;
  const bool kept = named.sought && position >= window.floor() && position < window.end();
  if (kept) {
    stream.Keep(terms_->generation);
  } else {
    const std::optional<ResumeState> state = StateBefore(named, position);
    if (!state) return Fail(NoState(stream.At(position - 1)));
    stream.Seek(position, *state, terms_->generation);
    named.sought = true;
  }
  for (auto& [name, reader] : readers_) reader.standings.at(stream.name()).resume.reset();
  named.announced = window.floor();
  if (WaitsForJob()) {
    // Groups that are behind do not wait for what this one has had.
    jobs_.Forget(terms_->job, name_, stream.At(window.floor()));
    outbox_.job_moved = terms_->job;
    Announce(named);
  }
  SettleFloor(named);
  RefuseSome(named);
  Serve(named);
}

std::optional<ResumeState> Group::StateBefore(const Named& named, int64_t step) const {
  if (step == 0) return ResumeState{};
  const DataStream& stream = *named.stream;
  for (const auto& [name, reader] : readers_) {
    if (!IsIn(reader, named)) continue;
    const Standing& standing = reader.standings.at(stream.name());
    if (standing.opened_at == step && standing.resume) return standing.resume;
  }
  const Window& window = stream.window();
  if (named.sought && step >= window.floor() && step <= window.frontier()) {
    return stream.states().At(step - 1, stream.num_loaders());
  }
  return std::nullopt;
}

void Group::SettleFloor(Named& named) {
  DataStream& stream = *named.stream;
  if (!stream.positioned()) return;
  int64_t lowest = INT64_MAX;
  for (const auto& [name, reader] : readers_) {
    if (!IsIn(reader, named)) continue;
    lowest = std::min(lowest, reader.standings.at(stream.name()).next_step);
  }
  if (lowest == INT64_MAX) return;
  const int64_t floor = std::min(lowest - options_.replay_steps, stream.window().frontier());
  if (stream.SetFloor(floor) && WaitsForJob()) {
    jobs_.Forget(terms_->job, name_, stream.At(floor));
  }
}

void Group::LeaveJob() {
  if (!opened() || !WaitsForJob()) return;
  jobs_.Leave(terms_->job, name_);
  outbox_.job_moved = terms_->job;
}

// The group has no step from `end` on.
void Group::LeaveJobAt(const StepAddress& end) {
  jobs_.SetEnd(terms_->job, name_, end);
  outbox_.job_moved = terms_->job;
}

void Group::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  outbox_.alerts.push_back(
      {"GENERATION_FAILED", name_,
       absl::StrCat("generation ", terms_->generation, ": ", status.message())});
  for (auto& [name, named] : streams_) {
    named.stream->Suspend();
    RefuseSome(named);
  }
}

bool Group::AllLeft() const {
  return !readers_.empty() && !AllSeatedHaveClosed() &&
         std::all_of(readers_.begin(), readers_.end(),
                     [](const auto& entry) { return entry.second.left || entry.second.closed; });
}

bool Group::OnlyClosersAreHere() const {
  return opened() && !ended_ && !readers_.empty() && !AllSeated() && AllSeatedHaveClosed();
}

bool Group::AllSeatedHaveClosed() const {
  return std::all_of(readers_.begin(), readers_.end(),
                     [](const auto& entry) { return entry.second.closed; });
}

// The others have not opened on this server: one before it has told them that all have closed.
void Group::EndWithoutTheRest() {
  for (auto& [name, named] : streams_) {
    if (named.in_terms) SettlePass(named);
  }
  EndGroup();
}

// What nobody comes for gives its room to others. Readers that come back find what they would on a
// server that has started anew, but for those that have closed.
void Group::Abandon(absl::Time now) {
  abandoned_ = true;
  seated_at_ = now;  // from when on those who close wait for the others
  if (!closing_.empty()) next_tick_ = std::min(next_tick_, now + options_.rank_timeout);
  outbox_.alerts.push_back(
      {"GROUP_ABANDONED", name_,
       absl::StrCat("all readers of generation ", terms_->generation, " have left")});
  for (auto& [name, named] : streams_) {
    named.stream->Suspend();
    if (named.sought) named.stream->BeginPass(named.stream->pass());
    named.sought = named.over = false;
    GiveRoom(named);
  }
  std::erase_if(readers_, [](const auto& entry) { return !entry.second.closed; });
}

void Group::GiveRoom(Named& named) {
  if (!declared()) (void)named.stream->SetStepBytes(0);
}

// Precondition: CheckRoom passed.
void Group::Resume() {
  abandoned_ = false;
  for (auto& [name, named] : streams_) {
    if (named.in_terms) (void)named.stream->SetStepBytes(named.max_step_bytes);
  }
}

void Group::EndGroup() {
  LeaveJob();
  ended_ = true;
  for (const auto& [peer, reader] : closing_) outbox_.Say(peer, EndCall{absl::OkStatus()});
  closing_.clear();
}

}  // namespace cpshard
