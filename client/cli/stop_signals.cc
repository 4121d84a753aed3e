#include "client/cli/stop_signals.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

namespace cpshard {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr size_t kMaxFiles = 4;

// What the handler reads: it may neither allocate nor lock.
struct Leftovers {
  std::atomic<pid_t> owner{-1};  // who cleans up; a child before its exec does not
  std::atomic<pid_t> child{-1};
  char folder[PATH_MAX] = {};
  char files[kMaxFiles][PATH_MAX] = {};  // "": none
};
Leftovers leftovers;
std::array<struct sigaction, kSignals.size()> before;

// Only async-signal-safe calls.
void CleanUpAndEnd(int number) {
  if (leftovers.owner == getpid()) {
    const pid_t child = leftovers.child;
    if (child > 0 && kill(child, SIGKILL) == 0) waitpid(child, nullptr, 0);
    for (const char* file : leftovers.files) {
      if (*file != '\0') unlink(file);
    }
    rmdir(leftovers.folder);
  }
  signal(number, SIG_DFL);
  raise(number);  // takes effect when this returns
}

sigset_t AllSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kSignals) sigaddset(&set, number);
  return set;
}

}  // namespace

void RemoveAtStopSignals(const std::string& folder, const std::vector<std::string>& files) {
  std::snprintf(leftovers.folder, PATH_MAX, "%s", folder.c_str());
  for (size_t i = 0; i < kMaxFiles; ++i) {
    const std::string path = i < files.size() ? folder + "/" + files[i] : "";
    std::snprintf(leftovers.files[i], PATH_MAX, "%s", path.c_str());
  }
  leftovers.child = -1;
  leftovers.owner = getpid();
  struct sigaction action = {};
  action.sa_handler = CleanUpAndEnd;
  action.sa_mask = AllSignals();
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

void KillAtStopSignals(pid_t child) { leftovers.child = child; }

void ForgetStopSignals() {
  if (leftovers.owner.exchange(-1) < 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

HeldStopSignals::HeldStopSignals() {
  const sigset_t all = AllSignals();
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

void HeldStopSignals::Release() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace cpshard
