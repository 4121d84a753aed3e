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
#include "proto/json.h"
#include "proto/plan_layout.h"
#include "proto/status.h"
#include "server/call_limit.h"
#include "server/counters.h"
#include "server/log.h"
#include "server/session/sessions.h"
#include "server/stream/stream_watch.h"
#include "server/to_peer.h"
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

// The states of many loaders may be more than an answer can have.
absl::Status CheckStates(const v1::OpenSessionReply& reply) {
  const auto size = static_cast<int64_t>(reply.ByteSizeLong());
  if (size <= kMaxMessageBytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the resume states that the server has for this reader make an answer of ", size,
                   " bytes, over the ", kMaxMessageBytes,
                   " of a message: bring those of a checkpoint, or let loaders make smaller ones"));
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

// A call with an answer of many messages that is refused.
class RefusedReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  RefusedReactor(std::function<void()> on_done, const absl::Status& status)
      : on_done_(std::move(on_done)) {
    Finish(ToGrpc(status));
  }
  void OnDone() override {
    on_done_();
    delete this;
  }

 private:
  const std::function<void()> on_done_;
};

// Generated code for the unary calls; the messages of streams come as bytes.
using Service = v1::ShardService;
using Unary = Service::WithCallbackMethod_GetServerInfo<Service::WithCallbackMethod_PlanLayout<
    Service::WithCallbackMethod_ShardBatch<Service::WithCallbackMethod_OpenSession<
        Service::WithCallbackMethod_CloseSession<Service::WithCallbackMethod_ListGroups<
            Service::WithCallbackMethod_DumpGroup<Service::Service>>>>>>>;
using Methods =
    Service::WithRawCallbackMethod_ShardBatches<Service::WithRawCallbackMethod_PushBatches<
        Service::WithRawCallbackMethod_PullShards<Service::WithRawCallbackMethod_GetShard<Unary>>>>;

}  // namespace

class ShardRpcs::Impl : public Methods {
 public:
  Impl(const ServiceOptions& options, const Executors& executors, BufferPool& pool,
       ServiceHost host)
      : options_(options),
        host_(std::move(host)),
        executors_(executors),
        pool_(pool),
        instance_id_(NewInstanceId()),
        shares_(options.max_bytes_per_connection),
        stream_context_(ContextOf(options)),
        sessions_(stream_context_, options.session_limits, options.groups, instance_id_),
        workers_(options.workers, options.queue),
        watch_([this](absl::Time now) { sessions_.Tick(now); }) {}

