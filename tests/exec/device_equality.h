// What an executor for devices writes is, byte for byte, what the CPU's writes: over all
// derivations and continuations of random bits, and over random plans. See device_equality_*.cc; an
// executor gets in as into ExecutorContract.
#pragma once

#include "tests/exec/executor_contract.h"

namespace cpshard {

class DeviceEquality : public ExecutorContract {
 protected:
  const std::unique_ptr<Executor> cpu_ = MakeCpuExecutor();
};

}  // namespace cpshard
