// Ends the process at a time that is set, whatever hangs.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace cpshard {

// Thread-safe. A call into a driver may never return: who waits for it, holds a lock or writes to a
// log that nobody reads is not waited for. Its threads exist from the beginning.
class Watchdog {
 public:
  // At the end `last_words` is called, which may hang; a moment later the process is gone, with
  // `exit_status`, without destructors.
  Watchdog(std::function<void()> last_words, int exit_status);

  // The earliest end counts; none is taken back. Its threads go on when the object goes.
  void EndWithin(absl::Duration duration);

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace cpshard
