// The RPCs. Reactors translate and never decide: decode, hand over to a worker, encode.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "core/batch/buffer.h"
#include "core/exec/executor.h"
#include "core/plan/spec.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace cpshard {

struct ServiceOptions {
  Limits limits;
  int64_t workers = 2;
  int64_t queue = 64;
};

// Thread-safe.
class ShardRpcs {
 public:
  // `executor` and `pool` must outlive the object.
  ShardRpcs(const ServiceOptions& options, Executor& executor, BufferPool& pool);
  ~ShardRpcs();  // after the gRPC server is gone

  grpc::Service* service();

  // From now on new calls are refused with UNAVAILABLE; those in progress go on.
  void Drain();

  // Calls in progress.
  int64_t active() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpshard
