// What Loader and Rank have in common: a stream that is kept up until something ends it, a lock,
// and the times of a session. Each adds its ledger and what it says.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/kept_stream.h"
#include "client/session/session_clock.h"

namespace cpshard {

// Thread-safe. Under the lock nothing is done but what ledgers do: no copies, no calls into gRPC.
class SessionStream : public KeptStream {
 public:
  // Ends it, if it has not ended: no further connection, no further message.
  void End(absl::Status status);

 protected:
  SessionStream(Address address, std::unique_ptr<WakeupFd> wakeup, std::string method);

  // --- decisions, under the lock

  // Whether something waits to be tried again; whether the server owes something.
  virtual bool Postponed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual bool Owed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void TryAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // The ledger tells of itself that it is over.
  virtual std::optional<absl::Status> Outcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void Connected() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void Disconnected() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual bool IsFinal(const absl::Status& status, Stage) const { return !MayPass(status); }

  // --- without the lock

  virtual void OnTick() {}  // on the keeper's thread
  // A connection is lost, and will be made again. `why`: as the call ended.
  virtual void OnLost(const absl::Status& /*why*/) {}
  void OnDown(const absl::Status& status, Stage stage) override;

  // --- for who inherits

  // Changes something under the lock, then does what follows from the change: those who wait are
  // woken, and the call, which may have something to write.
  void Update(absl::FunctionRef<void()> change);
  // The same from NextMessage, where the call need not be told. Nobody waits for a message to be
  // written: they are woken when the stream has ended alone.
  void UpdateFromCall(absl::FunctionRef<void()> change);
  // The same, of what gives the call nothing to write.
  void UpdateQuietly(absl::FunctionRef<void()> change);
  // The server sends what cannot be. Returns the status, to end the call with.
  absl::Status Broken(absl::string_view what);
  void EndLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;  // by any Update and UpdateQuietly, and when it ends
  SessionClock clock_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);  // the last one; OK: the connection is up

 private:
  struct Wakes {
    bool call = true, waiters = true;
  };
  void Apply(absl::FunctionRef<void()> change, Wakes wakes);

  absl::Time Tick(absl::Time now) override;
  bool WantsConnection(absl::Time now) override;
  void OnConnecting() override;
  void OnUp() override;
};

}  // namespace cpshard
