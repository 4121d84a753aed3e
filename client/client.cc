#include "client/client.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/status.h"
#include "client/channel.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.grpc.pb.h"
#include "proto/codec.h"
#include "proto/status.h"

namespace cpshard {
class Client::Impl {
 public:
  Impl(const std::string& address, ClientOptions options)
      : options_(options),
        stub_(v1::ShardService::NewStub(grpc::CreateCustomChannel(
            address, grpc::InsecureChannelCredentials(), ChannelArguments()))) {}

  template <typename Method, typename Request, typename Reply>
  absl::Status Call(Method method, const Request& request, Reply* reply) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + options_.deadline));
    context.set_wait_for_ready(options_.wait_for_ready);
    return FromGrpc((stub_.get()->*method)(&context, request, reply));
  }

 private:
  const ClientOptions options_;
  const std::unique_ptr<v1::ShardService::Stub> stub_;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(absl::string_view address,
                                                        ClientOptions options) {
  if (address.empty()) return absl::InvalidArgumentError("the server's address is empty");
  // Held for the life of the process: the last grpc_shutdown() may take 10 s (a thread in a poll).
  [[maybe_unused]] static const bool held = (grpc_init(), true);
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(std::string(address), options)));
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  v1::GetServerInfoReply reply;
  CPSHARD_RETURN_IF_ERROR(
      impl_->Call(&v1::ShardService::Stub::GetServerInfo, v1::GetServerInfoRequest(), &reply));
  return DecodeServerInfo(reply);
}

absl::StatusOr<PlanSummary> Client::PlanLayout(const BatchSpec& spec, const Options& options,
                                               absl::Span<const int64_t> ranks) {
  v1::PlanLayoutRequest request;
  CPSHARD_RETURN_IF_ERROR(EncodePlanLayoutRequest(spec, options, ranks, &request));
  v1::PlanLayoutReply reply;
  CPSHARD_RETURN_IF_ERROR(impl_->Call(&v1::ShardService::Stub::PlanLayout, request, &reply));
  return DecodePlanLayoutReply(reply);
}

absl::StatusOr<ShardResult> Client::ShardBatch(const Batch& batch, const Options& options,
                                               std::optional<int64_t> cp_size,
                                               absl::Span<const int64_t> ranks) {
  v1::ShardBatchRequest request;
  CPSHARD_RETURN_IF_ERROR(EncodeShardBatchRequest(batch, options, cp_size, ranks, &request));
  v1::ShardBatchReply reply;
  CPSHARD_RETURN_IF_ERROR(impl_->Call(&v1::ShardService::Stub::ShardBatch, request, &reply));
  return DecodeShardBatchReply(&reply);
}

}  // namespace cpshard
