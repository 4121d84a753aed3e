// What the executor for a GPU says where there is none, and that a program with it starts there. On
// a machine with a GPU tests/gpu has the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/exec/cuda.h"
#include "core/exec/device/device_lost.h"

namespace cpshard {
namespace {

TEST(CudaExecutor, SaysWhyThereIsNoDeviceOrHasOne) {
  const auto devices = CudaDevices();
  if (devices.ok()) {
    EXPECT_FALSE(devices->empty());
    const auto executor = MakeCudaExecutor(0);
    ASSERT_TRUE(executor.ok()) << executor.status();
    EXPECT_EQ((*executor)->name(), "cuda:0");
    return;
  }
  std::cout << devices.status() << "\n";
  EXPECT_EQ(MakeCudaExecutor(0).status(), devices.status());
  EXPECT_EQ(MakePinnedPool(0, 1 << 20).status(), devices.status());
  EXPECT_EQ(MakeCudaMemoryPool(0, 1 << 20).status(), devices.status());
  EXPECT_FALSE(IsDeviceLost(devices.status()));
  const std::string text(devices.status().message());
  if (absl::IsUnimplemented(devices.status())) {
    EXPECT_THAT(text, testing::HasSubstr("-DCPSHARD_CUDA=ON"));
  } else {
    EXPECT_TRUE(absl::IsFailedPrecondition(devices.status()));
    EXPECT_THAT(text, testing::ContainsRegex("error [0-9]+ .*driver .*, runtime [0-9]+"));
  }
}

TEST(CudaExecutor, ADeviceThatIsNotThereIsRefused) {
  const auto devices = CudaDevices();
  if (!devices.ok()) return;  // the test above has said why
  for (const int device : {-1, static_cast<int>(devices->size())}) {
    EXPECT_TRUE(absl::IsInvalidArgument(MakeCudaExecutor(device).status()));
  }
}

}  // namespace
}  // namespace cpshard
