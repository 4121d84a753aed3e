// Where people are sent who ask for an executor: on any machine. See place_on_device_test for one
// that has a device.
#include "core/exec/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/exec/cuda.h"

namespace cpshard {
namespace {

TEST(Place, TheCpuIsGivenWhereItIsAskedFor) {
  const absl::StatusOr<Place> place = MakePlace({.executor = ExecutorKind::kCpu});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->executor->name(), "cpu");
  EXPECT_EQ(place->blocks, nullptr);
  EXPECT_FALSE(place->reason.empty());
}

TEST(Place, AutoIsTheCpuWhereThereIsNoDeviceAndTheReasonSaysWhy) {
  const auto devices = CudaDevices();
  if (devices.ok()) GTEST_SKIP() << "there is a device";
  const absl::StatusOr<Place> place = MakePlace({});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->executor->name(), "cpu");
  EXPECT_EQ(place->blocks, nullptr);
  EXPECT_EQ(place->reason, devices.status().message());
}

TEST(Place, CudaByNameIsNeverReplacedByAnother) {
  const auto devices = CudaDevices();
  if (devices.ok()) GTEST_SKIP() << "there is a device";
  EXPECT_EQ(MakePlace({.executor = ExecutorKind::kCuda}).status(), devices.status());
}

TEST(Place, SizesOfNothingAreRefusedForEveryExecutorWithTheirNames) {
  for (const ExecutorKind kind : {ExecutorKind::kAuto, ExecutorKind::kCpu, ExecutorKind::kCuda}) {
    PlaceOptions no_runs, pinned, memory;
    no_runs.runs_at_once = 0;
    pinned.pinned_bytes = -5;
    memory.cuda_memory_bytes = -7;
    for (PlaceOptions options : {no_runs, pinned, memory}) {
      options.executor = kind;
      const absl::Status status = MakePlace(options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(
          std::string(status.message()),
          testing::AllOf(testing::HasSubstr("runs_at_once " + std::to_string(options.runs_at_once)),
                         testing::HasSubstr("pinned_bytes " + std::to_string(options.pinned_bytes)),
                         testing::HasSubstr("cuda_memory_bytes " +
                                            std::to_string(options.cuda_memory_bytes))));
    }
  }
}

}  // namespace
}  // namespace cpshard
