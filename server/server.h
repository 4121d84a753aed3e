// A running server: listeners, health, RPCs. Used by cpshardd and by tests (port 0).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/replies.h"
#include "server/config.h"

namespace cpshard {

class Server {
 public:
  // Takes its device and memory, tries it, then listens on all of options.listen, or on none.
  // `on_device_lost` is told once that the device is lost, with CUDA's text, on a thread that may
  // hold locks: what is to be sharded there is refused from then on, and the process has to be
  // started again.
  // FailedPrecondition, InvalidArgument: a unix path that is taken or no socket; what MakePlace
  // says; a group that is declared with an executor that the server does not have. Unavailable: an
  // address that cannot be bound (in use, not ours). Internal: the device computes wrongly.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, std::function<void(const absl::Status&)> on_device_lost = {});

  ~Server();  // Stop with no grace

  // Where it listens: "127.0.0.1:43671", "unix:/run/cpshard.sock".
  const std::vector<std::string>& addresses() const;

  absl::string_view executor() const;  // "cpu", "cuda:0"
  const std::string& executor_reason() const;

  Counters counters() const;

  // Every group as ListGroups shows it, as JSON: a line each.
  std::vector<std::string> DumpGroups() const;

  // Health says NOT_SERVING under every name, "liveness" too: only a new process can help.
  void ReportIll();

  // Health says NOT_SERVING, but for the name "liveness"; new calls are refused with UNAVAILABLE;
  // then waits until the calls in progress have ended, the grace is over, or `hurry` (asked often)
  // returns true; then stops, within some 3 s, whatever the peers do: connections that do not end
  // are cut. A Run that never returns, in a driver, is waited for: cpshardd has a Watchdog for
  // that. Idempotent.
  void Stop(absl::Duration grace, absl::FunctionRef<bool()> hurry);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
