// The GPU behind core/exec/cuda.h: a thin Device over the CUDA runtime, and the kernel, which is
// one call of the body that the host compiles too. Decides nothing.
#define CPSHARD_BODY __host__ __device__ inline

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/exec/device/bodies.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int kWarpsPerBlock = 8;
constexpr char kSticky[] = "cpshard/sticky-cuda-error";  // payload of a status

// Addresses are numbers in a piece; that they are global memory, the compiler has to be told.
template <typename T>
__device__ T* At(uint64_t address) {
  T* at = reinterpret_cast<T*>(address);
  __builtin_assume(__isGlobal(at));
  return at;
}

struct GlobalMemory {
  __device__ void Round(uint32_t) {}

  template <typename T>
  __device__ T Load(uint64_t address) {
    if constexpr (sizeof(T) == 16) {
      const uint4 word = *At<const uint4>(address);
      return {{word.x, word.y, word.z, word.w}};
    } else {
      return *At<const T>(address);
    }
  }

  template <typename T>
  __device__ void Store(uint64_t address, T value) {
    if constexpr (sizeof(T) == 16) {
      *At<uint4>(address) = make_uint4(value.part[0], value.part[1], value.part[2], value.part[3]);
    } else {
      *At<T>(address) = value;
    }
  }
};

__global__ void __launch_bounds__(kWarpsPerBlock* kLanes)
    RunPieces(const Rule* rules, const Piece* pieces, int64_t count) {
  const int64_t warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kLanes;
  if (warp >= count) return;
  GlobalMemory memory;
  RunPiece(memory, pieces[warp], rules, threadIdx.x % kLanes);
}

std::string VersionText(int version) {
  return version == 0 ? "none" : absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string Versions() {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  return absl::StrCat("driver ", VersionText(driver), ", runtime ", VersionText(runtime));
}

// "cudaMalloc: error 2 (out of memory)"
std::string ErrorText(absl::string_view call, cudaError_t error) {
  return absl::StrCat(call, ": error ", static_cast<int>(error), " (", cudaGetErrorString(error),
                      ")");
}

absl::Status StatusOf(absl::string_view call, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = ErrorText(call, error);
  cudaGetLastError();  // forgets an error that is not sticky
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return absl::FailedPreconditionError(
          absl::StrCat("no usable CUDA device: ", text, "; ", Versions()));
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(text);
    default:
      break;
  }
  absl::Status status = absl::InternalError(text);
  // What a good context answers again with success comes again from a broken one.
  if (cudaDeviceSynchronize() != cudaSuccess) status.SetPayload(kSticky, absl::Cord());
  return status;
}

#define CPSHARD_CUDA_CALL(call, ...) CPSHARD_RETURN_IF_ERROR(StatusOf(#call, call(__VA_ARGS__)))

// Makes `device` current for the thread; what was current before comes back at the end.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) cudaSetDevice(device);
    now_ = device;
  }
  ~OnDevice() {
    if (before_ != now_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0, now_ = 0;
};

// "; 12 of 34 bytes are free" where the device says so.
std::string FreeText() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "";
  return absl::StrCat("; ", free, " of ", total, " bytes are free");
}

absl::StatusOr<std::shared_ptr<std::byte>> DeviceBlock(int device, int64_t bytes) {
  const OnDevice on(device);
  void* block = nullptr;
  if (const cudaError_t error = cudaMalloc(&block, bytes); error != cudaSuccess) {
    const absl::Status status = StatusOf("cudaMalloc", error);
    if (!absl::IsResourceExhausted(status)) return status;
    return absl::Status(status.code(), absl::StrCat(status.message(), " for ", bytes,
                                                    " bytes of device ", device, FreeText()));
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(block), [device](std::byte* at) {
    const OnDevice on(device);
    cudaFree(at);
  });
}

absl::StatusOr<std::shared_ptr<std::byte>> PinnedBlock(int64_t bytes) {
  void* block = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error != cudaSuccess) {
    const absl::Status status = StatusOf("cudaHostAlloc", error);
    if (!absl::IsResourceExhausted(status)) return status;
    return absl::Status(status.code(), absl::StrCat(status.message(), " for ", bytes,
                                                    " bytes of pinned host memory"));
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(block),
                                    [](std::byte* at) { cudaFreeHost(at); });
}

