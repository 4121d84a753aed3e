// Groups of one job that have to pad alike (D14): every step waits until all of them have it, and
// is then padded to the largest need.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/session_messages.h"

namespace cpshard {

// Not thread-safe.
class Jobs {
 public:
  // Of jobs that groups have left and not all have come to so many are remembered, those that were
  // left last.
  static constexpr size_t kMaxLeft = 1024;

  // A group that joins is waited for until it leaves; `expected` groups are, before they have
  // joined.
  void Join(const std::string& job, const std::string& group, int64_t expected);
  void Leave(const std::string& job, const std::string& group);
  // The group has the step; one need per microbatch, absent where there is none.
  void Add(const std::string& job, const std::string& group, const StepAddress& at,
           std::vector<std::optional<int64_t>> needs);
  // The group has no step from this one on in this pass.
  void SetEnd(const std::string& job, const std::string& group, const StepAddress& end);
  // The group has left the passes of the data stream before this one. True: it had not before.
  bool EnterPass(const std::string& job, const std::string& group, const std::string& stream,
                 int64_t pass);
  // The group will not ask for steps before this one again.
  void Forget(const std::string& job, const std::string& group, const StepAddress& before);

  // Whether all groups have the step.
  bool Ready(const std::string& job, const StepAddress& at) const;
  // The largest need of a microbatch. What was said once holds until the step is forgotten,
  // whatever groups do meanwhile: all ranks pad alike. Precondition: Ready.
  std::optional<int64_t> NeedOf(const std::string& job, const StepAddress& at, int64_t microbatch);

  size_t size() const { return jobs_.size(); }

 private:
  using Needs = std::vector<std::optional<int64_t>>;
  struct Job {
    int64_t PassOf(const std::string& group, const std::string& stream) const;

    int64_t expected = 1;
    int64_t left_at = 0;  // as leavings_ counts, while nobody is in it
    std::set<std::string> groups, left;
    std::map<StepAddress, std::map<std::string, Needs>> steps;
    std::map<StepAddress, Needs> agreed;
    std::map<std::string, std::map<std::pair<std::string, int64_t>, int64_t>> ends, floors;
    std::map<std::string, std::map<std::string, int64_t>> passes;
  };
  void ForgetSome();

  std::map<std::string, Job> jobs_;
  std::map<int64_t, std::string> left_;  // jobs that nobody is in, by left_at
  int64_t leavings_ = 0;
};

}  // namespace cpshard
