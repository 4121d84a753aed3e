#include "tests/bench/stream/usage.h"

#include <time.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

int64_t MinorFaults(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  // The name, in parentheses, may hold anything; minflt is the eighth field after it.
  const size_t name_end = line.rfind(')');
  int64_t faults = 0;
  if (name_end == std::string::npos) Fail(absl::StrCat("cannot read /proc/", pid, "/stat"));
  const std::vector<std::string> fields = absl::StrSplit(line.substr(name_end + 2), ' ');
  if (fields.size() < 8 || !absl::SimpleAtoi(fields[7], &faults)) {
    Fail(absl::StrCat("cannot read the faults in /proc/", pid, "/stat"));
  }
  return faults;
}

}  // namespace

Usage UsageOf(pid_t pid) {
  if (pid == 0) return {};
  clockid_t clock;
  timespec used{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    Fail(absl::StrCat("cannot read the processor clock of process ", pid));
  }
  return {static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec),
          MinorFaults(pid)};
}

}  // namespace cpshard::bench
