// Calls of the CUDA runtime: their errors as statuses, and whose context the calling thread has.
#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/status_macros.h"

namespace cpshard {

// "cudaMalloc: error 2 (out of memory)"
std::string CudaErrorText(absl::string_view call, cudaError_t error);

// Of a call that is about no open device. The thread forgets an error that has been told here.
//   FailedPrecondition: kNoUsableDevice, with the versions of driver and runtime; kCaptured
//   ResourceExhausted: kOutOfMemory
//   Internal: kOther, and kLost, which IsDeviceLost then says
absl::Status CudaStatus(absl::string_view call, cudaError_t error);

// Nobody wants to hear of an error of this call, nor who asks for the thread's last one later.
void IgnoreCudaError(cudaError_t error);

// CudaStatus of a call, or that of the class whose members it is used in.
#define CPSHARD_CUDA_CALL(call, ...) CPSHARD_RETURN_IF_ERROR(CudaStatus(#call, call(__VA_ARGS__)))

// The primary context of a device: the one that the runtime uses, and everybody in the process with
// it. Made where there was none; other devices get none.
class CudaContext {
 public:
  // InvalidArgument: no such device, with how many there are. Else as CudaStatus.
  static absl::StatusOr<std::shared_ptr<const CudaContext>> Of(int device);

  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int device() const { return device_; }

 private:
  friend class OnDevice;

  explicit CudaContext(int device) : device_(device) {}
  absl::Status Open();

  const int device_;
  CUcontext context_ = nullptr;
  CUdevice driver_device_ = 0;
  PFN_cuDevicePrimaryCtxRelease_v11000 release_ = nullptr;
  PFN_cuCtxPushCurrent_v4000 push_ = nullptr;
  PFN_cuCtxPopCurrent_v4000 pop_ = nullptr;
};

// While it lives, calls of this thread are about the context's device, and are made whether or not
// somebody captures a graph meanwhile. Then the thread has again what it had before, which may be
// no device at all: cudaSetDevice would make a context on that one, which nobody asked for.
class OnDevice {
 public:
  explicit OnDevice(const CudaContext& context);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Where it is not success, calls of this thread are about some other device: make none.
  cudaError_t error() const { return error_; }

 private:
  const CudaContext& context_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace cpshard
