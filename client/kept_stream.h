// A stream to a server that is kept up as long as somebody wants it: connect, greet, call; again
// after every loss. Also the clock of what is on the stream.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/address.h"
#include "client/client.h"
#include "client/stream_call.h"
#include "client/stream_connection.h"
#include "client/stream_greeting.h"
#include "client/wakeup_fd.h"

namespace cpshard {

// Runs on when somebody sets the clock.
absl::Time SteadyNow();

// One thread, the keeper, and one call at a time. Who inherits decides: when to connect, what to
// say, what an end means. None of the functions here is to be called with a lock held that those
// decisions take.
class KeptStream : public StreamUser, public std::enable_shared_from_this<KeptStream> {
 public:
  void Start();  // once

  // Nothing is under way any more when this returns: at once, whatever the server does. Idempotent.
  // Not on a thread of gRPC's callbacks: it waits for one of them.
  void Close();

 protected:
  enum class Stage { kConnecting, kConnected };

  // `method` of StreamCall.
  KeptStream(Address address, std::unique_ptr<WakeupFd> wakeup, std::string method);

  const Address& address() const { return address_; }

  // --- decisions

  // Does what is due; the keeper's thread. Returns when there will be something that time alone
  // brings. In the past: WantsConnection has it now.
  virtual absl::Time Tick(absl::Time now) = 0;
  virtual bool WantsConnection(absl::Time now) = 0;
  virtual void OnConnecting() = 0;  // it may take its time; ends with OnGreeted or OnDown
  // May ask the server for more. Not OK: the connection is not used.
  virtual absl::Status OnGreeted(const Greeted& greeted) = 0;
  // There is a call, to be woken.
  virtual void OnUp() = 0;
  // No connection could be made, or the one that was there has ended. Never OK.
  virtual void OnDown(const absl::Status& status, Stage stage) = 0;

  // --- any thread

  // The call asks for the next message, if there is a call.
  void WakeCall();
  // Ends the call, if there is one: OnDown follows.
  void HangUp();
  // Something is due at `due`: the keeper looks then.
  void WakeKeeperBefore(absl::Time due);
  void WakeKeeper() { wakeup_->Wake(); }

  // The last one that was made, if it is up.
  std::shared_ptr<StreamConnection> connection() const;

  // --- the keeper's thread

  // The answer to a call that wakes the keeper. Cancelled: the stream is being closed.
  template <typename Answer>
  absl::StatusOr<Answer> AwaitAnswer(const UnaryCall<Answer>& call) {
    return Await(call, [this](int fd, absl::Duration patience) { return Sleep(fd, patience); });
  }

 private:
  void Keep();
  bool Sleep(int fd, absl::Duration patience);
  void MakeConnection();
  void OnEnd(const absl::Status& status) final;

  const Address address_;
  const std::string method_;
  const std::unique_ptr<WakeupFd> wakeup_;  // of the keeper
  std::thread keeper_;

  mutable absl::Mutex keeper_mutex_;
  bool closing_ ABSL_GUARDED_BY(keeper_mutex_) = false;
  bool asleep_ ABSL_GUARDED_BY(keeper_mutex_) = false;
  // When the keeper looks again by itself; not asleep: at the latest, as others say.
  absl::Time wakes_ ABSL_GUARDED_BY(keeper_mutex_) = absl::InfiniteFuture();
  std::shared_ptr<StreamCall> call_ ABSL_GUARDED_BY(keeper_mutex_);  // until its OnEnd
  // The last one, until the next: it must not go on a thread of gRPC.
  std::shared_ptr<StreamConnection> connection_ ABSL_GUARDED_BY(keeper_mutex_);
};

}  // namespace cpshard
