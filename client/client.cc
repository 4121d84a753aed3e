#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "client/address.h"
#include "client/channel.h"
#include "client/expected_ranks.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.grpc.pb.h"
#include "proto/codec.h"
#include "proto/status.h"

namespace cpshard {
class Client::Impl {
 public:
  Impl(const Address& address, ClientOptions options)
      : options_(options),
        stub_(v1::ShardService::NewStub(grpc::CreateCustomChannel(
            address.GrpcTarget(), grpc::InsecureChannelCredentials(), ChannelArguments()))) {}

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
  CPSHARD_ASSIGN_OR_RETURN(const Address parsed, Address::Parse(address));
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(parsed, options)));
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  v1::GetServerInfoReply reply;
  CPSHARD_RETURN_IF_ERROR(
      impl_->Call(&v1::ShardService::Stub::GetServerInfo, v1::GetServerInfoRequest(), &reply));
  return DecodeServerInfo(reply);
}

absl::StatusOr<PlanSummary> Client::PlanLayout(const Batch& batch, const Options& options,
                                               std::optional<int64_t> cp_size,
                                               absl::Span<const int64_t> ranks,
                                               const PlanQuestions& questions) {
  const std::vector<std::string> wanted = InspectionNeeds(SpecOf(batch, cp_size));
  std::vector<std::string> left_out;
  const auto ask = [&](const std::vector<std::string>& values) -> absl::StatusOr<PlanSummary> {
    v1::PlanLayoutRequest request;
    CPSHARD_ASSIGN_OR_RETURN(
        left_out, EncodePlanLayoutRequest(batch, options, cp_size, ranks, values, wanted, questions,
                                          &request));
    v1::PlanLayoutReply reply;
    CPSHARD_RETURN_IF_ERROR(impl_->Call(&v1::ShardService::Stub::PlanLayout, request, &reply));
    return DecodePlanLayoutReply(reply);
  };
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary, ask({}));
  if (summary.layouts.empty() && !summary.needs.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(summary, ask(summary.needs));
  }
  if (summary.totals && !left_out.empty()) {
    summary.notices.push_back(
        {"not_counted", absl::StrCat("a call of ", kMaxUnaryBytes, " bytes has no room for '",
                                     absl::StrJoin(left_out, "', '"),
                                     "': what is counted by them is left out; plan in process")});
  }
  return summary;
}

absl::StatusOr<ShardResult> Client::ShardBatch(const Batch& batch, const Options& options,
                                               std::optional<int64_t> cp_size,
                                               absl::Span<const int64_t> ranks) {
  v1::ShardBatchRequest request;
  CPSHARD_RETURN_IF_ERROR(EncodeShardBatchRequest(batch, options, cp_size, ranks, &request));
  v1::ShardBatchReply reply;
  CPSHARD_RETURN_IF_ERROR(impl_->Call(&v1::ShardService::Stub::ShardBatch, request, &reply));
  CPSHARD_ASSIGN_OR_RETURN(ShardResult result, DecodeShardBatchReply(&reply));
  const ExpectedRanks expected{.ranks = {ranks.begin(), ranks.end()},
                               .num_ranks = cp_size.value_or(1)};
  CPSHARD_RETURN_IF_ERROR(expected.Check(result));
  return result;
}

// --- ServerInfoCall

struct ServerInfoCall::State {
  std::unique_ptr<v1::ShardService::Stub> stub;
  grpc::ClientContext context;
  v1::GetServerInfoRequest request;
  v1::GetServerInfoReply reply;
  absl::Status status;
  absl::Notification answered;
  absl::Notification over;  // nothing of the call touches this object any more
};

ServerInfoCall::ServerInfoCall(const std::shared_ptr<grpc::Channel>& channel,
                               absl::Duration deadline, std::function<void()> answered)
    : state_(std::make_unique<State>()) {
  State* const state = state_.get();
  state->stub = v1::ShardService::NewStub(channel);
  state->context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  state->stub->async()->GetServerInfo(
      &state->context, &state->request, &state->reply,
      [state, answered = std::move(answered)](const grpc::Status& status) {
        state->status = FromGrpc(status);
        state->answered.Notify();
        answered();
        state->over.Notify();
      });
}

ServerInfoCall::~ServerInfoCall() {
  state_->context.TryCancel();
  state_->over.WaitForNotification();
}

std::optional<absl::StatusOr<ServerInfo>> ServerInfoCall::answer() const {
  if (!state_->answered.HasBeenNotified()) return std::nullopt;
  if (!state_->status.ok()) return state_->status;
  return DecodeServerInfo(state_->reply);
}

}  // namespace cpshard
