// The GPU behind core/exec/cuda.h: a thin Device over the CUDA runtime. Decides nothing.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/exec/cuda_context.cuh"
#include "core/exec/cuda_error.h"
#include "core/exec/cuda_memory.cuh"
#include "core/exec/cuda_pieces.cuh"
#include "core/exec/device/device_lost.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

#define CPSHARD_ON_DEVICE()     \
  const OnDevice on(*context_); \
  CPSHARD_RETURN_IF_ERROR(CudaStatus("cuCtxPushCurrent", on.error()))

// All copies are on one queue, all launches on another; each launch comes after the copies before
// it and before the copies behind it.
class Gpu : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Make(int device,
                                                      const CudaExecutorOptions& options) {
    CPSHARD_ASSIGN_OR_RETURN(auto context, CudaContext::Of(device));
    std::unique_ptr<Gpu> gpu(new Gpu(std::move(context), options));
    CPSHARD_RETURN_IF_ERROR(gpu->Open(options));
    return gpu;
  }

  ~Gpu() override {
    if (is_open_) Finish().IgnoreError();  // before the blocks go
    const OnDevice on(*context_);
    if (on.error() != cudaSuccess) return;
    for (cudaEvent_t event : {copied_, launched_, done_, marks_[0], marks_[1]}) {
      if (event != nullptr) IgnoreCudaError(cudaEventDestroy(event));
    }
    if (copies_ != nullptr) IgnoreCudaError(cudaStreamDestroy(copies_));
    if (launches_ != nullptr && !has_caller_) IgnoreCudaError(cudaStreamDestroy(launches_));
  }

  absl::string_view name() const override { return name_; }

  absl::Status Begin() override {
    CPSHARD_RETURN_IF_ERROR(broken_);
    CPSHARD_ON_DEVICE();
    CPSHARD_RETURN_IF_ERROR(RefuseCapture());
    caller_ahead_ = has_caller_;
    return absl::OkStatus();
  }

  absl::StatusOr<Reach> ReachOf(const std::byte* memory) override {
    cudaPointerAttributes attributes = {};
    if (!DescribeBlock(memory, attributes)) {
      CPSHARD_ON_DEVICE();
      CPSHARD_CUDA_CALL(cudaPointerGetAttributes, &attributes, memory);
    }
    return CudaReachOf(context_->device(), memory, attributes);
  }

  Memory memory() override { return {memory_.get(), memory_bytes_}; }
  Memory pinned() override { return {pinned_.get(), pinned_bytes_}; }

  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    // What lies in the block of one's own nobody's stream has still to write.
    const bool own = pinned >= pinned_.get() && pinned < pinned_.get() + pinned_bytes_;
    CPSHARD_RETURN_IF_ERROR(own ? absl::OkStatus() : JoinCaller());
    return Copy(reinterpret_cast<void*>(device), pinned, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    return Copy(pinned, reinterpret_cast<const void*>(device), bytes, cudaMemcpyDeviceToHost);
  }

  absl::Status Mark(int number) override {
    CPSHARD_ON_DEVICE();
    CPSHARD_RETURN_IF_ERROR(JoinLaunches());
    CPSHARD_CUDA_CALL(cudaEventRecord, marks_[number], copies_);
    last_mark_ = number;
    return absl::OkStatus();
  }
  absl::Status Await(int number) override {
    CPSHARD_ON_DEVICE();
    CPSHARD_CUDA_CALL(cudaEventSynchronize, marks_[number]);
    is_idle_ = is_idle_ || last_mark_ == number;
    return absl::OkStatus();
  }

  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    CPSHARD_ON_DEVICE();
    if (copies_ahead_) {
      CPSHARD_CUDA_CALL(cudaEventRecord, copied_, copies_);
      CPSHARD_CUDA_CALL(cudaStreamWaitEvent, launches_, copied_, 0);
      copies_ahead_ = false;
    }
    // Before it is known how the launch went: what may be under way is waited for.
    launches_ahead_ = true;
    launch_recorded_ = false;
    Busy();
    CPSHARD_RETURN_IF_ERROR(CudaStatus(absl::StrCat("launch of ", count, " pieces"),
                                       LaunchPieces(rules, pieces, count, launches_)));
    // Now, so that nobody has to ask the caller's stream later: it may be gone by then. Of one's
    // own it costs the launches behind it more than it tells.
    if (has_caller_) CPSHARD_CUDA_CALL(cudaEventRecord, launched_, launches_);
    launch_recorded_ = has_caller_;
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    const OnDevice on(*context_);
    if (absl::Status status = CudaStatus("cuCtxPushCurrent", on.error()); !status.ok()) {
      Break(status);
      return broken_;
    }
    absl::Status status = is_idle_ ? absl::OkStatus() : AwaitBoth();
    if (!status.ok()) AwaitEach();
    is_idle_ = status.ok();
    copies_ahead_ = launches_ahead_ = false;
    launch_recorded_ = true;
    return broken_.ok() ? status : broken_;
  }

 private:
  Gpu(std::shared_ptr<const CudaContext> context, const CudaExecutorOptions& options)
      : context_(std::move(context)),
        name_(absl::StrCat("cuda:", context_->device())),
        memory_bytes_(options.memory_bytes),
        pinned_bytes_(options.pinned_bytes),
        has_caller_(options.stream.has_value()) {}

  absl::Status Open(const CudaExecutorOptions& options) {
    CPSHARD_ON_DEVICE();
    if (has_caller_) {
      launches_ = static_cast<cudaStream_t>(*options.stream);
      if (launches_ == nullptr) launches_ = cudaStreamLegacy;
      CPSHARD_RETURN_IF_ERROR(RefuseCapture());
    }
    CPSHARD_CUDA_CALL(LoadPieces);
    CPSHARD_ASSIGN_OR_RETURN(memory_, DeviceBlock(context_, memory_bytes_));
    CPSHARD_ASSIGN_OR_RETURN(pinned_, PinnedBlock(context_, pinned_bytes_));
    CPSHARD_CUDA_CALL(cudaStreamCreateWithFlags, &copies_, cudaStreamNonBlocking);
    if (!has_caller_) {
      CPSHARD_CUDA_CALL(cudaStreamCreateWithFlags, &launches_, cudaStreamNonBlocking);
    }
    for (cudaEvent_t* event : {&copied_, &launched_}) {  // for streams to wait for
      CPSHARD_CUDA_CALL(cudaEventCreateWithFlags, event, cudaEventDisableTiming);
    }
    // Who waits for one gives his core away: there are as many who wait as Runs at a time.
    for (cudaEvent_t* event : {&done_, &marks_[0], &marks_[1]}) {
      CPSHARD_CUDA_CALL(cudaEventCreateWithFlags, event,
                        cudaEventDisableTiming | cudaEventBlockingSync);
    }
    is_open_ = true;
    return absl::OkStatus();
  }

  absl::Status RefuseCapture() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CPSHARD_CUDA_CALL(cudaStreamIsCapturing, launches_, &status);
    if (status == cudaStreamCaptureStatusNone) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        name_,
        ": the stream is being captured into a CUDA graph, and nothing that is run here can ",
        "be a part of one: run it before the capture or after it"));
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    CPSHARD_ON_DEVICE();
    CPSHARD_RETURN_IF_ERROR(JoinLaunches());
    copies_ahead_ = true;
    Busy();
    CPSHARD_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, kind, copies_);
    return absl::OkStatus();
  }

  // The queue of copies waits for what the caller's stream had before this Run: that may be what
  // writes the memory that is copied.
  absl::Status JoinCaller() {
    if (!caller_ahead_) return absl::OkStatus();
    CPSHARD_ON_DEVICE();
    CPSHARD_CUDA_CALL(cudaEventRecord, launched_, launches_);
    caller_ahead_ = false;
    launches_ahead_ = launch_recorded_ = true;
    Busy();
    return absl::OkStatus();
  }

  void Busy() {
    is_idle_ = false;
    last_mark_ = -1;
  }

  // ... and for the launches before it.
  absl::Status JoinLaunches() {
    if (!launches_ahead_) return absl::OkStatus();
    if (!launch_recorded_) CPSHARD_CUDA_CALL(cudaEventRecord, launched_, launches_);
    launch_recorded_ = true;
    CPSHARD_CUDA_CALL(cudaStreamWaitEvent, copies_, launched_, 0);
    launches_ahead_ = false;
    return absl::OkStatus();
  }

  // Both queues, by an event behind the launches and the copies.
  absl::Status AwaitBoth() {
    CPSHARD_RETURN_IF_ERROR(JoinLaunches());
    CPSHARD_CUDA_CALL(cudaEventRecord, done_, copies_);
    CPSHARD_CUDA_CALL(cudaEventSynchronize, done_);
    return absl::OkStatus();
  }

  // Where that has failed. A queue that cannot be waited for is under way for all that is known: no
  // other Run may begin over the same memory, and a process has no way to get out of that.
  void AwaitEach() {
    Break(launch_recorded_ ? CudaStatus("cudaEventSynchronize", cudaEventSynchronize(launched_))
                           : CudaStatus("cudaStreamSynchronize", cudaStreamSynchronize(launches_)));
    Break(CudaStatus("cudaStreamSynchronize", cudaStreamSynchronize(copies_)));
  }

  void Break(const absl::Status& status) {
    if (!status.ok()) broken_.Update(DeviceLost(status));
  }

  // Of a call on this device. Once it is open an error does not say ResourceExhausted, which would
  // promise that nothing was written.
  absl::Status CudaStatus(absl::string_view call, cudaError_t error) {
    if (!is_open_) return cpshard::CudaStatus(call, error);
    const CudaErrorKind kind = KindOfCudaError(error, is_open_);
    if (kind == CudaErrorKind::kNone) return absl::OkStatus();
    if (kind == CudaErrorKind::kNoUsableDevice || kind == CudaErrorKind::kCaptured) {
      return cpshard::CudaStatus(call, error);
    }
    IgnoreCudaError(error);
    absl::Status status = absl::InternalError(CudaErrorText(call, error));
    const bool lost = kind == CudaErrorKind::kLost || (kind == CudaErrorKind::kOther && !Answers());
    return lost ? DeviceLost(std::move(status)) : status;
  }

  // Asked of a stream of our own, without waiting for anything.
  bool Answers() {
    const OnDevice on(*context_);
    if (on.error() != cudaSuccess) return false;
    const cudaError_t error = cudaStreamQuery(copies_);
    IgnoreCudaError(error);
    return error == cudaSuccess || error == cudaErrorNotReady ||
           KindOfCudaError(error, is_open_) == CudaErrorKind::kCaptured;
  }

  const std::shared_ptr<const CudaContext> context_;
  const std::string name_;
  const int64_t memory_bytes_, pinned_bytes_;
  const bool has_caller_;  // whose stream launches_ is
  bool is_open_ = false;
  absl::Status broken_;  // why nothing can be run any more
  std::shared_ptr<std::byte> memory_, pinned_;
  cudaStream_t copies_ = nullptr, launches_ = nullptr;

  // What the other queue has not waited for; of the caller: what his stream had before the Run.
  bool copies_ahead_ = false, launches_ahead_ = false, caller_ahead_ = false;
  bool launch_recorded_ = true;  // launched_ is behind the last launch
  int last_mark_ = -1;           // which is behind everything; -1: none is
  bool is_idle_ = true;          // everything was waited for
  cudaEvent_t copied_ = nullptr, launched_ = nullptr, done_ = nullptr, marks_[2] = {};
};

