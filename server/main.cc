// cpshardd. Exit status: 0 stopped by a signal, 64 configuration, 70 internal, 75 an address or
// other resource is not to be had.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/config.h"
#include "server/log.h"
#include "server/server.h"
#include "server/version.h"

namespace {

constexpr int kExitConfig = 64;
constexpr int kExitResources = 75;

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

int Serve(const cpshard::ServerOptions& options) {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists
  absl::StatusOr<std::unique_ptr<cpshard::Server>> server = cpshard::Server::Start(options);
  if (!server.ok()) {
    cpshard::LogError("cannot start", {{"err", server.status().ToString()}});
    return server.status().code() == absl::StatusCode::kInvalidArgument ? kExitConfig
                                                                        : kExitResources;
  }
  for (const std::string& address : (*server)->addresses()) {
    std::printf("listening on %s\n", address.c_str());
  }
  std::fflush(stdout);
  cpshard::LogInfo("serving", {{"version", cpshard::kVersion},
                               {"listen", absl::StrJoin((*server)->addresses(), ",")}});

  int signal = 0;
  sigwait(&signals, &signal);
  cpshard::LogInfo("stopping", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
  (*server)->Stop(options.shutdown_grace, [&signals] {
    const timespec no_wait{};
    return sigtimedwait(&signals, nullptr, &no_wait) > 0;  // a second signal: no more grace
  });
  const cpshard::Counters counters = (*server)->counters();
  cpshard::LogInfo("stopped", {{"buffers_out", absl::StrCat(counters.buffers_out)},
                               {"batches_sharded", absl::StrCat(counters.batches_sharded)},
                               {"batches_refused", absl::StrCat(counters.batches_refused)},
                               {"streams_stalled", absl::StrCat(counters.streams_stalled)}});
  return 0;
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
