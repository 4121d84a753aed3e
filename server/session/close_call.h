// CloseSession: a call that is answered when all readers of the generation have closed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "server/session/session_hub.h"

namespace cpshard {

// The answer to the call, which may be given by several: the first counts. Thread-safe.
class ClosingAnswer {
 public:
  explicit ClosingAnswer(grpc::ServerUnaryReactor* call) : call_(call) {}

  void Give(const absl::Status& status);

 private:
  friend class CloseCall;
  void Keep(std::shared_ptr<SessionPeer> peer);
  void OnTold();

  grpc::ServerUnaryReactor* const call_;
  absl::Mutex mu_;
  bool given_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<SessionPeer> peer_ ABSL_GUARDED_BY(mu_);
};

// Owns itself until gRPC is done with the call.
class CloseCall final : public grpc::ServerUnaryReactor {
 public:
  // `on_done` is called when gRPC is done with the call.
  static CloseCall* Start(const std::shared_ptr<SessionHub>& hub, SessionName session,
                          std::function<void()> on_done);

  std::weak_ptr<ClosingAnswer> answer() const { return answer_; }

  void OnCancel() override;
  void OnDone() override;

 private:
  explicit CloseCall(std::function<void()> on_done);

  const std::function<void()> on_done_;
  const std::shared_ptr<ClosingAnswer> answer_;
};

}  // namespace cpshard
