#include "core/exec/device/device_lost.h"

#include "absl/strings/cord.h"

namespace cpshard {
namespace {

constexpr char kDeviceLost[] = "cpshard/device-lost";  // payload of a status

}  // namespace

absl::Status DeviceLost(absl::Status status) {
  status.SetPayload(kDeviceLost, absl::Cord());
  return status;
}

bool IsDeviceLost(const absl::Status& status) { return status.GetPayload(kDeviceLost).has_value(); }

}  // namespace cpshard
