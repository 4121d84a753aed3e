// The CPU executor passes the contract of Executor, with and without streaming stores.
#include <gtest/gtest.h>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Cpu, ExecutorContract,
    testing::Values(ExecutorFactory{"default", [] { return MakeCpuExecutor(); }},
                    ExecutorFactory{"streaming",
                                    [] {
                                      return MakeCpuExecutor({.stream_total_bytes = 0,
                                                              .stream_run_bytes = 1,
                                                              .stream_read_bytes = 0});
                                    }}),
    [](const auto& info) { return info.param.name; });

TEST(CpuExecutor, IsCalledCpu) { EXPECT_EQ(MakeCpuExecutor()->name(), "cpu"); }

}  // namespace
}  // namespace cpshard
