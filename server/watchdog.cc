#include "server/watchdog.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace cpshard {
namespace {

constexpr absl::Duration kForLastWords = absl::Milliseconds(300);

}  // namespace

class Watchdog::State {
 public:
  void EndBy(absl::Time end) {
    absl::MutexLock lock(&mu_);
    end_ = std::min(end_, end);
    changed_.SignalAll();
  }

  void AwaitEnd(absl::Duration later) {
    absl::MutexLock lock(&mu_);
    while (absl::Now() < end_ + later) changed_.WaitWithDeadline(&mu_, end_ + later);
  }

 private:
  absl::Mutex mu_;
  absl::CondVar changed_;
  absl::Time end_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

Watchdog::Watchdog(std::function<void()> last_words, int exit_status)
    : state_(std::make_shared<State>()) {
  std::thread([state = state_, last_words = std::move(last_words)] {
    state->AwaitEnd(absl::ZeroDuration());
    last_words();
  }).detach();
  std::thread([state = state_, exit_status] {
    state->AwaitEnd(kForLastWords);
    std::_Exit(exit_status);
  }).detach();
}

void Watchdog::EndWithin(absl::Duration duration) { state_->EndBy(absl::Now() + duration); }

}  // namespace cpshard
