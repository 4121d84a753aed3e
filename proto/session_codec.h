// Session messages on the wire, both ways. Decoders check what a message can be wrong in by itself:
// a name of no or over 128 bytes, negative numbers, lists over their limits (InvalidArgument,
// naming the field and the value); what a group says of it is for server/session.
//
// Bodies of batches travel in the frames of ShardBatches (frames.h): a loader's BatchFrame carries
// `push` in frame 0, a reader's ShardFrame `delivery`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/frames.h"
#include "proto/session_messages.h"
#include "proto/session_views.h"

namespace cpshard {

namespace v1 {
class CloseSessionRequest;
class DumpGroupReply;
class DumpGroupRequest;
class GetShardRequest;
class ListGroupsReply;
class OpenSessionReply;
class OpenSessionRequest;
}  // namespace v1

// --- unary calls

absl::StatusOr<OpenSession> DecodeOpenSession(const v1::OpenSessionRequest& message);
absl::Status EncodeOpenSession(const OpenSession& open, v1::OpenSessionRequest* message);
void EncodeOpenedSession(const OpenedSession& opened, v1::OpenSessionReply* message);
absl::StatusOr<OpenedSession> DecodeOpenedSession(const v1::OpenSessionReply& message);

absl::StatusOr<SessionName> DecodeCloseSession(const v1::CloseSessionRequest& message);
void EncodeCloseSession(const SessionName& session, v1::CloseSessionRequest* message);

absl::StatusOr<std::string> DecodeDumpGroup(const v1::DumpGroupRequest& message);
void EncodeGroupViews(const std::vector<GroupView>& views, v1::ListGroupsReply* message);
absl::StatusOr<std::vector<GroupView>> DecodeGroupViews(const v1::ListGroupsReply& message);
void EncodeGroupView(const GroupView& view, v1::DumpGroupReply* message);
absl::StatusOr<GroupView> DecodeGroupView(const v1::DumpGroupReply& message);
// FailedPrecondition: it is larger than a message may be, and not to be sent.
absl::Status CheckFits(const v1::ListGroupsReply& message);
absl::Status CheckFits(const v1::DumpGroupReply& message);

// One step for one reader, with what it has consumed so far.
struct GetShard {
  SessionName session;
  Want want;
  std::optional<int64_t> commit;  // of want.at's stream and pass
};
absl::StatusOr<GetShard> DecodeGetShard(const v1::GetShardRequest& message);

// --- PullShards: requests

// The first is a SessionName, and no other.
using PullRequest = std::variant<SessionName, Want, Commit, PassClosed>;
absl::StatusOr<PullRequest> DecodePullRequest(absl::Span<const Bytes> message);
std::string EncodePullRequest(const PullRequest& request);
// (Answers: ShardFrame, with `delivery`, or `error` under the Want's id.)

// --- PushBatches

// What a loader sends beside the frames of batches. (BatchFrame::hello, end.)
// What it is told:
struct AckMessage {
  StepAddress at;
  int64_t epoch = 0;
  int64_t microbatch = 0;
  absl::Status status;
};
struct DrainMessage {};
// The answer to a hello, before any other.
struct Welcome {
  std::string instance;
};
using LoaderNotice =
    std::variant<Welcome, Position, LoaderCredit, AckMessage, Released, PassDone, DrainMessage>;
absl::StatusOr<LoaderNotice> DecodeLoaderNotice(absl::Span<const Bytes> message);
std::string EncodeLoaderNotice(const LoaderNotice& notice);

}  // namespace cpshard
