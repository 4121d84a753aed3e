// The anchors over the CUDA runtime that is not there (tests/cuda/fake_runtime.h): with them
// gpu_check runs what a program with the real one has of cpshard, and its streams are as late as
// can be.
#include <cstring>

#include "core/exec/cuda.h"
#include "tests/cuda/fake_runtime.h"
#include "tests/gpu/anchors.h"

namespace cpshard {
namespace {

int on_default_stream = 0;  // that is not done

}  // namespace

absl::Status EnqueueCopy(std::byte* to, const std::byte* from, int64_t bytes, CopyStream stream) {
  static void* const other = fake_cuda::MakeStream(0);
  const bool is_default = stream == CopyStream::kDefault;
  on_default_stream += is_default;
  fake_cuda::Put(is_default ? nullptr : other, 0, [=] {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    on_default_stream -= is_default;
  });
  return absl::OkStatus();
}

absl::Status EnqueueSpin(int64_t) { return absl::OkStatus(); }  // all is late

absl::StatusOr<bool> IsBusy() { return on_default_stream > 0; }

absl::Status WaitForDevice() {
  fake_cuda::DoAll();
  return CudaDevices().status();  // what is lost stays lost for every call
}

absl::Status CopyNow(std::byte* to, const std::byte* from, int64_t bytes) {
  const absl::Status status = EnqueueCopy(to, from, bytes);
  return status.ok() ? WaitForDevice() : status;
}

absl::StatusOr<void*> NewStream() { return fake_cuda::MakeStream(0); }

absl::Status WhileCaptured(void* stream, const std::function<void()>& fn) {
  fake_cuda::BeginCapture(stream);
  fn();
  return fake_cuda::EndCapture(stream) ? absl::OkStatus()
                                       : absl::InternalError("the capture was spoilt");
}

std::string CudaVersions() { return "none: a fake"; }

}  // namespace cpshard
