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
#include "proto/error_details.h"
#include "proto/frames.h"
#include "proto/json.h"
#include "proto/plan_layout.h"
#include "proto/status.h"
#include "server/call_limit.h"
#include "server/counters.h"
#include "server/log.h"
#include "server/methods.h"
#include "server/session/sessions.h"
#include "server/stream/call_watch.h"
#include "server/to_peer.h"
#include "server/unary_call.h"
#include "server/version.h"
#include "server/worker_pool.h"

namespace cpshard {
namespace {

std::string NewInstanceId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// The states of many loaders may be more than an answer can have.
absl::Status CheckStates(const v1::OpenSessionReply& reply) {
  const auto size = static_cast<int64_t>(reply.ByteSizeLong());
  if (size <= kMaxMessageBytes) return absl::OkStatus();
  return WithDetails(
      absl::FailedPreconditionError(absl::StrCat(
          "the resume states that the server has for this reader make an answer of ", size,
          " bytes, over the ", kMaxMessageBytes,
          " of a message: bring those of a checkpoint, or let loaders make smaller ones")),
      {.reason = "TOO_LARGE", .values = {{"bytes", absl::StrCat(size)}}});
}

// Twice what an honest peer opens: gRPC may not be done yet with calls that the peer saw end.
constexpr int64_t kMaxCalls = 2 * kMaxStreamsPerConnection;

// What a request may have, in bytes: to be asked before it is parsed.
using CheckBytes = absl::Status (*)(int64_t bytes);

absl::Status CheckSmall(int64_t bytes) {
  if (bytes <= kMaxHeaderBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the request of ", bytes, " bytes is over the ",
                                                 kMaxHeaderBytes, " of such a call"));
}

// Resume states need as much as a message may have, to which gRPC holds every peer.
absl::Status CheckNothing(int64_t) { return absl::OkStatus(); }

// Lets the message go.
template <typename Request>
absl::Status Parse(grpc::ByteBuffer* message, Request* request) {
  if (grpc::SerializationTraits<Request>::Deserialize(message, request).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the request is no ", std::string(Request::descriptor()->name())));
}

absl::StatusOr<GetShard> ParseGetShard(absl::Span<const Bytes> message) {
  int64_t size = 0;
  for (const Bytes& piece : message) size += static_cast<int64_t>(piece.size());
  std::string bytes;
  if (size <= kMaxHeaderBytes) {
    for (const Bytes& piece : message) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  v1::GetShardRequest request;
  if (size > kMaxHeaderBytes || !request.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("the request is no GetShardRequest of at most 64 KiB");
  }
  return DecodeGetShard(request);
}

int64_t SizeOf(const grpc::ByteBuffer& message) { return static_cast<int64_t>(message.Length()); }

template <typename Reply>
void Give(UnaryCall& call, const absl::Status& status, const Reply& reply) {
  if (!status.ok()) return call.Refuse(status);
  grpc::ByteBuffer message;
  bool own = false;
  const grpc::Status written = grpc::SerializationTraits<Reply>::Serialize(reply, &message, &own);
  if (!written.ok()) return call.Refuse(FromGrpc(written));
  call.Answer(message);
}

}  // namespace

class ShardRpcs::Impl : public Methods {
 public:
  Impl(const ServiceOptions& options, const Executors& executors, BufferPool& pool,
       ServiceHost host)
      : Methods(v1::ShardService::service_full_name()),
        options_(options),
        host_(std::move(host)),
        executors_(executors),
        pool_(pool),
        instance_id_(NewInstanceId()),
        shares_(options.max_bytes_per_connection),
        stream_context_(ContextOf(options)),
        sessions_(stream_context_, options.session_limits, options.groups, instance_id_),
        workers_(options.workers, options.queue),
        watch_([this](absl::Time now) { sessions_.Tick(now); }) {
    ServeUnary("GetServerInfo", &Impl::GetServerInfo);
    ServeOnWorker("PlanLayout", &CheckRequestBytes, &Impl::PlanLayout);
    ServeOnWorker("ShardBatch", &CheckRequestBytes, &Impl::ShardBatch);
    Serve("ShardBatches", [this](auto* call) { return ShardBatches(call); });
    ServeOnWorker("OpenSession", &CheckNothing, &Impl::OpenSession);
    ServeUnary("CloseSession", &Impl::CloseSession);
    ServeOnWorker("ListGroups", &CheckSmall, &Impl::ListGroups);
    ServeOnWorker("DumpGroup", &CheckSmall, &Impl::DumpGroup);
    Serve("PushBatches",
          [this](auto* call) { return sessions_.Push(call, OwnerOf(call), watch_); });
    Serve("PullShards", [this](auto* call) { return sessions_.Pull(call, OwnerOf(call), watch_); });
    Serve("GetShard", [this](auto* call) {
      return sessions_.Get(call, OwnerOf(call), watch_, &ParseGetShard);
    });
  }

  ~Impl() override { sessions_.EndLaterWork(); }

  // At once, not behind the work that waits: it is how a client learns that the server is there.
  void GetServerInfo(UnaryCall& call, const v1::GetServerInfoRequest&) {
    ServerInfo info;
    info.version = kVersion;
    info.instance_id = instance_id_;
    info.limits = options_.limits;
    info.stream_limits = options_.stream_limits;
    info.session_limits = options_.session_limits;
    info.max_chunk_bytes = kMaxChunkBytes;
    info.layouts = Options::BuiltLayouts();
    info.capabilities = {"plan_layout", "shard_batch", "shard_batches",
                         "list_groups", "dump_group",  "executors"};
    if (sessions_.offered()) {
      info.capabilities.insert(info.capabilities.end(),
                               {"open_session", "push_batches", "pull_shards", "get_shard"});
    }
    info.executor = std::string(executors_.name());
    info.executor_reason = executors_.reason();
    info.counters = counters();
    v1::GetServerInfoReply reply;
    EncodeServerInfo(info, &reply);
    Give(call, absl::OkStatus(), reply);
  }

  absl::Status PlanLayout(const std::string&, const v1::PlanLayoutRequest& message,
                          v1::PlanLayoutReply* reply) {
    CPSHARD_ASSIGN_OR_RETURN(const PlanRequest plan,
                             DecodePlanLayoutRequest(message, options_.limits));
    CPSHARD_ASSIGN_OR_RETURN(
        const PlanSummary summary,
        PlanLayoutOf(plan.request, plan.questions, options_.limits, PlanReply::kOfACall));
    return EncodePlanLayoutReply(summary, reply);
  }

  absl::Status ShardBatch(const std::string& peer, const v1::ShardBatchRequest& message,
                          v1::ShardBatchReply* reply) {
    CPSHARD_ASSIGN_OR_RETURN(const Request request,
                             DecodeShardBatchRequest(message, options_.limits));
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
               {{"peer", Describe(peer)}, {"call", "ShardBatch"}});
    }
    return ToPeer(status);
  }

