#include "client/expected_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpshard {
namespace {

using ::testing::HasSubstr;

TEST(CheckExecutor, AnyNameIsRightWhereTheServerChooses) {
  for (const char* named : {"", "cpu", "cuda:0", "one of later"}) {
    EXPECT_EQ(CheckExecutor(ExecutorKind::kAuto, named), absl::OkStatus());
  }
}

TEST(CheckExecutor, WhatWasAskedForIsHeldAgainstTheName) {
  EXPECT_EQ(CheckExecutor(ExecutorKind::kCpu, "cpu"), absl::OkStatus());
  EXPECT_EQ(CheckExecutor(ExecutorKind::kCuda, "cuda:3"), absl::OkStatus());
  const absl::Status refused = CheckExecutor(ExecutorKind::kCuda, "cpu");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("executor cuda was asked for"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("with cpu"));
  EXPECT_EQ(CheckExecutor(ExecutorKind::kCpu, "cuda:0").code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CheckExecutor, AServerThatNamesNobodyHasACpuAlone) {
  EXPECT_EQ(CheckExecutor(ExecutorKind::kCpu, ""), absl::OkStatus());
  const absl::Status refused = CheckExecutor(ExecutorKind::kCuda, "");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("older"));
}

}  // namespace
}  // namespace cpshard
