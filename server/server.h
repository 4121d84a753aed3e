// A running server: listeners, health, RPCs. Used by cpshardd and by tests (port 0).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/replies.h"
#include "server/config.h"

namespace cpshard {

class Server {
 public:
  // Listens on all of options.listen, or on none.
  // FailedPrecondition, InvalidArgument: a unix path that is taken or no socket; Unavailable: an
  // address that cannot be bound (in use, not ours).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);

  ~Server();  // Stop with no grace

  // Where it listens: "127.0.0.1:43671", "unix:/run/cpshard.sock".
  const std::vector<std::string>& addresses() const;

  Counters counters() const;

  // Health says NOT_SERVING, but for the name "liveness"; new calls are refused with UNAVAILABLE;
  // then waits until the calls in progress have ended, the grace is over, or `hurry` (asked often)
  // returns true; then stops, within some 3 s, whatever the peers do: connections that do not end
  // are cut. Idempotent.
  void Stop(absl::Duration grace, absl::FunctionRef<bool()> hurry);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
