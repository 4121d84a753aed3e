// Client of cpshardd: one connection, unary calls. (The stream client is another class.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"
#include "core/plan/spec.h"
#include "proto/options.h"
#include "proto/replies.h"
#include "proto/session_messages.h"
#include "proto/session_views.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace cpshard {

struct ClientOptions {
  absl::Duration deadline = absl::Seconds(30);  // of one call
  bool wait_for_ready = false;                  // wait for the server within the deadline
};

// Thread-safe. All calls block; they return the server's status with its message, Unavailable when
// it cannot be reached, DeadlineExceeded when the deadline passes.
class Client {
 public:
  // `address`: see client/address.h. Connects lazily: errors appear in the calls.
  // InvalidArgument: what is no address.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(absl::string_view address,
                                                         ClientOptions options = {});
  ~Client();

  absl::StatusOr<ServerInfo> GetServerInfo();

  // The layouts of `ranks` (empty = all) for this batch, and answers to the questions. The streams
  // whose values the layout reads travel with their bytes, and those that its tokens are counted by
  // as far as a call of 4 MiB has room for them; a notice names those left out. A tensor without
  // bytes is a spec alone: where its values are read there is no layout in the summary, and its
  // `needs` says which are. ResourceExhausted: what is read, or the layouts, are over 4 MiB.
  absl::StatusOr<PlanSummary> PlanLayout(const Batch& batch, const Options& options,
                                         std::optional<int64_t> cp_size,
                                         absl::Span<const int64_t> ranks,
                                         const PlanQuestions& questions = {});

  // The shards of `ranks` (empty = all). Tensors of the result are windows on one received body.
  // ResourceExhausted: the request or the reply is over 4 MiB, the limit of a unary call.
  // FailedPrecondition: what else Sharder::Plan says, or the server has no such executor. Internal:
  // the shards are not those of these ranks.
  absl::StatusOr<ShardResult> ShardBatch(const Batch& batch, const Options& options,
                                         std::optional<int64_t> cp_size,
                                         absl::Span<const int64_t> ranks,
                                         ExecutorKind executor = ExecutorKind::kAuto);

  // The groups of sessions as they stand now: all that the server knows, or one (NotFound).
  absl::StatusOr<std::vector<GroupView>> ListGroups();
  absl::StatusOr<GroupView> DumpGroup(const std::string& group);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One unary call on somebody else's channel, for a caller that must not block. Thread-safe. Its end
// cancels what is not answered; that takes no word from the server.
template <typename Answer>
class UnaryCall {
 public:
  virtual ~UnaryCall() = default;

  // nullopt: not yet. Errors as those of Client.
  virtual std::optional<absl::StatusOr<Answer>> answer() const = 0;
};

// `answered` is called once, on a thread of gRPC: there is an answer. It may come before the
// function returns, but not after the call has been destroyed.
std::unique_ptr<UnaryCall<ServerInfo>> CallGetServerInfo(
    const std::shared_ptr<grpc::Channel>& channel, absl::Duration deadline,
    std::function<void()> answered);

// InvalidArgument: a message that no server takes.
absl::StatusOr<std::unique_ptr<UnaryCall<OpenedSession>>> CallOpenSession(
    const std::shared_ptr<grpc::Channel>& channel, const OpenSession& open, absl::Duration deadline,
    std::function<void()> answered);

struct ClosedSession {};
std::unique_ptr<UnaryCall<ClosedSession>> CallCloseSession(
    const std::shared_ptr<grpc::Channel>& channel, const SessionName& session,
    absl::Duration deadline, std::function<void()> answered);

}  // namespace cpshard
