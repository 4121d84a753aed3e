#include "tests/gpu/anchors.h"

#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::Status StatusOf(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // or who asks next would take it for theirs
  return absl::InternalError(absl::StrCat(call, ": error ", static_cast<int>(error), " (",
                                          cudaGetErrorString(error), ")"));
}

#define CPSHARD_CUDA_CALL(call, ...) CPSHARD_RETURN_IF_ERROR(StatusOf(#call, call(__VA_ARGS__)))

// Made when first asked for, for as long as the process.
absl::StatusOr<cudaStream_t> OtherStream() {
  static const auto* const other = new auto(NewStream());
  if (!other->ok()) return other->status();
  return static_cast<cudaStream_t>(**other);
}

__global__ void Spin(uint64_t nanoseconds) {
  uint64_t begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begun < nanoseconds);
}

std::string VersionOf(cudaError_t (*call)(int*)) {
  int version = 0;
  if (call(&version) != cudaSuccess) return "unknown";
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::Status EnqueueCopy(std::byte* to, const std::byte* from, int64_t bytes, CopyStream stream) {
  cudaStream_t on = cudaStreamLegacy;
  if (stream == CopyStream::kOther) {
    CPSHARD_ASSIGN_OR_RETURN(on, OtherStream());
  }
  CPSHARD_CUDA_CALL(cudaMemcpyAsync, to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, on);
  return absl::OkStatus();
}

absl::Status EnqueueSpin(int64_t microseconds) {
  auto nanoseconds = static_cast<uint64_t>(microseconds) * 1000;
  void* arguments[] = {&nanoseconds};
  CPSHARD_CUDA_CALL(cudaLaunchKernel, reinterpret_cast<const void*>(Spin), dim3(1), dim3(1),
                    arguments, 0, cudaStreamLegacy);
  return absl::OkStatus();
}

absl::StatusOr<bool> IsBusy() {
  const cudaError_t error = cudaStreamQuery(cudaStreamLegacy);
  if (error == cudaErrorNotReady) return true;
  CPSHARD_RETURN_IF_ERROR(StatusOf("cudaStreamQuery", error));
  return false;
}

absl::Status WaitForDevice() {
  CPSHARD_CUDA_CALL(cudaDeviceSynchronize);
  return absl::OkStatus();
}

absl::Status CopyNow(std::byte* to, const std::byte* from, int64_t bytes) {
  CPSHARD_RETURN_IF_ERROR(EnqueueCopy(to, from, bytes));
  return WaitForDevice();
}

absl::StatusOr<void*> NewStream() {
  cudaStream_t stream = nullptr;
  CPSHARD_CUDA_CALL(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
  return stream;
}

absl::Status WhileCaptured(void* stream, const std::function<void()>& fn) {
  const auto captured = static_cast<cudaStream_t>(stream);
  CPSHARD_CUDA_CALL(cudaStreamBeginCapture, captured, cudaStreamCaptureModeGlobal);
  fn();
  cudaGraph_t graph = nullptr;
  CPSHARD_CUDA_CALL(cudaStreamEndCapture, captured, &graph);
  CPSHARD_CUDA_CALL(cudaGraphDestroy, graph);
  return absl::OkStatus();
}

std::string CudaVersions() {
  return absl::StrCat("driver ", VersionOf(cudaDriverGetVersion), ", runtime ",
                      VersionOf(cudaRuntimeGetVersion));
}

}  // namespace cpshard
