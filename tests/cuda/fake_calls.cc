// The calls of the CUDA runtime that core/exec/cuda*.cu make.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/cuda/fake_call.h"
#include "tests/cuda/fake_state.h"

namespace cpshard::fake_cuda {
namespace {

constexpr size_t kDeviceBytes = size_t{1} << 30;  // of one allocation

// The stream, where it is one of the current device; what is put on a captured one spoils nothing
// here, but nobody is to do that.
std::shared_ptr<Stream> Find(const char* call, cudaStream_t handle) {
  std::shared_ptr<Stream> stream = StreamOf(handle, Current());
  if (stream == nullptr || stream->device != Current()) return nullptr;
  if (stream->is_captured) Misuse(absl::StrCat(call, " on a captured stream"));
  return stream;
}

cudaError_t AllocateFor(Call& call, void** block, size_t bytes, bool pinned) {
  if (call.OnCurrent().Unsafe().Fails()) return call.Return();
  if (bytes > kDeviceBytes) return call.Return(cudaErrorMemoryAllocation);
  *block = Allocate({bytes, pinned ? -1 : Current()});
  return call.Return();
}

cudaError_t FreeOf(Call& call, const char* name, void* block) {
  if (call.OnCurrent().Unsafe().Fails()) return call.Return();
  if (UnderWay() > 0) Misuse(absl::StrCat(name, " with work under way"));
  if (TheState().blocks.erase(static_cast<std::byte*>(block)) == 0) {
    return call.Return(cudaErrorInvalidValue);
  }
  std::free(block);
  return call.Return();
}

cudaError_t Launch(Call& call, dim3 grid, dim3 block, void** arguments, cudaStream_t handle) {
  if (call.OnCurrent().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = Find("a launch", handle);
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  const auto warps = int64_t{grid.x} * block.x / 32;
  const auto pieces = *static_cast<const int64_t*>(arguments[2]);
  if (warps < pieces || warps - pieces >= block.x / 32) {
    Misuse(absl::StrCat(warps, " warps for ", pieces, " pieces"));
  }
  stream->Put(KernelOf(stream->device, arguments));
  return call.Return();
}

}  // namespace
}  // namespace cpshard::fake_cuda

using namespace cpshard::fake_cuda;  // NOLINT: what follows has the runtime's names

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  Call call("cudaGetDeviceCount");
  if (!call.Fails()) *count = TheState().devices;
  return call.Return();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Call call("cudaGetDeviceProperties");
  if (call.Fails()) return call.Return();
  const std::string name = absl::StrCat("fake GPU ", device);
  std::copy_n(name.c_str(), name.size() + 1, properties->name);
  properties->major = 9;
  properties->totalGlobalMem = kDeviceBytes;
  return call.Return();
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  Call call("cudaInitDevice");
  return call.Fails() ? call.Return() : call.Return(MakeContext(device));
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const int error = ThisThread().last_error;
  ThisThread().last_error = TheState().sticky;
  return static_cast<cudaError_t>(error);
}

const char* cudaGetErrorString(cudaError_t) { return "as the fake runtime was told"; }

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, ThisThread().mode);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** block, size_t bytes) {
  Call call("cudaMalloc");
  return AllocateFor(call, block, bytes, false);
}
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) {
  Call call("cudaHostAlloc");
  return AllocateFor(call, block, bytes, true);
}
cudaError_t cudaFree(void* block) {
  Call call("cudaFree");
  return FreeOf(call, "cudaFree", block);
}
cudaError_t cudaFreeHost(void* block) {
  Call call("cudaFreeHost");
  return FreeOf(call, "cudaFreeHost", block);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Call call("cudaMemGetInfo");
  *free = *total = kDeviceBytes;
  return call.OnCurrent().Return();
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  Call call("cudaPointerGetAttributes");
  if (call.OnCurrent().Fails()) return call.Return();
  const Block* block = BlockOf(memory, 1);
  attributes->type = block == nullptr      ? cudaMemoryTypeUnregistered
                     : block->device == -1 ? cudaMemoryTypeHost
                                           : cudaMemoryTypeDevice;
  attributes->device = block == nullptr ? -2 : std::max(block->device, 0);
  attributes->devicePointer = block == nullptr ? nullptr : const_cast<void*>(memory);
  return call.Return();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Call call("cudaStreamCreateWithFlags");
  if (call.OnCurrent().Fails()) return call.Return();
  *stream = static_cast<cudaStream_t>(MakeStream(Current()));
  StreamOf(*stream, Current())->is_callers = false;
  return call.Return();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call("cudaStreamDestroy");
  DestroyStream(stream);
  return call.Return();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Call call("cudaStreamIsCapturing");
  if (call.OnCurrent().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = StreamOf(handle, Current());
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  *status = stream->is_captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return call.Return();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Call call("cudaStreamQuery");
  if (call.OnCurrent().Unsafe().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = Find("cudaStreamQuery", handle);
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  return call.Return(stream->work.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Call call("cudaStreamSynchronize");
  if (call.OnCurrent().Unsafe().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = Find("cudaStreamSynchronize", handle);
  ++TheState().spins;
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  stream->DoUpTo(stream->put);
  return call.Return(TheState().sticky);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  Call call("cudaStreamWaitEvent");
  if (call.OnCurrent().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = Find("cudaStreamWaitEvent", handle);
  const auto found = TheState().events.find(event);
  if (stream == nullptr || found == TheState().events.end()) {
    return call.Return(cudaErrorInvalidResourceHandle);
  }
  const Event waited = found->second;
  if (waited.stream == nullptr) return call.Return();  // nobody has recorded it
  stream->Put([waited] { waited.stream->DoUpTo(waited.number); });
  return call.Return();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  Call call("cudaEventCreateWithFlags");
  if (call.OnCurrent().Fails()) return call.Return();
  *event = static_cast<cudaEvent_t>(NewHandle());
  TheState().events[*event] = {(flags & cudaEventBlockingSync) != 0};
  return call.Return();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call("cudaEventDestroy");
  TheState().events.erase(event);
  return call.Return();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  Call call("cudaEventRecord");
  if (call.OnCurrent().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = Find("cudaEventRecord", handle);
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  Event& recorded = TheState().events[event];
  recorded.stream = stream;
  recorded.number = stream->put;
  return call.Return();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call("cudaEventSynchronize");
  if (call.Unsafe().Fails()) return call.Return();
  const Event waited = TheState().events[event];
  if (!waited.is_blocking) ++TheState().spins;
  if (waited.stream != nullptr) waited.stream->DoUpTo(waited.number);
  return call.Return(TheState().sticky);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  Call call("cudaMemcpyAsync");
  if (call.OnCurrent().Fails()) return call.Return();
  const std::shared_ptr<Stream> stream = Find("cudaMemcpyAsync", handle);
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  const bool in = kind == cudaMemcpyHostToDevice;
  const Block* host = BlockOf(in ? from : to, bytes);
  const Block* device = BlockOf(in ? to : from, bytes);
  if (host == nullptr || host->device != -1) Misuse("a copy of memory that is not pinned");
  if (device == nullptr || device->device != stream->device) {
    Misuse("a copy to or from memory that is not the device's");
  }
  stream->Put([=] { std::memcpy(to, from, bytes); });
  return call.Return();
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  return Call("cudaFuncGetAttributes").OnCurrent().Return();
}

cudaError_t cudaLaunchKernel(const void*, dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t stream) {
  Call call("cudaLaunchKernel");
  return Launch(call, grid, block, arguments, stream);
}

}  // extern "C"
