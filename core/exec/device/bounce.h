// Copies between pageable host memory and a device through a small pinned block: one half is filled
// or emptied by the CPU while the device copies the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/exec/device/device.h"

namespace cpshard {

// Waits for a half when that is needed again, so that one may live over several Runs which nobody
// waits for. Precondition: nobody else uses the device's pinned memory and its two marks meanwhile.
class Bounce {
 public:
  explicit Bounce(Device& device)
      : device_(device), half_(device.pinned().size / 2 / 64 * 64), halves_(2) {}

  // Enqueues a copy of host memory, which is read before this returns or Flush does. Copies whose
  // destinations ascend and lie close to each other (the gaps are written too) leave together.
  absl::Status In(uint64_t device, const std::byte* host, int64_t bytes);
  absl::Status Flush();

  // Copies to host memory, which is written when Drain returns. Of the device's memory the gaps
  // between neighbours are read, but not written to the host.
  absl::Status Out(std::byte* host, uint64_t device, int64_t bytes);
  absl::Status Drain();

  // Forgets what is under way. Precondition: the device has finished, or is lost.
  void Reset();

 private:
  struct Part {
    std::byte* host = nullptr;
    int64_t at = 0, bytes = 0;  // in the half
  };
  struct Half {
    uint64_t device = 0;  // of its first byte
    int64_t used = 0;
    std::vector<Part> parts;  // Out: what is to be written to the host
    bool busy = false;        // marked, not yet awaited
  };

  std::byte* MemoryOf(int half) { return device_.pinned().begin + half * half_; }
  absl::StatusOr<int64_t> Room(uint64_t device, absl::Status (Bounce::*send)());
  absl::Status Fetch();
  absl::Status Empty(int half);
  absl::Status Next();

  Device& device_;
  const int64_t half_;
  std::vector<Half> halves_;
  int now_ = 0;
};

}  // namespace cpshard
