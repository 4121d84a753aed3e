// The RPCs. Reactors translate and never decide: decode, hand over to a worker, encode.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/batch/buffer.h"
#include "core/plan/spec.h"
#include "proto/config.h"
#include "proto/replies.h"
#include "server/executors.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace cpshard {

inline constexpr int kMaxStreamsPerConnection = 128;  // calls, as HTTP/2 calls them

struct ServiceOptions {
  Limits limits;
  int64_t workers = 2;
  int64_t queue = 64;
  StreamLimits stream_limits;
  SessionLimits session_limits;
  std::vector<DeclaredGroup> groups;  // of the configuration
  absl::Duration stall = absl::Seconds(30);
  int64_t max_bytes_per_connection = int64_t{4} << 30;  // of memory, for batches and answers
};

// What the server around the RPCs does for them. May be called until the gRPC server is gone.
struct ServiceHost {
  // Ends the connection of a call, given its peer().
  std::function<void(const std::string& peer)> cut_connection;
  // Who that is, for the log.
  std::function<std::string(const std::string& peer)> describe_peer;
  // Fills in what the RPCs cannot know: connections, pinned memory.
  std::function<void(Counters&)> add_counters;
};

// Thread-safe.
class ShardRpcs {
 public:
  // `executors` and `pool` must outlive the object.
  ShardRpcs(const ServiceOptions& options, const Executors& executors, BufferPool& pool,
            ServiceHost host = {});
  ~ShardRpcs();  // after the gRPC server is gone

  grpc::Service* service();

  // From now on new calls are refused with UNAVAILABLE; those in progress go on.
  void Drain();

  // Lets go of what sessions hold. When no call is left.
  void Clear();

  // Calls in progress, open streams included.
  int64_t active() const;

  Counters counters() const;

  // Every group as ListGroups shows it, as JSON: a line each.
  std::vector<std::string> DumpGroups() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
