#include "server/server.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "core/exec/device/device_lost.h"
#include "core/plan/status_macros.h"
#include "core/plan/with_text.h"
#include "proto/replies.h"
#include "server/acceptor.h"
#include "server/executors.h"
#include "server/self_test.h"
#include "server/service.h"

namespace cpshard {
namespace {

// Names of the health service. A probe of liveness goes on being served while the server drains:
// it is not ill. It is where the device is lost.
constexpr char kWholeServer[] = "";
constexpr char kService[] = "cpshard.v1.ShardService";
constexpr char kStartup[] = "startup";
constexpr char kLiveness[] = "liveness";
constexpr const char* kHealthNames[] = {kWholeServer, kService, kStartup, kLiveness};

constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kMaxHttp2FrameBytes = 4 << 20;
// What gRPC may hold for a stream: messages that are read ahead, landed and put together, of 8 MiB
// each; what it takes before it is asked, up to 16 MiB; and as much that goes out.
constexpr int64_t kMaxHeldBytes = int64_t{64} << 20;
constexpr absl::Duration kTcpTimeout = absl::Seconds(40);  // keepalive's 30 + 10 s
constexpr absl::Duration kQuiet = absl::Milliseconds(100);
constexpr absl::Duration kMaxLinger = absl::Seconds(1);
constexpr absl::Duration kCallsEnd = absl::Seconds(1);     // then gRPC cancels them
constexpr absl::Duration kCut = absl::Milliseconds(1500);  // then their connections are cut

// What gRPC itself may hold of messages, of all connections. The last line of defence, not the
// limiter, for it is nobody's fault: over it, gRPC resets whichever streams it likes, without a
// status of ours, and hangs others in silence (measured). So there is room for a stream of every
// connection, and for every stream of one.
size_t QuotaBytes(const ServerOptions& options) {
  return static_cast<size_t>(std::max<int64_t>(options.max_connections, kMaxStreamsPerConnection) *
                             kMaxHeldBytes);
}

SessionLimits SessionLimitsOf(const ServerOptions& options) {
  SessionLimits limits = options.session_limits;
  limits.session_bytes = options.session_bytes.value_or(options.pool_bytes / 2);
  return limits;
}

// Of pool_bytes, what sessions do not have.
int64_t StatelessBytes(const ServerOptions& options) {
  return options.pool_bytes - SessionLimitsOf(options).session_bytes;
}

// Of a place that is not to be had. Keeps what the status carries.
absl::Status WithWayOut(const absl::Status& status) {
  return WithText(status,
                  absl::StrCat(status.message(), "; executor = cpu starts without a device"));
}

void Configure(grpc::ServerBuilder& builder, const ServerOptions& options) {
  grpc::ResourceQuota quota("cpshard");
  quota.Resize(QuotaBytes(options));
  builder.SetResourceQuota(quota);
  // Compressed messages are refused: gRPC unpacks them before it looks at their size, so that one
  // megabyte becomes a thousand.
  for (grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttp2FrameBytes);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // A frozen peer is noticed by pings only; clients may ping every 10 s.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Place place,
       std::function<void(const absl::Status&)> on_device_lost)
      : options_(options),
        executors_(std::move(place), std::move(on_device_lost)),
        pool_({.max_bytes = static_cast<size_t>(StatelessBytes(options)),
               .blocks = executors_.blocks()}),
        rpcs_(
            {.limits = options.limits,
             .workers = options.workers,
             .queue = options.queue,
             .stream_limits = options.stream_limits,
             .session_limits = SessionLimitsOf(options),
             .groups = options.groups,
             .stall = options.stall,
             .max_bytes_per_connection = StatelessBytes(options) / 2},
            executors_, pool_,
            {.cut_connection = [this](const std::string& peer) { acceptor_->Shut(peer); },
             .describe_peer = [this](const std::string& peer) { return acceptor_->Describe(peer); },
             .add_counters =
                 [this](Counters& counters) {
                   counters.connections = acceptor_->connections();
                   counters.connections_refused = acceptor_->refused();
                   AddPinned(counters);
                 }}) {}

  absl::Status CheckGroups() const {
    for (const DeclaredGroup& group : options_.groups) {
      const absl::Status status = executors_.Named(group.executor).status();
      if (status.ok()) continue;
      return absl::Status(status.code(),
                          absl::StrCat("group '", group.group, "': ", status.message()));
    }
    return absl::OkStatus();
  }

