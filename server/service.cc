#include "server/service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.grpc.pb.h"
#include "proto/codec.h"
#include "proto/frames.h"
#include "proto/plan_layout.h"
#include "proto/status.h"
#include "server/call_limit.h"
#include "server/counters.h"
#include "server/log.h"
#include "server/stream/stream_watch.h"
#include "server/version.h"
#include "server/worker_pool.h"

namespace cpshard {
namespace {

std::string NewInstanceId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; try another");
}

// Twice what an honest peer opens: gRPC may not be done yet with calls that the peer saw end.
constexpr int64_t kMaxCalls = 2 * kMaxStreamsPerConnection;

// A call counts as active until gRPC is done with it: its answer is out, or the caller gone.
class CountedReactor : public grpc::ServerUnaryReactor {
 public:
  explicit CountedReactor(std::function<void()> on_done) : on_done_(std::move(on_done)) {}
  void OnDone() override {
    on_done_();
    delete this;  // as gRPC's own default reactor: nobody else owns it
  }

 private:
  const std::function<void()> on_done_;
};

// Generated code for the unary calls; the messages of the stream come as bytes.
using Service = v1::ShardService;
using Methods = Service::WithRawCallbackMethod_ShardBatches<
    Service::WithCallbackMethod_ShardBatch<Service::WithCallbackMethod_PlanLayout<
        Service::WithCallbackMethod_GetServerInfo<Service::Service>>>>;

}  // namespace

