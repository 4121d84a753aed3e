#include "server/service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.grpc.pb.h"
#include "proto/codec.h"
#include "proto/status.h"
#include "server/version.h"
#include "server/worker_pool.h"

namespace cpshard {
namespace {

std::string NewInstanceId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// A spec-only batch can be planned unless the plan reads a stream that came without bytes.
absl::StatusOr<PlanSummary> PlanRequest(const Request& request, const Limits& limits) {
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, request.options.MakeSharder());
  const std::vector<std::string> needs = sharder.Needs(request.spec);
  PlanValues values;
  for (const std::string& name : needs) {
    const Tensor* tensor = request.batch.FindTensor(name);
    if (tensor != nullptr) {
      CPSHARD_ASSIGN_OR_RETURN(IntTensor ints, ReadInts(*tensor));
      values.emplace(name, std::move(ints));
    } else if (request.spec.FindTensor(name) != nullptr) {
      PlanSummary unplanned;
      unplanned.needs = needs;
      return unplanned;
    }
  }
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan, sharder.Plan(request.spec, values));
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary, Summarize(plan, request.ranks, limits));
  summary.needs = needs;
  return summary;
}

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; try another");
}

// A call counts as active until gRPC is done with it: its answer is out, or the caller gone.
class CountedReactor : public grpc::ServerUnaryReactor {
 public:
  explicit CountedReactor(std::atomic<int64_t>& active) : active_(active) { ++active_; }
  void OnDone() override {
    --active_;
    delete this;  // as gRPC's own default reactor: nobody else owns it
  }

 private:
  std::atomic<int64_t>& active_;
};

}  // namespace

class ShardRpcs::Impl : public v1::ShardService::CallbackService {
 public:
  Impl(const ServiceOptions& options, Executor& executor, BufferPool& pool)
      : limits_(options.limits),
        executor_(executor),
        pool_(pool),
        instance_id_(NewInstanceId()),
        workers_(options.workers, options.queue) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext*,
                                          const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoReply* reply) override {
    // At once, not behind the work that waits: it is how a client learns that the server is there.
    auto* reactor = new CountedReactor(active_);
    if (draining_) {
      reactor->Finish(ToGrpc(ShuttingDown()));
      return reactor;
    }
    ServerInfo info;
    info.version = kVersion;
    info.instance_id = instance_id_;
    info.limits = limits_;
    info.layouts = Options::BuiltLayouts();
    info.capabilities = {"plan_layout", "shard_batch"};
    info.executor = std::string(executor_.name());
    EncodeServerInfo(info, reply);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* PlanLayout(grpc::CallbackServerContext* context,
                                       const v1::PlanLayoutRequest* message,
                                       v1::PlanLayoutReply* reply) override {
    return OnWorker(context, [this, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(const Request request, DecodePlanLayoutRequest(*message, limits_));
      CPSHARD_ASSIGN_OR_RETURN(const PlanSummary summary, PlanRequest(request, limits_));
      return EncodePlanLayoutReply(summary, reply);
    });
  }

  grpc::ServerUnaryReactor* ShardBatch(grpc::CallbackServerContext* context,
                                       const v1::ShardBatchRequest* message,
                                       v1::ShardBatchReply* reply) override {
    return OnWorker(context, [this, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(const Request request, DecodeShardBatchRequest(*message, limits_));
      CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, request.options.MakeSharder());
      CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                               PlanBatch(sharder, request.batch, request.cp_size));
      CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, request.ranks, limits_).status());
      return WriteShardBatchReply(plan, request.batch, request.ranks, executor_, pool_, reply);
    });
  }

  void Drain() { draining_ = true; }
  int64_t active() const { return active_; }

 private:
  // Carries out `call` on a worker; a call that was cancelled before its turn is not begun.
  template <typename Call>
  grpc::ServerUnaryReactor* OnWorker(grpc::CallbackServerContext* context, Call call) {
    auto* reactor = new CountedReactor(active_);
    const absl::Status submitted =
        draining_ ? ShuttingDown() : workers_.Submit([context, reactor, call] {
          const absl::Status status =
              context->IsCancelled() ? absl::CancelledError("the caller gave up") : call();
          reactor->Finish(ToGrpc(status));
        });
    if (!submitted.ok()) reactor->Finish(ToGrpc(submitted));
    return reactor;
  }

  const Limits limits_;
  Executor& executor_;
  BufferPool& pool_;
  const std::string instance_id_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> active_ = 0;
  WorkerPool workers_;
};

ShardRpcs::ShardRpcs(const ServiceOptions& options, Executor& executor, BufferPool& pool)
    : impl_(std::make_unique<Impl>(options, executor, pool)) {}

ShardRpcs::~ShardRpcs() = default;

grpc::Service* ShardRpcs::service() { return impl_.get(); }
void ShardRpcs::Drain() { impl_->Drain(); }
int64_t ShardRpcs::active() const { return impl_->active(); }

}  // namespace cpshard
