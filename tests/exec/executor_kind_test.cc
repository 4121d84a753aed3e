#include "core/exec/executor_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cpshard {
namespace {

TEST(ExecutorKind, IsReadAsItIsWritten) {
  for (const ExecutorKind kind : {ExecutorKind::kAuto, ExecutorKind::kCpu, ExecutorKind::kCuda}) {
    EXPECT_EQ(ParseExecutorKind(ToString(kind)).value(), kind);
  }
  EXPECT_EQ(ParseExecutorKind("cuda").value(), ExecutorKind::kCuda);
}

TEST(ExecutorKind, AnyOtherTextIsRefusedAndTheThreeAreNamed) {
  for (const char* text : {"", "CPU", "cuda:0", "gpu", "cpu "}) {
    const absl::Status status = ParseExecutorKind(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("'" + std::string(text) + "'"),
                               testing::HasSubstr("auto, cpu and cuda")));
  }
}

}  // namespace
}  // namespace cpshard
