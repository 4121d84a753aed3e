// The sessions of a server: their memory, their state, their calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/config.h"
#include "proto/replies.h"
#include "proto/session_codec.h"
#include "server/session/close_call.h"
#include "server/session/session_hub.h"
#include "server/stream/call_watch.h"
#include "server/stream/stream_reactor.h"

namespace cpshard {

// Whether a server of these limits can keep what it promises of groups that its configuration
// declares. InvalidArgument, with the numbers.
absl::Status CheckGroups(const std::vector<DeclaredGroup>& groups, const SessionLimits& limits,
                         const Limits& of_batches);

// Thread-safe.
class Sessions {
 public:
  // Memory of sessions is a pool of its own, of limits.session_bytes: what the window holds cannot
  // be taken by stateless calls, whose batches come unasked, and a burst of those finds its memory
  // whatever the window holds. A reservation in one pool would do neither without knowing, when a
  // stateless batch comes, what has been granted to loaders. Delivery grants three quarters of it:
  // blocks are up to a quarter larger than what was asked for, and large layouts of answers, and
  // batches that are cut anew, take some for as long as they are sent.
  //
  // `context` without its pool; `watch` may begin to tick before the calls do.
  // `groups` passed CheckGroups.
  Sessions(const StreamContext& context, const SessionLimits& limits,
           std::vector<DeclaredGroup> groups, std::string instance);
  ~Sessions();  // after the gRPC server is gone

  // Nothing is given to workers any more: to be called before they go. A slice that gRPC lets go of
  // late asks for some.
  void EndLaterWork();

  // There is memory for them; else whoever opens one or says hello is refused.
  bool offered() const { return offered_; }

  absl::StatusOr<OpenedSession> Open(OpenSession open);
  absl::StatusOr<GroupView> View(const std::string& group);
  std::vector<GroupView> Views();

  // Calls that carry frames. They are watched by `watch`, and go when gRPC is done with them. Get
  // is answered with the frames of a pull.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(
      grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch);
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch);
  using ParseGetShard = absl::StatusOr<GetShard> (*)(absl::Span<const Bytes> message);
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Get(
      grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch, ParseGetShard parse);

  // `answer` is called once, with a lock held; what comes back may be told the answer, too, and is
  // to be kept until it has one.
  std::shared_ptr<CloseCall> Close(SessionName session,
                                   std::function<void(const absl::Status&)> answer);

  void Drain();
  void Tick(absl::Time now);

  // Lets go of what the groups hold, when no call is left.
  void Clear() { hub_->Clear(); }

  void AddCounters(Counters& counters);

 private:
  TwoWayReactor* Start(grpc::CallbackServerContext* call, CallOwner owner, CallWatch& watch,
                       const MakeFrameStream& make);
  void RefuseClosing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  BufferPool pool_;
  StreamContext context_;
  const std::string instance_;
  const bool offered_;
  const std::shared_ptr<SessionHub> hub_;
  absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<CloseCall>> closing_ ABSL_GUARDED_BY(mu_);
};

}  // namespace cpshard
