#include "server/server.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/plan/status_macros.h"
#include "proto/replies.h"
#include "server/address.h"
#include "server/service.h"
#include "server/socket_lock.h"

namespace cpshard {
namespace {

constexpr int kMaxStreamsPerConnection = 128;
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr absl::Duration kQuiet = absl::Milliseconds(100);
constexpr absl::Duration kMaxLinger = absl::Seconds(1);

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // A second server on the port must fail loudly.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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
  explicit Impl(const ServerOptions& options)
      : options_(options),
        pool_({.max_bytes = static_cast<size_t>(options.pool_bytes)}),
        executor_(MakeCpuExecutor()),
        rpcs_({options.limits, options.workers, options.queue}, *executor_, pool_) {}

  absl::Status Listen() {
    // Held for the life of the process: the last grpc_shutdown() joins a thread that may sit in a
    // poll for 10 s, and a stopped server must not wait for that.
    [[maybe_unused]] static const bool held = (grpc_init(), true);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    Configure(builder);
    std::vector<int> ports(options_.listen.size(), 0);
    for (size_t i = 0; i < ports.size(); ++i) {
      std::string address = options_.listen[i];
      if (const auto path = UnixPath(address)) {
        CPSHARD_ASSIGN_OR_RETURN(SocketLock lock, SocketLock::Acquire(*path));
        locks_.push_back(std::move(lock));
        address = absl::StrCat("unix:", *path);
      }
      builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &ports[i]);
    }
    builder.RegisterService(rpcs_.service());
    server_ = builder.BuildAndStart();
    for (size_t i = 0; i < ports.size(); ++i) {
      if (ports[i] == 0) {
        return absl::UnavailableError(absl::StrCat("cannot listen on '", options_.listen[i],
                                                   "': in use, or not an address of this machine"));
      }
    }
    if (server_ == nullptr) return absl::UnavailableError("the gRPC server does not start");
    CPSHARD_RETURN_IF_ERROR(NameAddresses(ports));
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(true);
    health->SetServingStatus("cpshard.v1.ShardService", true);
    return absl::OkStatus();
  }

  void Stop(absl::Duration grace, absl::FunctionRef<bool()> hurry) {
    if (server_ == nullptr) return;
    server_->GetHealthCheckService()->Shutdown();
    rpcs_.Drain();
    const absl::Time end = absl::Now() + grace;
    while (rpcs_.active() > 0 && absl::Now() < end && !hurry()) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    // gRPC answers what comes during its own shutdown with CANCELLED; so goes on refusing with
    // UNAVAILABLE until nobody has called for a moment, but not for ever.
    const absl::Time patience = std::min(end, absl::Now() + kMaxLinger);
    absl::Time quiet_since = absl::Now();
    while (absl::Now() < patience && absl::Now() - quiet_since < kQuiet && !hurry()) {
      absl::SleepFor(absl::Milliseconds(5));
      if (rpcs_.active() > 0) quiet_since = absl::Now();
    }
    // Ends as soon as the last call has; new calls are refused meanwhile. A deadline always: an
    // open health Watch would hold it back for ever.
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    server_.reset();
  }

  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  absl::Status NameAddresses(const std::vector<int>& ports) {
    for (size_t i = 0; i < ports.size(); ++i) {
      const std::string& address = options_.listen[i];
      if (const auto path = UnixPath(address)) {
        if (chmod(path->c_str(), static_cast<mode_t>(options_.socket_mode)) != 0) {
          return absl::ErrnoToStatus(errno, absl::StrCat("cannot set the mode of '", *path, "'"));
        }
        addresses_.push_back(absl::StrCat("unix:", *path));
      } else {
        addresses_.push_back(absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[i]));
      }
    }
    return absl::OkStatus();
  }

  const ServerOptions options_;
  BufferPool pool_;
  std::unique_ptr<Executor> executor_;
  ShardRpcs rpcs_;
  std::vector<SocketLock> locks_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  Stop(absl::ZeroDuration(), [] { return true; });
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  const absl::Status status = impl->Listen();
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  if (!status.ok()) return status;
  return server;
}

const std::vector<std::string>& Server::addresses() const { return impl_->addresses(); }

void Server::Stop(absl::Duration grace, absl::FunctionRef<bool()> hurry) {
  impl_->Stop(grace, hurry);
}

}  // namespace cpshard
