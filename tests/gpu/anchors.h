// The CUDA runtime's own copies and waits: what is measured against, and how tests get at memory of
// the first device. Behind it stands anchors.cu, or the stand-in of a device.
//
// Errors are Internal with the call, CUDA's number and its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cpshard {

// The default stream, and another one that does not wait for it.
enum class CopyStream { kDefault, kOther };

// Between memory of any kind; what the memory holds has to stay until a wait. Of pageable memory
// the copy may be done on return.
absl::Status EnqueueCopy(std::byte* to, const std::byte* from, int64_t bytes,
                         CopyStream stream = CopyStream::kDefault);

// Keeps the default stream busy for so long, or as long as a stand-in likes.
absl::Status EnqueueSpin(int64_t microseconds);

// Whether something on the default stream is not done. Unimplemented: a stand-in that does
// everything at once.
absl::StatusOr<bool> IsBusy();

// For all that this process has under way on the device.
absl::Status WaitForDevice();

// EnqueueCopy and WaitForDevice.
absl::Status CopyNow(std::byte* to, const std::byte* from, int64_t bytes);

// A stream for as long as the process, and fn while that stream is captured into a graph, which is
// thrown away. Unimplemented: a stand-in.
absl::StatusOr<void*> NewStream();
absl::Status WhileCaptured(void* stream, const std::function<void()>& fn);

// "driver 13.0, runtime 13.0".
std::string CudaVersions();

}  // namespace cpshard