#undef CPSHARD_ON_DEVICE

// What is known of a device that says nothing of itself: so much that the others can be used.
CudaDevice Describe(int device) {
  cudaDeviceProp properties = {};
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) {
    return {properties.name, properties.major, properties.minor,
            static_cast<int64_t>(properties.totalGlobalMem)};
  }
  IgnoreCudaError(error);
  return {CudaErrorText("cudaGetDeviceProperties", error)};
}

absl::StatusOr<FixedPool> PoolOf(absl::StatusOr<std::shared_ptr<std::byte>> block, int64_t bytes) {
  CPSHARD_RETURN_IF_ERROR(block.status());
  std::byte* begin = block->get();
  return FixedPool(*std::move(block), begin, bytes);
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> CudaDevices() {
  int count = 0;
  CPSHARD_CUDA_CALL(cudaGetDeviceCount, &count);
  if (count == 0) return CudaStatus("cudaGetDeviceCount", cudaErrorNoDevice);
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Describe(i));
  return devices;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int device,
                                                       const CudaExecutorOptions& options) {
  if (options.memory_bytes <= 0 || options.pinned_bytes < 128) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory_bytes ", options.memory_bytes, ", pinned_bytes ", options.pinned_bytes,
        ": a CUDA executor needs more than 0 bytes of its device and at least 128 pinned ones"));
  }
  return Gpu::Make(device, options);
}

absl::StatusOr<std::unique_ptr<Executor>> MakeCudaExecutor(int device,
                                                           CudaExecutorOptions options) {
  if (options.executor.piece_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("piece_bytes ", options.executor.piece_bytes, ": at least 1"));
  }
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<Device> gpu, MakeCudaDevice(device, options));
  return MakeDeviceExecutor(std::move(gpu), options.executor);
}

absl::StatusOr<FixedPool> MakePinnedPool(int device, int64_t bytes) {
  CPSHARD_ASSIGN_OR_RETURN(const auto context, CudaContext::Of(device));
  return PoolOf(PinnedBlock(context, bytes), bytes);
}

absl::StatusOr<FixedPool> MakeCudaMemoryPool(int device, int64_t bytes) {
  CPSHARD_ASSIGN_OR_RETURN(const auto context, CudaContext::Of(device));
  return PoolOf(DeviceBlock(context, bytes), bytes);
}

}  // namespace cpshard
