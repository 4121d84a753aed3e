// The runner of the corpus with another executor: what it takes for the CPU's is an emulated device
// here, memory copied to it and back. Linked before the archive that has the real one.
#include "core/exec/device/emulated.h"

namespace cpshard {

std::unique_ptr<Executor> MakeCpuExecutor(CpuExecutorOptions) {
  EmulatedDeviceOptions options;
  options.host_memory = Device::Reach::kNone;
  return MakeEmulatedDeviceExecutor(options);
}

}  // namespace cpshard
