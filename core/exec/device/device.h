// A device as an executor sees it: some memory of its own, a queue of copies and
// launches, pinned memory to copy from. What is done with them is decided elsewhere, the same for a
// GPU and for its stand-in on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/exec/device/piece.h"

namespace cpshard {

// Not thread-safe. Everything is enqueued in the order of the calls and done in that order; memory
// that is handed over must stay until Await or Finish says that it was done. Errors of earlier
// calls may be returned by later ones.
class Device {
 public:
  enum class Reach {
    kNone,    // pageable host memory
    kPinned,  // host memory that a launch can read and write, over the bus
    kOwn,     // memory of the device
  };

  struct Memory {
    std::byte* begin = nullptr;
    int64_t size = 0;
  };

  virtual ~Device() = default;

  virtual absl::string_view name() const = 0;

  // A Run begins. What it enqueues comes after what is now on a stream of the caller's, if the
  // device has one. FailedPrecondition: nothing can be enqueued now; what an earlier call has
  // returned that left the device unusable.
  virtual absl::Status Begin() { return absl::OkStatus(); }

  // InvalidArgument: memory of another device.
  virtual absl::StatusOr<Reach> ReachOf(const std::byte* memory) = 0;

  virtual Memory memory() = 0;  // of the device, 256-byte aligned, for one Run's table and copies
  virtual Memory pinned() = 0;  // of the host, to bounce pageable memory

  virtual absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) = 0;
  virtual absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) = 0;

  // Remembers what has been enqueued so far under a number, 0 or 1; Await waits until that is done.
  virtual absl::Status Mark(int number) = 0;
  virtual absl::Status Await(int number) = 0;

  // All pieces, in any order. Both pointers are of the device's memory.
  virtual absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) = 0;

  virtual absl::Status Finish() = 0;
};

}  // namespace cpshard
