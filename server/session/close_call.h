// CloseSession: a call that is answered when all readers of the generation have closed.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/session/session_hub.h"

namespace cpshard {

// Waits for the others, for as long as it lives. Thread-safe.
class CloseCall {
 public:
  // `answer` is called once, with a lock held.
  static std::shared_ptr<CloseCall> Start(const std::shared_ptr<SessionHub>& hub,
                                          SessionName session,
                                          std::function<void(const absl::Status&)> answer);

  // By whoever knows it first.
  void Answer(const absl::Status& status);

 private:
  explicit CloseCall(std::function<void(const absl::Status&)> answer)
      : answer_(std::move(answer)) {}
  void Keep(std::shared_ptr<SessionPeer> peer);
  void OnTold();

  const std::function<void(const absl::Status&)> answer_;
  absl::Mutex mu_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<SessionPeer> peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace cpshard