// All copies are on one queue, all launches on another; each launch comes after the copies before
// it and before the copies behind it.
class Gpu : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Make(int device,
                                                      const CudaExecutorOptions& options) {
    std::unique_ptr<Gpu> gpu(new Gpu(device, options));
    CPSHARD_RETURN_IF_ERROR(gpu->Open(options));
    return gpu;
  }

  ~Gpu() override {
    const OnDevice on(device_);
    for (cudaEvent_t event : {copied_, launched_, marks_[0], marks_[1]}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (copies_ != nullptr) cudaStreamDestroy(copies_);
    if (launches_ != nullptr && owns_launches_) cudaStreamDestroy(launches_);
  }

  absl::string_view name() const override { return name_; }

  absl::StatusOr<Reach> ReachOf(const std::byte* memory) override {
    const OnDevice on(device_);
    cudaPointerAttributes attributes = {};
    CPSHARD_CUDA_CALL(cudaPointerGetAttributes, &attributes, memory);
    switch (attributes.type) {
      case cudaMemoryTypeDevice:
        if (attributes.device == device_) return Reach::kOwn;
        return absl::InvalidArgumentError(absl::StrCat("memory of device ", attributes.device,
                                                       " in a task for device ", device_));
      case cudaMemoryTypeManaged:
        return Reach::kOwn;
      case cudaMemoryTypeHost:
        // Under another address on the device it would have to be translated: copied instead.
        return attributes.devicePointer == memory ? Reach::kPinned : Reach::kNone;
      default:
        return Reach::kNone;
    }
  }

  Memory memory() override { return {memory_.get(), memory_bytes_}; }
  Memory pinned() override { return {pinned_.get(), pinned_bytes_}; }

  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    const OnDevice on(device_);
    CPSHARD_RETURN_IF_ERROR(BeforeCopies());
    CPSHARD_CUDA_CALL(cudaMemcpyAsync, reinterpret_cast<void*>(device), pinned, bytes,
                      cudaMemcpyHostToDevice, copies_);
    copies_ahead_ = true;
    return absl::OkStatus();
  }

  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    const OnDevice on(device_);
    CPSHARD_RETURN_IF_ERROR(BeforeCopies());
    CPSHARD_CUDA_CALL(cudaMemcpyAsync, pinned, reinterpret_cast<const void*>(device), bytes,
                      cudaMemcpyDeviceToHost, copies_);
    copies_ahead_ = true;
    return absl::OkStatus();
  }

  absl::Status Mark(int number) override {
    const OnDevice on(device_);
    CPSHARD_RETURN_IF_ERROR(BeforeCopies());
    CPSHARD_CUDA_CALL(cudaEventRecord, marks_[number], copies_);
    return absl::OkStatus();
  }

  absl::Status Await(int number) override {
    const OnDevice on(device_);
    CPSHARD_CUDA_CALL(cudaEventSynchronize, marks_[number]);
    return absl::OkStatus();
  }

  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    const OnDevice on(device_);
    if (copies_ahead_) {
      CPSHARD_CUDA_CALL(cudaEventRecord, copied_, copies_);
      CPSHARD_CUDA_CALL(cudaStreamWaitEvent, launches_, copied_, 0);
      copies_ahead_ = false;
    }
    const auto blocks = static_cast<unsigned>((count + kWarpsPerBlock - 1) / kWarpsPerBlock);
    RunPieces<<<blocks, kWarpsPerBlock * kLanes, 0, launches_>>>(rules, pieces, count);
    CPSHARD_RETURN_IF_ERROR(
        StatusOf(absl::StrCat("launch of ", count, " pieces"), cudaGetLastError()));
    launches_ahead_ = true;
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    const OnDevice on(device_);
    CPSHARD_RETURN_IF_ERROR(BeforeCopies());
    CPSHARD_CUDA_CALL(cudaStreamSynchronize, copies_);  // which waits for the launches
    return absl::OkStatus();
  }

 private:
  Gpu(int device, const CudaExecutorOptions& options)
      : device_(device),
        name_(absl::StrCat("cuda:", device)),
        memory_bytes_(options.memory_bytes),
        pinned_bytes_(options.pinned_bytes) {}

  absl::Status Open(const CudaExecutorOptions& options) {
    const OnDevice on(device_);
    cudaFuncAttributes attributes = {};  // is there machine code for this GPU?
    CPSHARD_CUDA_CALL(cudaFuncGetAttributes, &attributes, RunPieces);
    CPSHARD_ASSIGN_OR_RETURN(memory_, DeviceBlock(device_, memory_bytes_));
    CPSHARD_ASSIGN_OR_RETURN(pinned_, PinnedBlock(pinned_bytes_));
    CPSHARD_CUDA_CALL(cudaStreamCreateWithFlags, &copies_, cudaStreamNonBlocking);
    owns_launches_ = options.stream == nullptr;
    if (owns_launches_) {
      CPSHARD_CUDA_CALL(cudaStreamCreateWithFlags, &launches_, cudaStreamNonBlocking);
    } else {
      launches_ = static_cast<cudaStream_t>(options.stream);
    }
    for (cudaEvent_t* event : {&copied_, &launched_, &marks_[0], &marks_[1]}) {
      CPSHARD_CUDA_CALL(cudaEventCreateWithFlags, event, cudaEventDisableTiming);
    }
    return absl::OkStatus();
  }

  // The queue of copies waits for the launches before it.
  absl::Status BeforeCopies() {
    if (!launches_ahead_) return absl::OkStatus();
    CPSHARD_CUDA_CALL(cudaEventRecord, launched_, launches_);
    CPSHARD_CUDA_CALL(cudaStreamWaitEvent, copies_, launched_, 0);
    launches_ahead_ = false;
    return absl::OkStatus();
  }

  const int device_;
  const std::string name_;
  const int64_t memory_bytes_, pinned_bytes_;
  std::shared_ptr<std::byte> memory_, pinned_;
  cudaStream_t copies_ = nullptr, launches_ = nullptr;
  bool owns_launches_ = true;
  bool copies_ahead_ = false, launches_ahead_ = false;  // that the other queue has not waited for
  cudaEvent_t copied_ = nullptr, launched_ = nullptr, marks_[2] = {};
};

