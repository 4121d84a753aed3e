// What a reader asks for, and what stands beside its shards.
#include <utility>

#include "absl/status/status.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/session.pb.h"
#include "proto/field_checks.h"
#include "proto/frame_parts.h"
#include "proto/session_codec.h"
#include "proto/session_parts.h"

namespace cpshard {
namespace {

void EncodeWant(const Want& want, v1::Want* message) {
  message->set_id(want.id);
  EncodeAddress(want.at, message->mutable_at());
  if (want.microbatch) message->set_microbatch(*want.microbatch);
  if (want.timeout_ms) message->set_timeout_ms(*want.timeout_ms);
  for (const std::string& key : want.keys) message->add_keys(key);
  if (want.from_microbatch) message->set_from_microbatch(*want.from_microbatch);
}

absl::StatusOr<Want> DecodeWant(const v1::Want& message) {
  Want want;
  want.id = message.id();
  want.at = DecodeAddress(message.at());
  if (message.has_microbatch()) want.microbatch = message.microbatch();
  if (message.has_timeout_ms()) want.timeout_ms = message.timeout_ms();
  want.keys.assign(message.keys().begin(), message.keys().end());
  if (message.has_from_microbatch()) want.from_microbatch = message.from_microbatch();
  CPSHARD_RETURN_IF_ERROR(Check(want));
  return want;
}

void EncodeCommit(const Commit& commit, v1::Commit* message) {
  EncodeAddress(commit.at, message->mutable_at());
  if (!commit.stall) return;
  EncodeStall(*commit.stall, message->mutable_stall());
  message->set_elapsed_us(commit.elapsed_us);
}

absl::StatusOr<Commit> DecodeCommit(const v1::Commit& message) {
  Commit commit{DecodeAddress(message.at()), std::nullopt, 0};
  if (message.has_stall()) {
    commit.stall = DecodeStall(message.stall());
    commit.elapsed_us = message.elapsed_us();
  }
  CPSHARD_RETURN_IF_ERROR(Check(commit));
  return commit;
}

absl::StatusOr<PassClosed> DecodePassClosed(const v1::PassClosed& message) {
  PassClosed closed{message.stream(), message.pass(), message.finished()};
  CPSHARD_RETURN_IF_ERROR(Check(closed));
  return closed;
}

struct RequestEncoder {
  v1::PullRequest* message;

  void operator()(const SessionName& session) const {
    EncodeSessionName(session, message->mutable_session());
  }
  void operator()(const Want& want) const { EncodeWant(want, message->mutable_want()); }
  void operator()(const Commit& commit) const { EncodeCommit(commit, message->mutable_commit()); }
  void operator()(const PassClosed& closed) const {
    v1::PassClosed* to = message->mutable_pass_closed();
    to->set_stream(closed.stream);
    to->set_pass(closed.pass);
    to->set_finished(closed.finished);
  }
};

}  // namespace

absl::StatusOr<PullRequest> DecodePullRequest(absl::Span<const Bytes> message) {
  v1::PullRequest request;
  CPSHARD_RETURN_IF_ERROR(ParseMessage(message, "PullRequest", kMaxHeaderBytes, &request));
  switch (request.request_case()) {
    case v1::PullRequest::kSession:
      return DecodeSessionName(request.session());
    case v1::PullRequest::kWant:
      return DecodeWant(request.want());
    case v1::PullRequest::kCommit:
      return DecodeCommit(request.commit());
    case v1::PullRequest::kPassClosed:
      return DecodePassClosed(request.pass_closed());
    case v1::PullRequest::REQUEST_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a PullRequest names no session, want, commit or pass_closed that this version knows");
}

std::string EncodePullRequest(const PullRequest& request) {
  v1::PullRequest message;
  std::visit(RequestEncoder{&message}, request);
  return message.SerializeAsString();
}

absl::StatusOr<GetShard> DecodeGetShard(const v1::GetShardRequest& message) {
  GetShard get;
  CPSHARD_ASSIGN_OR_RETURN(get.session, DecodeSessionName(message.session()));
  CPSHARD_ASSIGN_OR_RETURN(get.want, DecodeWant(message.want()));
  if (message.has_commit()) get.commit = message.commit();
  FieldChecks checks("get_shard");
  checks.Number("commit", get.commit.value_or(0));
  CPSHARD_RETURN_IF_ERROR(checks.status());
  return get;
}

void EncodeDelivery(const DeliveryHead& delivery, v1::DeliveryHead* message) {
  EncodeAddress(delivery.at, message->mutable_at());
  message->set_microbatch(delivery.microbatch);
  message->set_last(delivery.last);
  if (delivery.totals) EncodeStepTotals(*delivery.totals, message->mutable_totals());
  message->set_digest(delivery.digest);
  message->set_owner(delivery.owner);
  message->set_num_loaders(delivery.num_loaders);
  if (delivery.owner_state) message->set_owner_state(*delivery.owner_state);
}

absl::StatusOr<DeliveryHead> DecodeDelivery(const v1::DeliveryHead& message, uint64_t id) {
  DeliveryHead delivery;
  delivery.id = id;
  delivery.at = DecodeAddress(message.at());
  delivery.microbatch = message.microbatch();
  delivery.last = message.last();
  if (message.has_totals()) delivery.totals = DecodeStepTotals(message.totals());
  delivery.digest = message.digest();
  delivery.owner = message.owner();
  delivery.num_loaders = message.num_loaders();
  if (message.has_owner_state()) delivery.owner_state = message.owner_state();
  CPSHARD_RETURN_IF_ERROR(Check(delivery));
  return delivery;
}

}  // namespace cpshard
