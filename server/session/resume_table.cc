#include "server/session/resume_table.h"

#include <utility>

namespace cpshard {

void ResumeTable::Seed(const ResumeState& state) {
  loaders_.clear();
  for (const auto& [loader, latest] : state.loaders) Add(loader, latest);
}

void ResumeTable::Add(int64_t loader, LoaderState state) {
  Loader& of = loaders_[loader];
  of.last_arrived = state.step;
  of.states[state.step] = std::move(state.state);
}

void ResumeTable::Drop(int64_t loader, int64_t step) {
  const auto it = loaders_.find(loader);
  if (it != loaders_.end()) it->second.states.erase(step);
}

void ResumeTable::SetFloor(int64_t floor) {
  for (auto& [loader, of] : loaders_) {
    auto first_kept = of.states.lower_bound(floor);
    if (first_kept != of.states.begin()) --first_kept;  // the latest below the floor
    of.states.erase(of.states.begin(), first_kept);
  }
}

ResumeState ResumeTable::At(int64_t step, int64_t num_loaders) const {
  ResumeState state;
  state.num_loaders = num_loaders;
  for (const auto& [loader, of] : loaders_) {
    auto it = rules_.states_by_step
                  ? of.states.upper_bound(rules_.resume_is_exact ? step : step + num_loaders)
                  : of.states.upper_bound(of.last_arrived);
    if (it == of.states.begin()) continue;
    --it;
    state.loaders[loader] = {it->first, it->second};
  }
  return state;
}

std::optional<LoaderState> ResumeTable::Below(int64_t loader, int64_t step) const {
  const auto of = loaders_.find(loader);
  if (of == loaders_.end()) return std::nullopt;
  auto it = of->second.states.lower_bound(step);
  if (it == of->second.states.begin()) return std::nullopt;
  --it;
  return LoaderState{it->first, it->second};
}

std::optional<std::string> ResumeTable::Of(int64_t loader, int64_t step) const {
  const auto of = loaders_.find(loader);
  if (of == loaders_.end()) return std::nullopt;
  const auto& states = of->second.states;
  auto it = states.find(rules_.states_by_step ? step : of->second.last_arrived);
  if (it == states.end()) return std::nullopt;
  if (!rules_.resume_is_exact && it != states.begin()) --it;
  return it->second;
}

}  // namespace cpshard