absl::Status CheckDevice(int device) {
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, CudaDevices());
  if (device >= 0 && device < static_cast<int>(devices.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no CUDA device ", device, ": this process sees ",
                                                 devices.size(),
                                                 ", numbered from 0 (CUDA_VISIBLE_DEVICES)"));
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> CudaDevices() {
  int count = 0;
  CPSHARD_CUDA_CALL(cudaGetDeviceCount, &count);
  if (count == 0) return StatusOf("cudaGetDeviceCount", cudaErrorNoDevice);
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties = {};
    CPSHARD_CUDA_CALL(cudaGetDeviceProperties, &properties, i);
    devices.push_back({properties.name, properties.major, properties.minor,
                       static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int device,
                                                       const CudaExecutorOptions& options) {
  if (options.memory_bytes <= 0 || options.pinned_bytes < 128) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory_bytes ", options.memory_bytes, ", pinned_bytes ", options.pinned_bytes,
        ": a CUDA executor needs more than 0 bytes of its device and at least 128 pinned ones"));
  }
  CPSHARD_RETURN_IF_ERROR(CheckDevice(device));
  return Gpu::Make(device, options);
}

absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int device,
                                                           CudaExecutorOptions options) {
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<Device> gpu, MakeCudaDevice(device, options));
  return MakeDeviceExecutor(std::move(gpu), options.executor);
}

bool IsStickyCudaError(const absl::Status& status) {
  return status.GetPayload(kSticky).has_value();
}

absl::StatusOr<FixedPool> MakePinnedPool(int64_t bytes) {
  CPSHARD_RETURN_IF_ERROR(CudaDevices().status());
  CPSHARD_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> block, PinnedBlock(bytes));
  std::byte* begin = block.get();
  return FixedPool(std::move(block), begin, bytes);
}

absl::StatusOr<FixedPool> MakeCudaMemoryPool(int device, int64_t bytes) {
  CPSHARD_RETURN_IF_ERROR(CheckDevice(device));
  CPSHARD_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> block, DeviceBlock(device, bytes));
  std::byte* begin = block.get();
  return FixedPool(std::move(block), begin, bytes);
}

}  // namespace cpshard