class ShardRpcs::Impl : public Methods {
 public:
  Impl(const ServiceOptions& options, Executor& executor, BufferPool& pool, ServiceHost host)
      : options_(options),
        host_(std::move(host)),
        executor_(executor),
        pool_(pool),
        instance_id_(NewInstanceId()),
        shares_(options.max_bytes_per_connection),
        workers_(options.workers, options.queue) {
    stream_context_.limits = options.limits;
    stream_context_.stream_limits = options.stream_limits;
    stream_context_.stall = options.stall;
    stream_context_.executor = &executor;
    stream_context_.max_sharding = std::max<int64_t>(1, options.workers - 1);
    stream_context_.pool = &pool;
    stream_context_.shares = &shares_;
    stream_context_.counters = &counters_;
    stream_context_.run_later = [this](std::function<void()> work) {
      workers_.Post(std::move(work));
    };
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoReply* reply) override {
    // At once, not behind the work that waits: it is how a client learns that the server is there.
    auto* reactor = new CountedReactor(Enter(context));
    if (draining_) {
      reactor->Finish(ToGrpc(ShuttingDown()));
      return reactor;
    }
    ServerInfo info;
    info.version = kVersion;
    info.instance_id = instance_id_;
    info.limits = options_.limits;
    info.stream_limits = options_.stream_limits;
    info.max_chunk_bytes = kMaxChunkBytes;
    info.layouts = Options::BuiltLayouts();
    info.capabilities = {"plan_layout", "shard_batch", "shard_batches"};
    info.executor = std::string(executor_.name());
    info.counters = counters();
    EncodeServerInfo(info, reply);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* PlanLayout(grpc::CallbackServerContext* context,
                                       const v1::PlanLayoutRequest* message,
                                       v1::PlanLayoutReply* reply) override {
    return OnWorker(context, [this, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(const PlanRequest plan,
                               DecodePlanLayoutRequest(*message, options_.limits));
      CPSHARD_ASSIGN_OR_RETURN(
          const PlanSummary summary,
          PlanLayoutOf(plan.request, plan.questions, options_.limits, PlanReply::kOfACall));
      return EncodePlanLayoutReply(summary, reply);
    });
  }

  grpc::ServerUnaryReactor* ShardBatch(grpc::CallbackServerContext* context,
                                       const v1::ShardBatchRequest* message,
                                       v1::ShardBatchReply* reply) override {
    return OnWorker(context, [this, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(const Request request,
                               DecodeShardBatchRequest(*message, options_.limits));
      CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, request.options.MakeSharder());
      CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                               PlanBatch(sharder, request.batch, request.cp_size));
      CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, request.ranks, options_.limits).status());
      CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan, request.ranks, options_.limits).status());
      return WriteShardBatchReply(plan, request.batch, request.ranks, executor_, pool_, reply);
    });
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardBatches(
      grpc::CallbackServerContext* call) override {
    const auto stream =
        StreamReactor::Start(call, stream_context_,
                             {[this](const std::string& peer) { Cut(peer); },
                              [this](const std::string& peer) { return Describe(peer); },
                              [this, leave = Enter(call)](StreamReactor* done) {
                                watch_.Remove(done);
                                leave();
                              }});
    watch_.Add(stream);
    return stream.get();
  }

  void Drain() {
    draining_ = true;
    watch_.Drain();
  }

  int64_t active() const { return active_; }

  Counters counters() const {
    Counters counters;
    const BufferPoolStats pool = pool_.stats();
    counters.buffers_out = static_cast<int64_t>(pool.buffers_out);
    counters.bytes_out = static_cast<int64_t>(pool.bytes_out);
    counters.streams = counters_.streams;
    counters.batches = counters_.batches;
    counters.batches_sharded = counters_.batches_sharded;
    counters.batches_refused = counters_.batches_refused;
    counters.streams_stalled = counters_.streams_stalled;
    if (host_.add_counters) host_.add_counters(counters);
    return counters;
  }

 private:
  void Cut(const std::string& peer) {
    if (host_.cut_connection) host_.cut_connection(peer);
  }

  std::string Describe(const std::string& peer) const {
    return host_.describe_peer ? host_.describe_peer(peer) : peer;
  }

  // Counts a call; the function that comes back is to be called when gRPC is done with it.
  std::function<void()> Enter(grpc::CallbackServerContext* context) {
    ++active_;
    const std::string peer = context->peer();  // later it may be unknown
    if (!call_limit_.Enter(peer)) {
      LogError("connection cut: it has too many calls open", {{"peer", Describe(peer)}});
      Cut(peer);
    }
    return [this, peer] {
      call_limit_.Leave(peer);
      --active_;
    };
  }

  // Carries out `call` on a worker; a call that was cancelled before its turn is not begun.
  template <typename Call>
  grpc::ServerUnaryReactor* OnWorker(grpc::CallbackServerContext* context, Call call) {
    auto* reactor = new CountedReactor(Enter(context));
    const absl::Status submitted =
        draining_ ? ShuttingDown() : workers_.Submit([context, reactor, call] {
          const absl::Status status =
              context->IsCancelled() ? absl::CancelledError("the caller gave up") : call();
          reactor->Finish(ToGrpc(status));
        });
    if (!submitted.ok()) reactor->Finish(ToGrpc(submitted));
    return reactor;
  }

  const ServiceOptions options_;
  const ServiceHost host_;
  Executor& executor_;
  BufferPool& pool_;
  const std::string instance_id_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> active_ = 0;
  CallLimit call_limit_{kMaxCalls};
  ServerCounters counters_;
  MemoryShare shares_;
  StreamContext stream_context_;
  StreamWatch watch_;
  WorkerPool workers_;  // the last member: its work uses the others
};

ShardRpcs::ShardRpcs(const ServiceOptions& options, Executor& executor, BufferPool& pool,
                     ServiceHost host)
    : impl_(std::make_unique<Impl>(options, executor, pool, std::move(host))) {}

ShardRpcs::~ShardRpcs() = default;

grpc::Service* ShardRpcs::service() { return impl_.get(); }
void ShardRpcs::Drain() { impl_->Drain(); }
int64_t ShardRpcs::active() const { return impl_->active(); }
Counters ShardRpcs::counters() const { return impl_->counters(); }

}  // namespace cpshard
