// What the CUDA runtime's own copies take: the anchors of the measurements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cpshard {

// So many are enqueued before they are waited for: what a wait costs is not what is asked.
inline constexpr int kInARow = 10;

// Seconds of one copy of `bytes`, the least of `rounds`; a negative number where a call fails.
double DeviceToDeviceSeconds(std::byte* dest, const std::byte* source, int64_t bytes, int rounds);
double PinnedToDeviceSeconds(std::byte* dest, const std::byte* pinned, int64_t bytes, int rounds);

}  // namespace cpshard
