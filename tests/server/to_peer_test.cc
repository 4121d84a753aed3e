#include "server/to_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/batch/buffer.h"
#include "core/exec/device/device_lost.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Status kFull = absl::ResourceExhaustedError("the pool is full");

TEST(ToPeer, MemoryThatMayComeBackSaysWhen) {
  const absl::Status told = ToPeer(kFull);
  EXPECT_EQ(told.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailsOf(told)->reason, "BUDGET");
  EXPECT_TRUE(DetailsOf(told)->retry_after);
}

TEST(ToPeer, MemoryThatNeverWillIsNotExhaustedAndNamesTheWayOut) {
  const absl::Status told = ToPeer(ThatNeverFits(kFull));
  EXPECT_EQ(told.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(DetailsOf(told));
  EXPECT_THAT(std::string(told.message()),
              AllOf(HasSubstr("the pool is full"), HasSubstr("pool_bytes"),
                    HasSubstr("session_bytes"), HasSubstr("cuda_memory_bytes")));
}

TEST(ToPeer, ALostDeviceIsToBeWaitedForLongerThanItsServerLives) {
  const absl::Status told = ToPeer(DeviceLost(absl::UnavailableError("lost")));
  EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DetailsOf(told)->reason, "DEVICE_LOST");
  EXPECT_GT(*DetailsOf(told)->retry_after, 2 * kLostGrace);
}

TEST(ToPeer, WhatHasDetailsOrIsNoMatterOfMemoryStaysAsItIs) {
  const absl::Status other = absl::InvalidArgumentError("no stream");
  EXPECT_EQ(ToPeer(other), other);
  const absl::Status detailed = WithDetails(kFull, {.reason = "NO_CREDIT"});
  EXPECT_EQ(ToPeer(detailed), detailed);
}

}  // namespace
}  // namespace cpshard
