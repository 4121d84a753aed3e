#include "server/session/job.h"

#include <algorithm>
#include <utility>

namespace cpshard {

void Jobs::Join(const std::string& job, const std::string& group, int64_t expected) {
  Job& of = jobs_[job];
  left_.erase(std::exchange(of.left_at, 0));
  of.expected = expected;
  of.groups.insert(group);
  of.left.erase(group);
}

void Jobs::Leave(const std::string& job, const std::string& group) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  Job& of = it->second;
  of.groups.erase(group);
  of.left.insert(group);
  of.ends.erase(group);
  of.floors.erase(group);
  of.passes.erase(group);
  // Groups that come only now do not wait for those that have left.
  const bool all_left = static_cast<int64_t>(of.left.size()) >= of.expected;
  if (!of.groups.empty()) return;
  left_.erase(of.left_at);  // it was left before
  if (all_left) {
    jobs_.erase(it);
    return;
  }
  const int64_t expected = of.expected;
  of = Job{.expected = expected, .left_at = ++leavings_, .groups = {}, .left = std::move(of.left)};
  left_[of.left_at] = job;
  ForgetSome();
}

void Jobs::ForgetSome() {
  while (jobs_.size() > kMaxLeft && !left_.empty()) {
    jobs_.erase(left_.begin()->second);
    left_.erase(left_.begin());
  }
}

void Jobs::Add(const std::string& job, const std::string& group, const StepAddress& at,
               Needs needs) {
  jobs_[job].steps[at][group] = std::move(needs);
}

void Jobs::SetEnd(const std::string& job, const std::string& group, const StepAddress& end) {
  jobs_[job].ends[group][{end.stream, end.pass}] = end.step;
}

int64_t Jobs::Job::PassOf(const std::string& group, const std::string& stream) const {
  const auto of = passes.find(group);
  if (of == passes.end()) return 0;
  const auto pass = of->second.find(stream);
  return pass == of->second.end() ? 0 : pass->second;
}

bool Jobs::EnterPass(const std::string& job, const std::string& group, const std::string& stream,
                     int64_t pass) {
  Job& of = jobs_[job];
  if (pass <= of.PassOf(group, stream)) return false;
  of.passes[group][stream] = pass;
  for (auto* marks : {&of.ends[group], &of.floors[group]}) {
    marks->erase(marks->lower_bound({stream, 0}), marks->lower_bound({stream, pass}));
  }
  for (const std::string& other : of.groups) pass = std::min(pass, of.PassOf(other, stream));
  const StepAddress first{stream, 0, 0}, end{stream, pass, 0};
  of.steps.erase(of.steps.lower_bound(first), of.steps.lower_bound(end));
  of.agreed.erase(of.agreed.lower_bound(first), of.agreed.lower_bound(end));
  return true;
}

void Jobs::Forget(const std::string& job, const std::string& group, const StepAddress& before) {
  Job& of = jobs_[job];
  of.floors[group][{before.stream, before.pass}] = before.step;
  int64_t lowest = before.step;
  for (const std::string& other : of.groups) {
    const auto floors = of.floors.find(other);
    if (floors == of.floors.end()) return;
    const auto floor = floors->second.find({before.stream, before.pass});
    if (floor == floors->second.end()) return;
    lowest = std::min(lowest, floor->second);
  }
  const StepAddress first{before.stream, before.pass, 0}, end{before.stream, before.pass, lowest};
  of.steps.erase(of.steps.lower_bound(first), of.steps.lower_bound(end));
  of.agreed.erase(of.agreed.lower_bound(first), of.agreed.lower_bound(end));
}

bool Jobs::Ready(const std::string& job, const StepAddress& at) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return false;
  const Job& of = it->second;
  if (static_cast<int64_t>(of.groups.size() + of.left.size()) < of.expected) return false;
  const auto step = of.steps.find(at);
  return std::all_of(of.groups.begin(), of.groups.end(), [&](const std::string& group) {
    if (step != of.steps.end() && step->second.contains(group)) return true;
    if (at.pass < of.PassOf(group, at.stream)) return true;
    // It has had the step, on a server before this one.
    const auto floors = of.floors.find(group);
    if (floors != of.floors.end()) {
      const auto floor = floors->second.find({at.stream, at.pass});
      if (floor != floors->second.end() && at.step < floor->second) return true;
    }
    const auto ends = of.ends.find(group);
    if (ends == of.ends.end()) return false;
    const auto end = ends->second.find({at.stream, at.pass});
    return end != ends->second.end() && end->second <= at.step;
  });
}

std::optional<int64_t> Jobs::NeedOf(const std::string& job, const StepAddress& at,
                                    int64_t microbatch) {
  Job& of = jobs_.at(job);
  const auto [it, is_new] = of.agreed.try_emplace(at);
  Needs& agreed = it->second;
  if (is_new) {
    for (const auto& [group, needs] : of.steps.at(at)) {
      agreed.resize(std::max(agreed.size(), needs.size()));
      for (size_t i = 0; i < needs.size(); ++i) {
        agreed[i] = std::max(agreed[i], needs[i]);  // an absent one is the smallest
      }
    }
  }
  return microbatch < static_cast<int64_t>(agreed.size()) ? agreed[microbatch] : std::nullopt;
}

}  // namespace cpshard
