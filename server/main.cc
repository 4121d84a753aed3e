// cpshardd. Exit status: 0 stopped by a signal, 64 configuration, 70 internal, 75 an address or
// other resource is not to be had, 86 the CUDA device is lost, or a call into its driver hangs.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "core/exec/device/device_lost.h"
#include "core/exec/executor_kind.h"
#include "server/config.h"
#include "server/log.h"
#include "server/server.h"
#include "server/to_peer.h"
#include "server/version.h"
#include "server/watchdog.h"

namespace {

constexpr int kExitConfig = 64;
constexpr int kExitInternal = 70;
constexpr int kExitResources = 75;

// What a server gets to end in that has no more grace: then it is ended. A Run may never return.
constexpr absl::Duration kEndLimit = absl::Seconds(10);
// What wakes the main thread then: no signal that anybody sends by chance.
const int kLostSignal = SIGRTMIN + 6;

// gRPC allocates and frees every received byte; giving the memory back to the system each time
// costs more than half of the throughput in page faults (measured; docs/PERFORMANCE.md).
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
}

// A connection takes two descriptors, and the usual soft limit is 1,024 for all that a process has.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

std::string TextOf(const absl::Status& status) {
  return status.ToString(absl::StatusToStringMode::kWithNoExtraData);
}

int ExitOf(const absl::Status& status) {
  if (cpshard::IsDeviceLost(status)) return cpshard::kDeviceLostExitCode;
  if (absl::IsInvalidArgument(status)) return kExitConfig;
  return absl::IsInternal(status) ? kExitInternal : kExitResources;
}

// The one server of this process.
class Serving {
 public:
  // Before any other thread exists.
  Serving() : watchdog_([this] { SayLastWords(); }, cpshard::kDeviceLostExitCode) {}

  // On a worker, which may hold locks and goes on; the main thread does the rest. Nothing that may
  // block stands before the watchdog, the log neither.
  void OnDeviceLost(const absl::Status& status) {
    watchdog_.EndWithin(kEndLimit);
    {
      absl::MutexLock lock(&mu_);
      lost_ = status;
    }
    is_lost_ = true;
    kill(getpid(), kLostSignal);
  }

  // Waits for a signal, then stops.
  void UntilSignal(cpshard::Server& server, absl::Duration grace);

  bool is_lost() const { return is_lost_; }

 private:
  void SayLastWords();
  bool SeesLoss(cpshard::Server& server);

  absl::Mutex mu_;
  absl::Status lost_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> is_lost_ = false;
  absl::Time seen_lost_ = absl::InfiniteFuture();  // of the main thread
  cpshard::Watchdog watchdog_;
};

void Serving::SayLastWords() {
  absl::MutexLock lock(&mu_);
  cpshard::LogError(
      "ended, for the server does not end by itself: a call into the driver or the log hangs",
      {{"err", lost_.ok() ? "no loss of the device was seen" : TextOf(lost_)}});
}

// Whether the device is lost. The first time that it is, health says so, and the state goes to the
// log: nobody can ask this process for it any more.
bool Serving::SeesLoss(cpshard::Server& server) {
  if (!is_lost_) return false;
  if (seen_lost_ != absl::InfiniteFuture()) return true;
  seen_lost_ = absl::Now();
  server.ReportIll();
  absl::Status lost;
  {
    absl::MutexLock lock(&mu_);
    lost = lost_;
  }
  cpshard::LogError("the CUDA device is lost", {{"err", TextOf(lost)}});
  const cpshard::Counters now = server.counters();
  cpshard::LogError("state", {{"streams", absl::StrCat(now.streams)},
                              {"batches", absl::StrCat(now.batches)},
                              {"sessions", absl::StrCat(now.sessions)},
                              {"loaders", absl::StrCat(now.loaders)},
                              {"session_bytes", absl::StrCat(now.session_bytes)},
                              {"buffers_out", absl::StrCat(now.buffers_out)},
                              {"bytes_out", absl::StrCat(now.bytes_out)}});
  for (const std::string& group : server.DumpGroups()) {
    cpshard::LogError("state of a group", {{"group", group}});
  }
  return true;
}

void Serving::UntilSignal(cpshard::Server& server, absl::Duration grace) {
  const sigset_t to_stop = StopSignals();
  sigset_t signals = to_stop;
  sigaddset(&signals, kLostSignal);
  int signal = 0;
  do {
    sigwait(&signals, &signal);
  } while (signal == kLostSignal && !is_lost_);
  const bool has_device = server.executor() != ToString(cpshard::ExecutorKind::kCpu);
  if (has_device) watchdog_.EndWithin(grace + kEndLimit);
  SeesLoss(server);
  cpshard::LogInfo("stopping", {{"signal", signal == SIGTERM  ? "SIGTERM"
                                           : signal == SIGINT ? "SIGINT"
                                                              : "device lost"}});
  server.Stop(grace, [&] {
    if (SeesLoss(server) && absl::Now() > seen_lost_ + cpshard::kLostGrace) return true;
    const timespec no_wait{};
    // A second signal: no more grace.
    if (sigtimedwait(&to_stop, nullptr, &no_wait) <= 0) return false;
    if (has_device) watchdog_.EndWithin(kEndLimit);
    return true;
  });
  SeesLoss(server);  // of the last moment
}

int Serve(const cpshard::ServerOptions& options) {
  sigset_t signals = StopSignals();
  sigaddset(&signals, kLostSignal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists
  static auto& serving = *new Serving;            // its watchdog is there to the very end
  absl::StatusOr<std::unique_ptr<cpshard::Server>> server = cpshard::Server::Start(
      options, [](const absl::Status& status) { serving.OnDeviceLost(status); });
  if (!server.ok()) {
    cpshard::LogError("cannot start", {{"err", TextOf(server.status())}});
    return ExitOf(server.status());
  }
  for (const std::string& address : (*server)->addresses()) {
    std::printf("listening on %s\n", address.c_str());
  }
  std::fflush(stdout);
  cpshard::LogInfo("serving", {{"version", cpshard::kVersion},
                               {"listen", absl::StrJoin((*server)->addresses(), ",")},
                               {"executor", std::string((*server)->executor())},
                               {"executor_reason", (*server)->executor_reason()}});
  serving.UntilSignal(**server, options.shutdown_grace);
  const cpshard::Counters counters = (*server)->counters();
  cpshard::LogInfo("stopped", {{"buffers_out", absl::StrCat(counters.buffers_out)},
                               {"batches_sharded", absl::StrCat(counters.batches_sharded)},
                               {"batches_refused", absl::StrCat(counters.batches_refused)},
                               {"streams_stalled", absl::StrCat(counters.streams_stalled)}});
  return serving.is_lost() ? cpshard::kDeviceLostExitCode : 0;
}

}  // namespace

int main(int argc, char** argv) {
  KeepFreedMemory();
  RaiseDescriptorLimit();
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<cpshard::CommandLine> line = cpshard::ParseCommandLine(argc, argv);
  if (!line.ok()) {
    std::fprintf(stderr, "error: %s\n", line.status().ToString().c_str());
    return kExitConfig;
  }
  switch (line->action) {
    case cpshard::Action::kPrintHelp:
      std::fputs(line->text.c_str(), stdout);
      return 0;
    case cpshard::Action::kPrintVersion:
      std::printf("cpshardd %s\n%s", cpshard::kVersion, cpshard::kBuildFacts);
      return 0;
    case cpshard::Action::kCheckOnly:
      std::puts("configuration is valid");
      return 0;
    case cpshard::Action::kServe:
      return Serve(line->options);
  }
}
