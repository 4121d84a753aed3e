// The functions of the CUDA driver that core/exec/cuda*.cu ask the runtime for, and the calls that
// nvcc makes of a kernel by itself.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string_view>

#include "tests/cuda/fake_call.h"
#include "tests/cuda/fake_state.h"

namespace cpshard::fake_cuda {
namespace {

CUresult GetDriverDevice(CUdevice* device, int ordinal) {
  Call call("cuDeviceGet");
  if (!call.Fails()) *device = ordinal;
  return static_cast<CUresult>(call.ReturnDriver());
}

// A context's handle is its device's number and one more.
CUcontext HandleOf(int device) { return reinterpret_cast<CUcontext>(intptr_t{device} + 1); }

CUresult RetainPrimary(CUcontext* context, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain");
  if (call.Fails()) return static_cast<CUresult>(call.ReturnDriver());
  *context = HandleOf(device);
  return static_cast<CUresult>(call.ReturnDriver(MakeContext(device)));
}

CUresult ReleasePrimary(CUdevice) {
  return static_cast<CUresult>(Call("cuDevicePrimaryCtxRelease").ReturnDriver());
}

CUresult PushCurrent(CUcontext context) {
  Call call("cuCtxPushCurrent");
  if (call.Fails()) return static_cast<CUresult>(call.ReturnDriver());
  ThisThread().contexts.push_back(static_cast<int>(reinterpret_cast<intptr_t>(context) - 1));
  return CUDA_SUCCESS;
}

CUresult PopCurrent(CUcontext* context) {
  const std::lock_guard lock(TheState().mutex);
  *context = HandleOf(Current());
  ThisThread().contexts.pop_back();
  return CUDA_SUCCESS;
}

void* DriverFunction(std::string_view name) {
  if (name == "cuDeviceGet") return reinterpret_cast<void*>(GetDriverDevice);
  if (name == "cuDevicePrimaryCtxRetain") return reinterpret_cast<void*>(RetainPrimary);
  if (name == "cuDevicePrimaryCtxRelease") return reinterpret_cast<void*>(ReleasePrimary);
  if (name == "cuCtxPushCurrent") return reinterpret_cast<void*>(PushCurrent);
  if (name == "cuCtxPopCurrent") return reinterpret_cast<void*>(PopCurrent);
  return nullptr;
}

}  // namespace
}  // namespace cpshard::fake_cuda

using namespace cpshard::fake_cuda;  // NOLINT: what follows has the runtime's names

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,  // NOLINT: the runtime's type
                                             cudaDriverEntryPointQueryResult* result) {
  Call call("cudaGetDriverEntryPointByVersion");
  if (call.Fails()) return call.Return();
  *function = DriverFunction(name);
  *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return call.Return();
}

// Calls of nvcc's own. Its stub of the kernel is never run: see LaunchPieces.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*) { std::abort(); }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { std::abort(); }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { std::abort(); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  std::abort();
}

}  // extern "C"