  ~Impl() override { sessions_.EndLaterWork(); }

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
    info.session_limits = options_.session_limits;
    info.max_chunk_bytes = kMaxChunkBytes;
    info.layouts = Options::BuiltLayouts();
    info.capabilities = {"plan_layout",  "shard_batch", "shard_batches", "open_session",
                         "push_batches", "pull_shards", "get_shard",     "list_groups",
                         "dump_group",   "executors"};
    info.executor = std::string(executors_.name());
    info.executor_reason = executors_.reason();
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
    return OnWorker(context, [this, context, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(const Request request,
                               DecodeShardBatchRequest(*message, options_.limits));
      CPSHARD_ASSIGN_OR_RETURN(Executor * executor, executors_.Named(request.executor));
      CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, request.options.MakeSharder());
      CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                               PlanBatch(sharder, request.batch, request.cp_size));
      CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, request.ranks, options_.limits).status());
      CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan, request.ranks, options_.limits).status());
      const absl::Status status =
          WriteShardBatchReply(plan, request.batch, request.ranks, *executor, pool_, reply);
      if (WasUnderWayWhenLost(status)) {
        LogError("the device was lost with this batch under way",
                 {{"peer", Describe(context->peer())}, {"call", "ShardBatch"}});
      }
      return ToPeer(status);
    });
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardBatches(
      grpc::CallbackServerContext* call) override {
    const auto stream = TwoWayReactor::Start(
        call, stream_context_, OwnerOf(call), [this](std::string peer, auto on_output) {
          return BatchStream::Make(stream_context_, std::move(peer), std::move(on_output));
        });
    watch_.Add(stream);
    return stream.get();
  }

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* message,
                                        v1::OpenSessionReply* reply) override {
    return OnWorker(context, [this, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(cpshard::OpenSession open, DecodeOpenSession(*message));
      CPSHARD_ASSIGN_OR_RETURN(const OpenedSession opened, sessions_.Open(std::move(open)));
      EncodeOpenedSession(opened, reply);
      return CheckStates(*reply);
    });
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* message,
                                         v1::CloseSessionReply*) override {
    std::function<void()> leave = Enter(context);
    absl::StatusOr<SessionName> session = DecodeCloseSession(*message);
    if (session.ok()) return sessions_.Close(*std::move(session), std::move(leave));
    auto* reactor = new CountedReactor(std::move(leave));
    reactor->Finish(ToGrpc(session.status()));
    return reactor;
  }

  grpc::ServerUnaryReactor* ListGroups(grpc::CallbackServerContext* context,
                                       const v1::ListGroupsRequest*,
                                       v1::ListGroupsReply* reply) override {
    return OnWorker(context, [this, reply] {
      EncodeGroupViews(sessions_.Views(), reply);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* DumpGroup(grpc::CallbackServerContext* context,
                                      const v1::DumpGroupRequest* message,
                                      v1::DumpGroupReply* reply) override {
    return OnWorker(context, [this, message, reply]() -> absl::Status {
      CPSHARD_ASSIGN_OR_RETURN(const GroupView view, sessions_.View(message->group()));
      EncodeGroupView(view, reply);
      return absl::OkStatus();
    });
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PushBatches(
      grpc::CallbackServerContext* call) override {
    return sessions_.Push(call, OwnerOf(call), watch_);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PullShards(
      grpc::CallbackServerContext* call) override {
    return sessions_.Pull(call, OwnerOf(call), watch_);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* GetShard(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* message) override {
    absl::StatusOr<cpshard::GetShard> request = ParseGetShard(*message);
    if (!request.ok()) return new RefusedReactor(Enter(call), request.status());
    return sessions_.Get(call, OwnerOf(call), watch_, *std::move(request));
  }

  void Drain() {
    draining_ = true;
    sessions_.Drain();
    watch_.Drain();
  }

  void Clear() { sessions_.Clear(); }

  int64_t active() const { return active_; }

  Counters counters() {
    Counters counters;
    const BufferPoolStats pool = pool_.stats();
    counters.buffers_out = static_cast<int64_t>(pool.buffers_out);
    counters.bytes_out = static_cast<int64_t>(pool.bytes_out);
    counters.streams = counters_.streams;
    counters.batches = counters_.batches;
    counters.batches_sharded = counters_.batches_sharded;
    counters.batches_refused = counters_.batches_refused;
    counters.streams_stalled = counters_.streams_stalled;
    sessions_.AddCounters(counters);
    if (host_.add_counters) host_.add_counters(counters);
    return counters;
  }

  std::vector<std::string> DumpGroups() {
    std::vector<std::string> lines;
    for (const GroupView& view : sessions_.Views()) lines.push_back(GroupsToJson({view}));
    return lines;
  }

 private:
  StreamContext ContextOf(const ServiceOptions& options) {
    StreamContext context;
    context.limits = options.limits;
    context.stream_limits = options.stream_limits;
    context.stall = options.stall;
    context.executors = &executors_;
    context.max_sharding = std::max<int64_t>(1, options.workers - 1);
    context.pool = &pool_;
    context.shares = &shares_;
    context.counters = &counters_;
    context.run_later = [this](std::function<void()> work) { workers_.Post(std::move(work)); };
    return context;
  }

  // Small, or refused: it is parsed on gRPC's thread.
  static absl::StatusOr<cpshard::GetShard> ParseGetShard(grpc::ByteBuffer message) {
    v1::GetShardRequest request;
    if (static_cast<int64_t>(message.Length()) > kMaxHeaderBytes ||
        !grpc::SerializationTraits<v1::GetShardRequest>::Deserialize(&message, &request).ok()) {
      return absl::InvalidArgumentError("the request is no GetShardRequest of at most 64 KiB");
    }
    return DecodeGetShard(request);
  }

  StreamOwner OwnerOf(grpc::CallbackServerContext* call) {
    return {[this](const std::string& peer) { Cut(peer); },
            [this](const std::string& peer) { return Describe(peer); },
            [this, leave = Enter(call)](StreamReactor* done) {
              watch_.Remove(done);
              leave();
            }};
  }

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
  const Executors& executors_;
  BufferPool& pool_;
  const std::string instance_id_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> active_ = 0;
  CallLimit call_limit_{kMaxCalls};
  ServerCounters counters_;
  MemoryShare shares_;
  const StreamContext stream_context_;
  Sessions sessions_;
  WorkerPool workers_;  // its work uses those before it
  StreamWatch watch_;   // the last member: its ticks make work
};

ShardRpcs::ShardRpcs(const ServiceOptions& options, const Executors& executors, BufferPool& pool,
                     ServiceHost host)
    : impl_(std::make_unique<Impl>(options, executors, pool, std::move(host))) {}

ShardRpcs::~ShardRpcs() = default;

grpc::Service* ShardRpcs::service() { return impl_.get(); }
void ShardRpcs::Drain() { impl_->Drain(); }
void ShardRpcs::Clear() { impl_->Clear(); }
int64_t ShardRpcs::active() const { return impl_->active(); }
Counters ShardRpcs::counters() const { return impl_->counters(); }
std::vector<std::string> ShardRpcs::DumpGroups() const { return impl_->DumpGroups(); }

}  // namespace cpshard
