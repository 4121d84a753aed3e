// Which devices an executor and its memory use, and what the calling thread has afterwards.
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "core/exec/cuda_error.h"
#include "tests/cuda/fixture.h"

namespace cpshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CudaContexts : public OnFakeCuda {};

TEST_F(CudaContexts, AnExecutorUsesItsDeviceAlone) {
  std::unique_ptr<Executor> executor = Made(3);
  const auto run = [&] {
    const PageableCopy pageable(5000);
    EXPECT_EQ(pageable.copy.RunOn(*executor), absl::OkStatus());
    EXPECT_TRUE(pageable.copy.HasWritten(1));
  };
  run();
  std::thread(run).join();
  std::thread([gone = std::move(executor)] {}).join();
  EXPECT_THAT(fake_cuda::Contexts(), ElementsAre(3));
}

TEST_F(CudaContexts, PoolsUseTheirDeviceAloneWhoeverGivesThemBack) {
  for (const auto make : {MakePinnedPool, MakeCudaMemoryPool}) {
    auto pool = make(make == MakePinnedPool ? 2 : 3, 1000);
    ASSERT_TRUE(pool.ok()) << pool.status();
    std::thread([pool = *std::exchange(pool, absl::UnknownError("gone"))] {}).join();
  }
  EXPECT_THAT(fake_cuda::Contexts(), ElementsAre(2, 3));
  EXPECT_EQ(fake_cuda::InUse(), 0);
}

TEST_F(CudaContexts, AThreadThatHasNoDeviceHasNoneAfterwards) {
  std::unique_ptr<Executor> executor = Made(3);
  EXPECT_EQ(fake_cuda::CurrentDevice(), std::nullopt);
  EXPECT_EQ(PageableCopy(100).copy.RunOn(*executor), absl::OkStatus());
  EXPECT_EQ(fake_cuda::CurrentDevice(), std::nullopt);
  executor.reset();
  EXPECT_EQ(fake_cuda::CurrentDevice(), std::nullopt);
}

TEST_F(CudaContexts, AThreadKeepsTheDeviceThatItHas) {
  fake_cuda::SetDevice(1);
  std::unique_ptr<Executor> executor = Made(3);
  EXPECT_EQ(fake_cuda::CurrentDevice(), 1);
  EXPECT_EQ(PageableCopy(100).copy.RunOn(*executor), absl::OkStatus());
  EXPECT_EQ(fake_cuda::CurrentDevice(), 1);
  executor.reset();
  EXPECT_EQ(fake_cuda::CurrentDevice(), 1);
}

TEST_F(CudaContexts, ADeviceWithNoRoomForAContextIsRefusedAndNoOtherIsUsed) {
  fake_cuda::RefuseContext(3, 2);
  for (const absl::Status& status :
       {MakeCudaExecutor(3, Small()).status(), MakePinnedPool(3, 1000).status()}) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("error 2"));
  }
  EXPECT_THAT(fake_cuda::Contexts(), IsEmpty());
}

TEST_F(CudaContexts, AThreadThatCannotHaveTheDeviceRunsNothingOnAnother) {
  for (const bool has_another : {false, true}) {
    fake_cuda::Reset();
    if (has_another) fake_cuda::SetDevice(1);
    const std::unique_ptr<Executor> executor = Made(3);
    const std::set<int> contexts = fake_cuda::Contexts();
    fake_cuda::Inject({.call = "cuCtxPushCurrent", .error = 201});
    const PageableCopy pageable(100);
    const absl::Status status = pageable.copy.RunOn(*executor);
    fake_cuda::Heal();
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuCtxPushCurrent: error 201"));
    EXPECT_TRUE(IsDeviceLost(status));  // a context that cannot be had again
    EXPECT_TRUE(pageable.copy.IsUntouched());
    EXPECT_EQ(fake_cuda::Calls("cudaLaunchKernel"), 0);
    EXPECT_EQ(fake_cuda::CurrentDevice().has_value(), has_another);
    EXPECT_EQ(fake_cuda::Contexts(), contexts);
  }
}

TEST_F(CudaContexts, ListingTheDevicesUsesNone) {
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 4);
  EXPECT_EQ(devices->at(3).name, "fake GPU 3");
  EXPECT_THAT(fake_cuda::Contexts(), IsEmpty());
}

TEST_F(CudaContexts, ADeviceThatDoesNotAnswerLeavesTheOthers) {
  fake_cuda::Inject({.call = "cudaGetDeviceProperties", .error = 46, .from = 2, .times = 1});
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 4);
  EXPECT_THAT(devices->at(1).name, HasSubstr("error 46"));
  EXPECT_EQ(devices->at(2).name, "fake GPU 2");
  EXPECT_EQ(Made(2)->name(), "cuda:2");
}

TEST_F(CudaContexts, OnlyWhoIsShownNoDeviceIsToldThatThereIsNone) {
  for (const auto& [error, is_none] :
       {std::pair(100, true), {35, false}, {802, false}, {803, false}, {46, false}, {3, false}}) {
    fake_cuda::Inject({.call = "cudaGetDeviceCount", .error = error, .times = 2});
    for (const absl::Status& status :
         {CudaDevices().status(), MakeCudaExecutor(0, Small()).status()}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_EQ(IsNoDevice(status), is_none) << status;
    }
    fake_cuda::Heal();
  }
}

TEST_F(CudaContexts, ADeviceThatIsNotThereIsRefusedWithTheNumberOfThem) {
  for (const int device : {-1, 4}) {
    for (const absl::Status& status :
         {MakeCudaExecutor(device, Small()).status(), MakePinnedPool(device, 1000).status(),
          MakeCudaMemoryPool(device, 1000).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("sees 4"));
    }
  }
}

}  // namespace
}  // namespace cpshard
