// What an error of CUDA's means for who called, by its number alone: those of the runtime
// (driver_types.h) and of the driver (cuda.h) are the same. Needs no toolkit.
#pragma once

#include "absl/status/status.h"

namespace cpshard {

enum class CudaErrorKind {
  kNone,
  kNoUsableDevice,  // none, or none that this process and this build can use; it did no harm
  kOutOfMemory,     // of the device or pinned
  kCaptured,        // refused because of a CUDA graph that is being captured; it did no harm
  kLost,            // the process has lost the device: every later call on it fails as well
  kOther,           // of this call, or of the device: one who has a stream there asks it
};

// `is_open`: the process has used the device before this call. What then says that it is lost may,
// at the first call, say that it never was there.
CudaErrorKind KindOfCudaError(int error, bool is_open);

// Whether such an error is that of a machine without a GPU, or of a process that is shown none: any
// other obstacle is for somebody to remove. `driver`: its version, 0 without one.
bool IsOfNoDevice(int error, int driver);

// `status`, marked so. The mark is kept when the status is passed on.
absl::Status NoDevice(absl::Status status);

bool IsNoDevice(const absl::Status& status);

}  // namespace cpshard