  absl::Status Listen() {
    // Held for the life of the process: the last grpc_shutdown() joins a thread that may sit in a
    // poll for 10 s, and a stopped server must not wait for that.
    [[maybe_unused]] static const bool held = (grpc_init(), true);
    CPSHARD_ASSIGN_OR_RETURN(
        acceptor_,
        Acceptor::Listen({.listen = options_.listen,
                          .socket_mode = options_.socket_mode,
                          .max_connections = options_.max_connections,
                          .tcp_timeout = std::max(kTcpTimeout, options_.stall + kTcpTimeout / 4)}));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    Configure(builder, options_);
    builder.RegisterService(rpcs_.service());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("the gRPC server does not start");
    // Before anybody can connect: a probe of a name that is not known is answered with NOT_FOUND.
    for (const char* name : kHealthNames) SetHealth(name, true);
    acceptor_->Start(
        [server = server_.get()](int fd) { grpc::AddInsecureChannelFromFd(server, fd); });
    return absl::OkStatus();
  }

  void Stop(absl::Duration grace, absl::FunctionRef<bool()> hurry) {
    if (server_ == nullptr) return;
    bool hurried = false;  // a signal is seen once
    const auto in_a_hurry = [&] { return hurried = hurried || hurry(); };
    for (const char* name : {kWholeServer, kService}) SetHealth(name, false);
    rpcs_.Drain();
    const absl::Time end = absl::Now() + grace;
    while (rpcs_.active() > 0 && absl::Now() < end && !in_a_hurry()) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    // gRPC answers what comes during its own shutdown with CANCELLED; so goes on refusing with
    // UNAVAILABLE until nobody has called for a moment, but not for ever.
    const absl::Time patience = std::min(end, absl::Now() + kMaxLinger);
    absl::Time quiet_since = absl::Now();
    while (absl::Now() < patience && absl::Now() - quiet_since < kQuiet && !in_a_hurry()) {
      absl::SleepFor(absl::Milliseconds(5));
      if (rpcs_.active() > 0) quiet_since = absl::Now();
    }
    acceptor_->StopListening();
    ShutDown();
  }

  const std::vector<std::string>& addresses() const { return acceptor_->addresses(); }
  Counters counters() const { return rpcs_.counters(); }
  const Executors& executors() const { return executors_; }
  std::vector<std::string> DumpGroups() const { return rpcs_.DumpGroups(); }

  void ReportIll() {
    for (const char* name : kHealthNames) SetHealth(name, false);
  }

 private:
  void AddPinned(Counters& counters) const {
    if (executors_.blocks() == nullptr) return;
    const PinnedBlocks::Stats pinned = executors_.blocks()->stats();
    counters.pinned_bytes = pinned.pinned_bytes;
    counters.pinned_bytes_out = pinned.pinned_bytes_out;
    counters.unpinned_bytes_out = pinned.unpinned_bytes_out;
    counters.unpinned_blocks = pinned.unpinned_blocks;
  }

  void SetHealth(const char* name, bool serving) {
    if (server_ == nullptr) return;
    server_->GetHealthCheckService()->SetServingStatus(name, serving);
  }

  // Ends as soon as the last call has; new calls are refused meanwhile. A deadline always: an open
  // health Watch would hold it back for ever. And a second one: a call that was cancelled ends only
  // once its peer, or the end of the connection, takes what is queued for it.
  void ShutDown() {
    absl::Notification ended;
    std::thread cutter([&] {
      if (!ended.WaitForNotificationWithTimeout(kCut)) acceptor_->ShutAll();
    });
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCallsEnd));
    server_->Wait();
    ended.Notify();
    cutter.join();
    server_.reset();
    rpcs_.Clear();
  }

  const ServerOptions options_;
  const Executors executors_;
  BufferPool pool_;
  std::unique_ptr<Acceptor> acceptor_;  // stops to use server_ in Stop; the calls may use it
  ShardRpcs rpcs_;
  std::unique_ptr<grpc::Server> server_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  Stop(absl::ZeroDuration(), [] { return true; });
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, std::function<void(const absl::Status&)> on_device_lost) {
  PlaceOptions place_options = PlaceOf(options);
  place_options.try_out = TestExecutor;  // before anybody gets shards of it
  absl::StatusOr<Place> place = MakePlace(place_options);
  // The self-test names the way out itself.
  if (absl::IsInternal(place.status()) && !IsDeviceLost(place.status())) return place.status();
  if (!place.ok()) return WithWayOut(place.status());
  auto impl = std::make_unique<Impl>(options, *std::move(place), std::move(on_device_lost));
  absl::Status status = impl->CheckGroups();
  if (status.ok()) status = impl->Listen();
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  if (!status.ok()) return status;
  return server;
}

const std::vector<std::string>& Server::addresses() const { return impl_->addresses(); }

absl::string_view Server::executor() const { return impl_->executors().name(); }

const std::string& Server::executor_reason() const { return impl_->executors().reason(); }

Counters Server::counters() const { return impl_->counters(); }

std::vector<std::string> Server::DumpGroups() const { return impl_->DumpGroups(); }

void Server::ReportIll() { impl_->ReportIll(); }

void Server::Stop(absl::Duration grace, absl::FunctionRef<bool()> hurry) {
  impl_->Stop(grace, hurry);
}

}  // namespace cpshard
