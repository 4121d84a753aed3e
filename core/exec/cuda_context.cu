#include "core/exec/cuda_context.cuh"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda_error.h"
#include "core/exec/device/device_lost.h"

namespace cpshard {
namespace {

constexpr unsigned kDriverVersion = 12000;  // whose functions are asked for

std::string VersionText(int version) {
  return version == 0 ? "none" : absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// 0: there is none.
int DriverVersion() {
  int driver = 0;
  IgnoreCudaError(cudaDriverGetVersion(&driver));
  return driver;
}

std::string Versions() {
  int runtime = 0;
  IgnoreCudaError(cudaRuntimeGetVersion(&runtime));
  return absl::StrCat("driver ", VersionText(DriverVersion()), ", runtime ", VersionText(runtime));
}

// The driver's function of this name; the program is not linked with it, so that it starts without.
template <typename Function>
absl::Status Find(const char* name, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  CPSHARD_CUDA_CALL(cudaGetDriverEntryPointByVersion, name, &address, kDriverVersion,
                    cudaEnableDefault, &found);
  if (found != cudaDriverEntryPointSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("no usable CUDA device: the driver has no ", name, "; ", Versions()));
  }
  function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

// The driver's errors have the numbers of the runtime's.
cudaError_t AsRuntime(CUresult error) { return static_cast<cudaError_t>(error); }

}  // namespace

std::string CudaErrorText(absl::string_view call, cudaError_t error) {
  return absl::StrCat(call, ": error ", static_cast<int>(error), " (", cudaGetErrorString(error),
                      ")");
}

absl::Status CudaStatus(absl::string_view call, cudaError_t error) {
  const CudaErrorKind kind = KindOfCudaError(error, /*is_open=*/false);
  if (kind == CudaErrorKind::kNone) return absl::OkStatus();
  IgnoreCudaError(error);
  const std::string text = CudaErrorText(call, error);
  switch (kind) {
    case CudaErrorKind::kNoUsableDevice: {
      absl::Status status = absl::FailedPreconditionError(
          absl::StrCat("no usable CUDA device: ", text, "; ", Versions()));
      return IsOfNoDevice(error, DriverVersion()) ? NoDevice(std::move(status)) : status;
    }
    case CudaErrorKind::kOutOfMemory:
      return absl::ResourceExhaustedError(text);
    case CudaErrorKind::kCaptured:
      return absl::FailedPreconditionError(
          absl::StrCat(text, ": not while a CUDA graph is being captured"));
    case CudaErrorKind::kLost:
      return DeviceLost(absl::InternalError(text));
    default:
      return absl::InternalError(text);
  }
}

void IgnoreCudaError(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();  // success forgets nothing
}

absl::StatusOr<std::shared_ptr<const CudaContext>> CudaContext::Of(int device) {
  int count = 0;
  CPSHARD_CUDA_CALL(cudaGetDeviceCount, &count);
  if (count == 0) return CudaStatus("cudaGetDeviceCount", cudaErrorNoDevice);
  if (device < 0 || device >= count) {
    return absl::InvalidArgumentError(absl::StrCat("no CUDA device ", device,
                                                   ": this process sees ", count,
                                                   ", numbered from 0 (CUDA_VISIBLE_DEVICES)"));
  }
  std::shared_ptr<CudaContext> context(new CudaContext(device));
  CPSHARD_RETURN_IF_ERROR(context->Open());
  return context;
}

absl::Status CudaContext::Open() {
  PFN_cuDeviceGet_v2000 get = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 retain = nullptr;
  PFN_cuDevicePrimaryCtxRelease_v11000 release = nullptr;
  CPSHARD_RETURN_IF_ERROR(Find("cuDeviceGet", get));
  CPSHARD_RETURN_IF_ERROR(Find("cuDevicePrimaryCtxRetain", retain));
  CPSHARD_RETURN_IF_ERROR(Find("cuDevicePrimaryCtxRelease", release));
  CPSHARD_RETURN_IF_ERROR(Find("cuCtxPushCurrent", push_));
  CPSHARD_RETURN_IF_ERROR(Find("cuCtxPopCurrent", pop_));
  // The runtime's own share in the context, so that it does not end with ours.
  CPSHARD_CUDA_CALL(cudaInitDevice, device_, 0, 0);
  CPSHARD_RETURN_IF_ERROR(CudaStatus("cuDeviceGet", AsRuntime(get(&driver_device_, device_))));
  CPSHARD_RETURN_IF_ERROR(
      CudaStatus("cuDevicePrimaryCtxRetain", AsRuntime(retain(&context_, driver_device_))));
  release_ = release;
  return absl::OkStatus();
}

CudaContext::~CudaContext() {
  if (release_ != nullptr) release_(driver_device_);
}

OnDevice::OnDevice(const CudaContext& context) : context_(context) {
  error_ = AsRuntime(context.push_(context.context_));
  if (error_ == cudaSuccess) IgnoreCudaError(cudaThreadExchangeStreamCaptureMode(&mode_));
}

OnDevice::~OnDevice() {
  if (error_ != cudaSuccess) return;
  IgnoreCudaError(cudaThreadExchangeStreamCaptureMode(&mode_));
  CUcontext ours = nullptr;
  context_.pop_(&ours);
}

}  // namespace cpshard
