#include <signal.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/batch/failpoint.h"

namespace cpshard {
namespace {

struct Action {
  int signal = 0;
  int64_t at = 0;  // the pass that it happens at, from 1 on
  std::atomic<int64_t> passes = 0;
};

// A misspelt variable would make a test that finds nothing.
[[noreturn]] void Refuse(const std::string& text) {
  std::fprintf(stderr, "CPSHARD_FAILPOINTS: '%s' is not name=kill@n or name=stop@n\n",
               text.c_str());
  std::abort();
}

std::map<std::string, Action> FromEnvironment() {
  std::map<std::string, Action> actions;
  const char* const variable = std::getenv("CPSHARD_FAILPOINTS");
  if (variable == nullptr) return actions;
  const std::vector<std::string> entries = absl::StrSplit(variable, ',', absl::SkipEmpty());
  for (const std::string& entry : entries) {
    const std::pair<std::string, std::string> named =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    const std::pair<std::string, std::string> when =
        absl::StrSplit(named.second, absl::MaxSplits('@', 1));
    Action& action = actions[named.first];
    action.signal = when.first == "kill" ? SIGKILL : when.first == "stop" ? SIGSTOP : 0;
    if (action.signal == 0 || !absl::SimpleAtoi(when.second, &action.at)) Refuse(entry);
  }
  return actions;
}

}  // namespace

void Failpoint(const char* name) {
  static std::map<std::string, Action> actions = FromEnvironment();
  const auto action = actions.find(name);
  if (action == actions.end()) return;
  if (++action->second.passes == action->second.at) raise(action->second.signal);
}

}  // namespace cpshard
