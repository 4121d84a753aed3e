// Tells the thread sanitizer what Abseil's mutexes order. The system's Abseil is not instrumented
// and sleeps in futexes, so the sanitizer sees no lock and would report every access under one. The
// linker's --wrap (tests/CMakeLists.txt) sends the calls of product and tests here, so that nothing
// need be suppressed. The symbols are those of Debian 12; others would not be wrapped, and the
// sanitizer would say so loudly.
#include <sanitizer/tsan_interface.h>

#include <chrono>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

void RealLock(absl::Mutex*) asm("__real__ZN4absl7debian35Mutex4LockEv");
void RealUnlock(absl::Mutex*) asm("__real__ZN4absl7debian35Mutex6UnlockEv");
void RealNotify(absl::Notification*) asm("__real__ZN4absl7debian312Notification6NotifyEv");
void RealWait(const absl::Notification*) asm(
    "__real__ZNK4absl7debian312Notification19WaitForNotificationEv");

void WrapLock(absl::Mutex*) asm("__wrap__ZN4absl7debian35Mutex4LockEv");
void WrapUnlock(absl::Mutex*) asm("__wrap__ZN4absl7debian35Mutex6UnlockEv");
void WrapAwait(absl::Mutex*,
               const absl::Condition&) asm("__wrap__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
void WrapNotify(absl::Notification*) asm("__wrap__ZN4absl7debian312Notification6NotifyEv");
void WrapWait(const absl::Notification*) asm(
    "__wrap__ZNK4absl7debian312Notification19WaitForNotificationEv");

// Abseil's own search for deadlocks has a lock that the sanitizer does not see; it looks for them
// itself.
[[maybe_unused]] const bool kSearchIsOff =
    (absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore), true);

void WrapLock(absl::Mutex* mutex) {
  RealLock(mutex);
  __tsan_acquire(mutex);
}

void WrapUnlock(absl::Mutex* mutex) {
  __tsan_release(mutex);
  RealUnlock(mutex);
}

// Abseil lets the thread that unlocks evaluate the conditions of those that wait, unseen: ask here.
void WrapAwait(absl::Mutex* mutex, const absl::Condition& condition) {
  while (!condition.Eval()) {
    WrapUnlock(mutex);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    WrapLock(mutex);
  }
}

void WrapNotify(absl::Notification* notification) {
  __tsan_release(notification);
  RealNotify(notification);
}

void WrapWait(const absl::Notification* notification) {
  RealWait(notification);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
}
