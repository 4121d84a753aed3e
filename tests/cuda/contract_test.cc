// The contract of Executor through every layer but the runtime and the GPU.
#include "tests/cuda/fixture.h"
#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

ExecutorFactory Factory(std::string name, CudaExecutorOptions options) {
  return {std::move(name), [options] {
            fake_cuda::Reset();
            return Made(2, options);
          }};
}

CudaExecutorOptions OnDefaultStream() {
  CudaExecutorOptions options = Small();
  options.stream = nullptr;
  return options;
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, ExecutorContract,
                         testing::Values(Factory("own_stream", Small()),
                                         Factory("default_stream", OnDefaultStream())),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard
