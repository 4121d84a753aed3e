// What every call of a fake CUDA runtime begins with.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda/fake_state.h"

namespace cpshard::fake_cuda {

// One call, begun: the lock, and what comes of it before it does anything.
class Call {
 public:
  explicit Call(const char* name) : lock_(TheState().mutex), error_(Begin(name)) {}

  bool Fails() const { return error_ != 0; }

  // The thread's last error too, as long as no other one comes.
  cudaError_t Return(int error) {
    if (error_ == 0) error_ = error;
    if (error_ != 0) ThisThread().last_error = error_;
    return static_cast<cudaError_t>(error_);
  }
  cudaError_t Return() { return Return(0); }

  // Of the driver, which leaves no error with the runtime's thread.
  int ReturnDriver(int error = 0) const { return error_ == 0 ? error : error_; }

  // A call about the current device: device 0 where the thread has none.
  Call& OnCurrent() {
    std::vector<int>& contexts = ThisThread().contexts;
    if (error_ == 0 && contexts.empty()) {
      error_ = MakeContext(0);
      if (error_ == 0) contexts.push_back(0);
    }
    return *this;
  }

  // One that the capture of a graph forbids, and does not survive.
  Call& Unsafe() {
    for (auto& [handle, stream] : TheState().streams) {
      if (!stream->is_captured || ThisThread().mode == cudaStreamCaptureModeRelaxed) continue;
      stream->is_spoilt = true;
      if (error_ == 0) error_ = cudaErrorStreamCaptureUnsupported;
    }
    return *this;
  }

 private:
  static int Begin(const std::string& name) {
    State& state = TheState();
    ++state.calls[name];
    if (state.sticky != 0) return state.sticky;
    for (Fault& fault : state.faults) {
      if (fault.call != name || --fault.from > 0 || fault.times-- <= 0) continue;
      if (fault.sticky) state.sticky = fault.error;
      return fault.error;
    }
    return 0;
  }

  const std::lock_guard<std::recursive_mutex> lock_;
  int error_;
};

// The device of the calling thread. Precondition: it has one.
inline int Current() { return ThisThread().contexts.back(); }

}  // namespace cpshard::fake_cuda
