// What an executor's work comes after, and what comes after it.
#include <cstring>

#include "tests/cuda/fixture.h"

namespace cpshard {
namespace {

constexpr int kDevice = 1;

// Of the caller's; the parameter says whether it is his default stream.
class CudaStreamOrder : public testing::WithParamInterface<bool>, public OnFakeCuda {
 protected:
  CudaExecutorOptions OnStream(bool return_early) const {
    CudaExecutorOptions options = Small();
    options.stream = stream_;
    options.executor.return_early = return_early;
    return options;
  }

  void* const stream_ = GetParam() ? nullptr : fake_cuda::MakeStream(kDevice);
};

INSTANTIATE_TEST_SUITE_P(Cuda, CudaStreamOrder, testing::Bool(),
                         [](const auto& info) { return info.param ? "default_stream" : "stream"; });

TEST_P(CudaStreamOrder, ARunComesAfterWhatTheStreamHad) {
  const std::unique_ptr<Executor> executor = Made(kDevice, OnStream(true));
  const DeviceCopy on_device(kDevice, 5000);
  fake_cuda::Put(stream_, kDevice, [&] { std::memset(on_device.source, 2, 5000); });
  EXPECT_EQ(on_device.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(on_device.copy.IsUntouched());  // it has returned early
  fake_cuda::DoAll();
  EXPECT_TRUE(on_device.copy.HasWritten(2));
}

TEST_P(CudaStreamOrder, WhatIsPutOnTheStreamAfterwardsComesAfterTheRun) {
  const std::unique_ptr<Executor> executor = Made(kDevice, OnStream(true));
  const DeviceCopy on_device(kDevice, 5000);
  EXPECT_EQ(on_device.copy.RunOn(*executor), absl::OkStatus());
  bool was_written = false;
  fake_cuda::Put(stream_, kDevice, [&] { was_written = on_device.copy.HasWritten(1); });
  fake_cuda::DoAll();
  EXPECT_TRUE(was_written);
}

TEST_P(CudaStreamOrder, CopiesOfTheCallersMemoryComeAfterWhatTheStreamHad) {
  CudaExecutorOptions options = OnStream(false);
  options.executor.pinned_source = PinnedSource::kCopyFirst;
  const std::unique_ptr<Executor> executor = Made(kDevice, options);
  constexpr int64_t kBytes = 128 << 10;  // for the copy engine
  std::byte* const source = fake_cuda::PinnedMemory(kBytes);
  const Copy copy(source, fake_cuda::PinnedMemory(kBytes), kBytes);
  for (const int value : {2, 3}) {
    fake_cuda::Put(stream_, kDevice, [=] { std::memset(source, value, kBytes); });
    EXPECT_EQ(copy.RunOn(*executor), absl::OkStatus());
    EXPECT_TRUE(copy.HasWritten(value));
  }
}

TEST_P(CudaStreamOrder, TheDestructorWaitsThoughTheStreamIsGone) {
  std::unique_ptr<Executor> executor = Made(kDevice, OnStream(true));
  const DeviceCopy on_device(kDevice, 5000);
  EXPECT_EQ(on_device.copy.RunOn(*executor), absl::OkStatus());
  fake_cuda::DestroyStream(stream_);
  executor.reset();
  EXPECT_TRUE(on_device.copy.HasWritten(1));
  EXPECT_EQ(fake_cuda::InUse(), 0);
}

using CudaOrder = OnFakeCuda;

// The pinned memory of the executor holds two tables; nothing is done before all Runs are enqueued
// but what they wait for themselves.
TEST_F(CudaOrder, ManyRunsThatReturnEarlyEachDoTheirOwnWork) {
  CudaExecutorOptions options = Small();
  options.executor.return_early = true;
  const std::unique_ptr<Executor> executor = Made(kDevice, options);
  std::vector<DeviceCopy> copies;
  for (int i = 0; i < 7; ++i) copies.emplace_back(kDevice, 5000);
  for (const DeviceCopy& each : copies) EXPECT_EQ(each.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(copies.back().copy.IsUntouched());
  fake_cuda::DoAll();
  for (const DeviceCopy& each : copies) EXPECT_TRUE(each.copy.HasWritten(1));
}

TEST_F(CudaOrder, ARunThatMayNotReturnEarlyHasWrittenAll) {
  const std::unique_ptr<Executor> executor = Made(kDevice);
  const DeviceCopy on_device(kDevice, 5000);
  EXPECT_EQ(on_device.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(on_device.copy.HasWritten(1));
  EXPECT_EQ(fake_cuda::UnderWay(), 0);
}

TEST_F(CudaOrder, ADeviceWaitsForWhatIsUnderWayBeforeItsMemoryGoes) {
  auto device = MakeCudaDevice(kDevice, Small());
  ASSERT_TRUE(device.ok()) << device.status();
  const uint64_t memory = reinterpret_cast<uintptr_t>((*device)->memory().begin);
  EXPECT_EQ((*device)->CopyIn(memory, (*device)->pinned().begin, 1000), absl::OkStatus());
  EXPECT_EQ(fake_cuda::UnderWay(), 1);
  device = absl::UnknownError("gone");
  EXPECT_EQ(fake_cuda::InUse(), 0);
}

TEST_F(CudaOrder, WhoWaitsForTheDeviceLeavesHisCoreToOthers) {
  const PageableCopy pageable(50000);
  EXPECT_EQ(pageable.copy.RunOn(*Made(kDevice)), absl::OkStatus());
  EXPECT_GT(fake_cuda::Calls("cudaEventSynchronize"), 2);
  EXPECT_EQ(fake_cuda::Spins(), 0);
}

TEST_F(CudaOrder, ACapturedStreamIsRefusedUntouchedAndTheCaptureGoesOn) {
  CudaExecutorOptions options = Small();
  options.stream = fake_cuda::MakeStream(kDevice);
  const std::unique_ptr<Executor> executor = Made(kDevice, options);
  const PageableCopy pageable(100);
  const int in_use = fake_cuda::InUse();
  fake_cuda::BeginCapture(*options.stream);
  for (const absl::Status& status :
       {pageable.copy.RunOn(*executor), MakeCudaExecutor(kDevice, options).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("captured"));
    EXPECT_FALSE(IsDeviceLost(status));
  }
  EXPECT_TRUE(pageable.copy.IsUntouched());
  EXPECT_EQ(fake_cuda::Calls("cudaMemcpyAsync"), 0);
  EXPECT_EQ(fake_cuda::InUse(), in_use);
  EXPECT_TRUE(fake_cuda::EndCapture(*options.stream));
  EXPECT_EQ(pageable.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(pageable.copy.HasWritten(1));
}

// In global mode, which forbids allocations and waiting to every thread that does not object.
TEST_F(CudaOrder, TheCaptureOfAnotherStreamNeitherStopsARunNorIsSpoilt) {
  void* const other = fake_cuda::MakeStream(kDevice);
  fake_cuda::BeginCapture(other);
  std::unique_ptr<Executor> executor = Made(kDevice);
  const PageableCopy pageable(5000);
  EXPECT_EQ(pageable.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(pageable.copy.HasWritten(1));
  executor.reset();
  EXPECT_TRUE(fake_cuda::EndCapture(other));
}

TEST_F(CudaOrder, MemoryOfItsOwnPoolsIsKnownWithoutAsking) {
  auto pinned = MakePinnedPool(0, 10000), memory = MakeCudaMemoryPool(kDevice, 10000);
  ASSERT_TRUE(pinned.ok() && memory.ok());
  auto source = pinned->Allocate(5000), dest = memory->Allocate(5000);
  ASSERT_TRUE(source.ok() && dest.ok());
  const std::unique_ptr<Executor> executor = Made(kDevice);
  const Copy copy(source->data(), dest->data(), 5000);
  const int asked = fake_cuda::Calls("cudaPointerGetAttributes");
  EXPECT_EQ(copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(copy.HasWritten(1));
  EXPECT_EQ(fake_cuda::Calls("cudaPointerGetAttributes"), asked);
  EXPECT_EQ(fake_cuda::Calls("cudaMemcpyAsync"), 1);  // the table
}

TEST_F(CudaOrder, MemoryOfAnotherDeviceIsRefusedAsItsOwnPoolsIs) {
  auto memory = MakeCudaMemoryPool(2, 10000);
  ASSERT_TRUE(memory.ok());
  auto block = memory->Allocate(100);
  ASSERT_TRUE(block.ok());
  const std::unique_ptr<Executor> executor = Made(kDevice);
  const std::unique_ptr<Executor> same = Made(2);
  for (std::byte* foreign : {block->data(), fake_cuda::DeviceMemory(2, 100)}) {
    const Copy copy(fake_cuda::PinnedMemory(100), foreign, 100);
    const absl::Status status = copy.RunOn(*executor);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(copy.IsUntouched());
    EXPECT_EQ(copy.RunOn(*same), absl::OkStatus());
    EXPECT_TRUE(copy.HasWritten(1));
  }
}

}  // namespace
}  // namespace cpshard
