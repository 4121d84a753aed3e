// Where the calls of sessions meet: one Delivery behind a lock, and for every call the list of what
// it is to be told.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/session/delivery.h"

namespace cpshard {

class SessionHub;

// A call as Delivery knows it. What the call still has a hand in - a worker's task, a buffer that
// gRPC sends - keeps the object; with the last of them the call is disconnected.
// Thread-safe.
class SessionPeer {
 public:
  using Told = decltype(Output::what);

  ~SessionPeer();

  PeerId id() const { return id_; }

  // The next thing to tell, in order.
  std::optional<Told> Next();
  size_t waiting() const;

  // Whether the last thing to tell is, or was, the end of the call.
  bool ending() const;

 private:
  friend class SessionHub;
  friend class SentNotice;
  SessionPeer(std::shared_ptr<SessionHub> hub, PeerId id, std::function<void()> on_told)
      : hub_(std::move(hub)), id_(id), on_told_(std::move(on_told)) {}

  const std::shared_ptr<SessionHub> hub_;
  const PeerId id_;
  const std::function<void()> on_told_;
  mutable absl::Mutex mu_;
  std::deque<Told> told_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

// Thread-safe.
class SessionHub : public std::enable_shared_from_this<SessionHub> {
 public:
  // `run_later` runs work on another thread, or later on this one; never at once.
  static std::shared_ptr<SessionHub> Make(DeliveryOptions options,
                                          std::function<void(std::function<void()>)> run_later);

  // A call begins. `on_told` is called, without a lock of the hub, when there is something to tell.
  std::shared_ptr<SessionPeer> Connect(std::function<void()> on_told);

  // Carries out op(Delivery&, absl::Time now) and passes on what it says. Not to be called with a
  // lock held that on_told takes.
  template <typename Op>
  std::invoke_result_t<Op, Delivery&, absl::Time> Do(Op op) {
    Outcome outcome(this);  // tells without the lock
    absl::MutexLock lock(&mu_);
    const Routing routing(this, &outcome);
    return op(*delivery_, absl::Now());
  }

  // The same some time later: from destructors, or with a lock held.
  void DoLater(std::function<void(Delivery&, absl::Time)> op);

  // What time alone brings. To be called several times a second.
  void Tick(absl::Time now);

  // Forgets all groups, and lets go of what they hold. When no call is left.
  void Clear();

  // No later work is begun from now on.
  void Close();

 private:
  friend class SessionPeer;
  struct Outcome {
    explicit Outcome(SessionHub* hub) : hub(hub) {}
    ~Outcome() { hub->Tell(*this); }
    SessionHub* const hub;
    std::vector<std::shared_ptr<SessionPeer>> told;
    std::vector<Alert> alerts;
  };
  struct Routing {
    Routing(SessionHub* hub, Outcome* outcome) : hub(hub), outcome(outcome) {}
    ~Routing() ABSL_NO_THREAD_SAFETY_ANALYSIS { hub->Route(*outcome); }
    SessionHub* const hub;
    Outcome* const outcome;
  };

  SessionHub(DeliveryOptions options, std::function<void(std::function<void()>)> run_later);

  void Route(Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Tell(const Outcome& outcome);

  const DeliveryOptions options_;
  absl::Mutex later_mu_;
  std::function<void(std::function<void()>)> run_later_ ABSL_GUARDED_BY(later_mu_);

  absl::Mutex mu_;
  std::unique_ptr<Delivery> delivery_ ABSL_GUARDED_BY(mu_);
  PeerId next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<PeerId, std::weak_ptr<SessionPeer>> peers_ ABSL_GUARDED_BY(mu_);
};

// Bytes that are sent for a delivery: with the last of them gone, Delivery hears of it. Kept by
// every piece of the answer.
class SentNotice {
 public:
  SentNotice(std::shared_ptr<SessionPeer> peer, StepAddress at, int64_t microbatch)
      : peer_(std::move(peer)), at_(std::move(at)), microbatch_(microbatch) {}
  ~SentNotice();
  SentNotice(const SentNotice&) = delete;
  SentNotice& operator=(const SentNotice&) = delete;

 private:
  std::shared_ptr<SessionPeer> peer_;
  const StepAddress at_;
  const int64_t microbatch_;
};

}  // namespace cpshard
