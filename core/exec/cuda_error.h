// What an error of CUDA's means for who called, by its number alone: those of the runtime
// (driver_types.h) and of the driver (cuda.h) are the same. Needs no toolkit.
#pragma once

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

}  // namespace cpshard
