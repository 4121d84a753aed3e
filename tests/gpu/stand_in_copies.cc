// The anchors over the stand-in: everything before a copy is done, then the copy. That is one of
// the orders in which a device may do them.
#include <cstring>

#include "tests/gpu/anchors.h"
#include "tests/gpu/stand_in.h"

namespace cpshard {
namespace {

int64_t bytes_copied = 0;

}  // namespace

absl::Status EnqueueCopy(std::byte* to, const std::byte* from, int64_t bytes, CopyStream) {
  const absl::Status settled = SettleStandIns();
  if (!settled.ok()) return settled;
  std::memcpy(to, from, static_cast<size_t>(bytes));
  bytes_copied += bytes;
  return absl::OkStatus();
}

absl::Status EnqueueSpin(int64_t) { return absl::OkStatus(); }

absl::StatusOr<bool> IsBusy() {
  return absl::UnimplementedError("a stand-in does every copy at once");
}

absl::Status WaitForDevice() { return SettleStandIns(); }

absl::Status CopyNow(std::byte* to, const std::byte* from, int64_t bytes) {
  return EnqueueCopy(to, from, bytes);
}

absl::StatusOr<void*> NewStream() {
  return absl::UnimplementedError("a stand-in has no streams and captures nothing");
}

absl::Status WhileCaptured(void*, const std::function<void()>&) { return NewStream().status(); }

std::string CudaVersions() { return "none: a stand-in"; }

int64_t BytesOfStandInCopies() { return bytes_copied; }

}  // namespace cpshard
