#include "proto/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpshard {
namespace {

using ::testing::HasSubstr;

std::string GroupWith(const std::string& member) {
  return R"({"groups": [{"group": "dp0", "cp_size": 2, "options": {"round_robin": {}}, )" + member +
         R"("streams": [{"name": "train", "max_step_bytes": 4096, "num_loaders": 1}]}]})";
}

TEST(ServerConfigJson, NamesTheExecutorAndItsMemory) {
  const auto layer = ConfigFromJson(
      R"({"executor": "cuda", "cuda_device": 1, "cuda_memory_bytes": "5", "pinned_bytes": 6})");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->executor, "cuda");
  EXPECT_EQ(layer->cuda_device, 1);
  EXPECT_EQ(layer->cuda_memory_bytes, 5);
  EXPECT_EQ(layer->pinned_bytes, 6);
}

TEST(ServerConfigJson, WhatItDoesNotNameIsAbsent) {
  const auto layer = ConfigFromJson("{}");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->executor, std::nullopt);
  EXPECT_EQ(layer->cuda_device, std::nullopt);
  EXPECT_EQ(layer->cuda_memory_bytes, std::nullopt);
  EXPECT_EQ(layer->pinned_bytes, std::nullopt);
}

TEST(ServerConfigJson, AGroupNamesTheExecutorOfItsSessions) {
  EXPECT_EQ(ConfigFromJson(GroupWith(""))->groups->at(0).executor, ExecutorKind::kAuto);
  const auto layer = ConfigFromJson(GroupWith(R"("executor": "cuda", )"));
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->groups->at(0).executor, ExecutorKind::kCuda);
}

TEST(ServerConfigJson, AnExecutorOfAGroupThatIsNoneIsRefusedWithTheGroup) {
  const absl::Status status = ConfigFromJson(GroupWith(R"("executor": "gpu", )")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("group 'dp0'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'gpu' is none of auto, cpu and cuda"));
}

}  // namespace
}  // namespace cpshard
