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
#include "proto/session_codec.h"
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
                                               absl::Span<const int64_t> ranks,
                                               ExecutorKind executor) {
  v1::ShardBatchRequest request;
  CPSHARD_RETURN_IF_ERROR(
      EncodeShardBatchRequest(batch, options, cp_size, ranks, executor, &request));
  v1::ShardBatchReply reply;
  CPSHARD_RETURN_IF_ERROR(impl_->Call(&v1::ShardService::Stub::ShardBatch, request, &reply));
  CPSHARD_ASSIGN_OR_RETURN(ShardResult result, DecodeShardBatchReply(&reply));
  const ExpectedRanks expected{.ranks = {ranks.begin(), ranks.end()},
                               .num_ranks = cp_size.value_or(1),
                               .executor = executor};
  CPSHARD_RETURN_IF_ERROR(expected.Check(result));
  return result;
}

absl::StatusOr<std::vector<GroupView>> Client::ListGroups() {
  v1::ListGroupsReply reply;
  CPSHARD_RETURN_IF_ERROR(
      impl_->Call(&v1::ShardService::Stub::ListGroups, v1::ListGroupsRequest(), &reply));
  return DecodeGroupViews(reply);
}

absl::StatusOr<GroupView> Client::DumpGroup(const std::string& group) {
  v1::DumpGroupRequest request;
  request.set_group(group);
  v1::DumpGroupReply reply;
  CPSHARD_RETURN_IF_ERROR(impl_->Call(&v1::ShardService::Stub::DumpGroup, request, &reply));
  return DecodeGroupView(reply);
}

// --- calls on a channel

namespace {

template <typename Request, typename Reply, typename Answer>
class CallOf final : public UnaryCall<Answer> {
 public:
  // Of a generated stub; and what makes an answer of a reply.
  using Method = void (v1::ShardService::Stub::async::*)(grpc::ClientContext*, const Request*,
                                                         Reply*, std::function<void(grpc::Status)>);
  using Decode = absl::StatusOr<Answer> (*)(const Reply&);

  CallOf(Request request, Decode decode) : request_(std::move(request)), decode_(decode) {}
  ~CallOf() override {
    context_.TryCancel();
    over_.WaitForNotification();
  }

  void Start(const std::shared_ptr<grpc::Channel>& channel, Method method, absl::Duration deadline,
             std::function<void()> answered) {
    stub_ = v1::ShardService::NewStub(channel);
    if (deadline < absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    }
    (stub_->async()->*method)(&context_, &request_, &reply_,
                              [this, answered = std::move(answered)](const grpc::Status& status) {
                                status_ = FromGrpc(status);
                                answered_.Notify();
                                answered();
                                over_.Notify();
                              });
  }

  std::optional<absl::StatusOr<Answer>> answer() const override {
    if (!answered_.HasBeenNotified()) return std::nullopt;
    if (!status_.ok()) return status_;
    return decode_(reply_);
  }

 private:
  const Request request_;
  const Decode decode_;
  std::unique_ptr<v1::ShardService::Stub> stub_;
  grpc::ClientContext context_;
  Reply reply_;
  absl::Status status_;
  absl::Notification answered_;
  absl::Notification over_;  // nothing of the call touches this object any more
};

}  // namespace

std::unique_ptr<UnaryCall<ServerInfo>> CallGetServerInfo(
    const std::shared_ptr<grpc::Channel>& channel, absl::Duration deadline,
    std::function<void()> answered) {
  auto call =
      std::make_unique<CallOf<v1::GetServerInfoRequest, v1::GetServerInfoReply, ServerInfo>>(
          v1::GetServerInfoRequest(), [](const v1::GetServerInfoReply& reply) {
            return absl::StatusOr<ServerInfo>(DecodeServerInfo(reply));
          });
  call->Start(channel, &v1::ShardService::Stub::async::GetServerInfo, deadline,
              std::move(answered));
  return call;
}

absl::StatusOr<std::unique_ptr<UnaryCall<OpenedSession>>> CallOpenSession(
    const std::shared_ptr<grpc::Channel>& channel, const OpenSession& open, absl::Duration deadline,
    std::function<void()> answered) {
  v1::OpenSessionRequest request;
  CPSHARD_RETURN_IF_ERROR(EncodeOpenSession(open, &request));
  auto call = std::make_unique<CallOf<v1::OpenSessionRequest, v1::OpenSessionReply, OpenedSession>>(
      std::move(request), &DecodeOpenedSession);
  call->Start(channel, &v1::ShardService::Stub::async::OpenSession, deadline, std::move(answered));
  return call;
}

std::unique_ptr<UnaryCall<ClosedSession>> CallCloseSession(
    const std::shared_ptr<grpc::Channel>& channel, const SessionName& session,
    absl::Duration deadline, std::function<void()> answered) {
  v1::CloseSessionRequest request;
  EncodeCloseSession(session, &request);
  auto call =
      std::make_unique<CallOf<v1::CloseSessionRequest, v1::CloseSessionReply, ClosedSession>>(
          std::move(request), [](const v1::CloseSessionReply&) {
            return absl::StatusOr<ClosedSession>(ClosedSession());
          });
  call->Start(channel, &v1::ShardService::Stub::async::CloseSession, deadline, std::move(answered));
  return call;
}

}  // namespace cpshard