  Reactor* ShardBatches(grpc::CallbackServerContext* call) {
    const auto stream = TwoWayReactor::Start(
        call, stream_context_, OwnerOf(call), [this](std::string peer, auto on_output) {
          return BatchStream::Make(stream_context_, std::move(peer), std::move(on_output));
        });
    watch_.Add(stream);
    return stream.get();
  }

  absl::Status OpenSession(const std::string&, const v1::OpenSessionRequest& message,
                           v1::OpenSessionReply* reply) {
    CPSHARD_ASSIGN_OR_RETURN(cpshard::OpenSession open, DecodeOpenSession(message));
    CPSHARD_ASSIGN_OR_RETURN(const OpenedSession opened, sessions_.Open(std::move(open)));
    EncodeOpenedSession(opened, reply);
    return CheckStates(*reply);
  }

  void CloseSession(UnaryCall& call, const v1::CloseSessionRequest& message) {
    absl::StatusOr<SessionName> session = DecodeCloseSession(message);
    if (!session.ok()) return call.Refuse(session.status());
    const auto closing = sessions_.Close(
        *std::move(session), [alive = call.shared_from_this()](const absl::Status& status) {
          Give(*alive, status, v1::CloseSessionReply());
        });
    call.WhenGivenUp([closing] { closing->Answer(absl::CancelledError("the caller gave up")); });
  }

  absl::Status ListGroups(const std::string&, const v1::ListGroupsRequest&,
                          v1::ListGroupsReply* reply) {
    EncodeGroupViews(sessions_.Views(), reply);
    return CheckFits(*reply);
  }

  absl::Status DumpGroup(const std::string&, const v1::DumpGroupRequest& message,
                         v1::DumpGroupReply* reply) {
    CPSHARD_ASSIGN_OR_RETURN(const std::string group, DecodeDumpGroup(message));
    CPSHARD_ASSIGN_OR_RETURN(const GroupView view, sessions_.View(group));
    EncodeGroupView(view, reply);
    return CheckFits(*reply);
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

  CallOwner OwnerOf(grpc::CallbackServerContext* call) {
    return {[this](const std::string& peer) { Cut(peer); },
            [this](const std::string& peer) { return Describe(peer); },
            [this, leave = Enter(call)](WatchedCall* done) {
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

  Reactor* StartUnary(grpc::CallbackServerContext* context, UnaryCall::OnRequest on_request) {
    const auto call = UnaryCall::Start(context, options_.stall, &counters_, OwnerOf(context),
                                       std::move(on_request));
    watch_.Add(call);
    return call.get();
  }

  // `answer` answers a small request at once or later. On gRPC's thread.
  template <typename Request>
  void ServeUnary(const char* method, void (Impl::*answer)(UnaryCall&, const Request&)) {
    Serve(method, [=, this](grpc::CallbackServerContext* context) {
      return StartUnary(context, [=, this](const auto& call, grpc::ByteBuffer message) {
        Request request;
        absl::Status status = draining_ ? ShuttingDown() : CheckSmall(SizeOf(message));
        if (status.ok()) status = Parse(&message, &request);
        if (!status.ok()) return call->Refuse(status);
        (this->*answer)(*call, request);
      });
    });
  }

  // `answer` makes the reply to a request, given its peer, on a worker; a call that was given up
  // before its turn is not begun. It is parsed there, too: as many at a time as there are workers.
  template <typename Request, typename Reply>
  void ServeOnWorker(const char* method, CheckBytes check,
                     absl::Status (Impl::*answer)(const std::string&, const Request&, Reply*)) {
    Serve(method, [=, this](grpc::CallbackServerContext* context) {
      return StartUnary(context, [=, this](const auto& call, grpc::ByteBuffer message) {
        absl::Status status = draining_ ? ShuttingDown() : check(SizeOf(message));
        if (status.ok()) {
          status = workers_.Submit([this, answer, call, message]() mutable {
            if (call->answered()) return;
            Request request;
            Reply reply;
            absl::Status made = Parse(&message, &request);
            if (made.ok()) made = (this->*answer)(call->peer(), request, &reply);
            Give(*call, made, reply);
          });
        }
        if (!status.ok()) call->Refuse(status);
      });
    });
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
  CallWatch watch_;     // the last member: its ticks make work
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
