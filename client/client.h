// Client of cpshardd: one connection, unary calls. (The stream client is another class.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/exec/shard.h"
#include "core/plan/spec.h"
#include "proto/options.h"
#include "proto/replies.h"

namespace cpshard {

struct ClientOptions {
  absl::Duration deadline = absl::Seconds(30);  // of one call
  bool wait_for_ready = false;                  // wait for the server within the deadline
};

// Thread-safe. All calls block; they return the server's status with its message, Unavailable when
// it cannot be reached, DeadlineExceeded when the deadline passes.
class Client {
 public:
  // `address`: "host:port" or "unix:/path". Connects lazily: errors appear in the calls.
  // InvalidArgument: an empty address.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(absl::string_view address,
                                                         ClientOptions options = {});
  ~Client();

  absl::StatusOr<ServerInfo> GetServerInfo();

  // The layouts of `ranks` (empty = all) for a batch of this spec; spec.cp_size counts.
  absl::StatusOr<PlanSummary> PlanLayout(const BatchSpec& spec, const Options& options,
                                         absl::Span<const int64_t> ranks);

  // The shards of `ranks` (empty = all). Tensors of the result are windows on one received body.
  // ResourceExhausted: the request or the reply is over 4 MiB, the limit of a unary call.
  absl::StatusOr<ShardResult> ShardBatch(const Batch& batch, const Options& options,
                                         std::optional<int64_t> cp_size,
                                         absl::Span<const int64_t> ranks);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
