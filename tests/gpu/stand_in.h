// What tests ask of the device that stands in for a GPU.
#pragma once

#include <cstdint>

#include "core/exec/device/emulated.h"

namespace cpshard {

// Does all that is under way on all such devices, as if they had been waited for. Not to be called
// while another thread uses one.
absl::Status SettleStandIns();

// Devices that are made from now on count what they do into it; null: nowhere.
void CountStandIns(DeviceTraffic* traffic);

// Of all copies of tests/gpu/anchors.h so far.
int64_t BytesOfStandInCopies();

}  // namespace cpshard
