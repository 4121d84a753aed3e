// What errors leave behind, and which of them are the loss of the device.
#include <string>

#include "absl/strings/str_cat.h"
#include "core/exec/place.h"
#include "tests/cuda/fixture.h"

namespace cpshard {
namespace {

using fake_cuda::Fault;
using testing::HasSubstr;

constexpr int kDevice = 1;

class CudaFailures : public OnFakeCuda {
 protected:
  // What a Run says during which this call returns this error, once.
  absl::Status Failing(const std::string& call, int error) {
    const std::unique_ptr<Executor> executor = Made(kDevice);
    const PageableCopy pageable(5000);
    fake_cuda::Inject({.call = call, .error = error, .times = 1});
    return pageable.copy.RunOn(*executor);
  }
};

TEST_F(CudaFailures, ALaunchIsNotBlamedForAnOlderErrorOfItsThread) {
  const std::unique_ptr<Executor> executor = Made(kDevice);
  fake_cuda::LeaveError(2);
  const PageableCopy pageable(5000);
  EXPECT_EQ(pageable.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(pageable.copy.HasWritten(1));
  EXPECT_EQ(fake_cuda::LastError(), 2);  // who has left it asks for it
}

// What the n-th call of this name does to a Run, and so many behind it, which clean up already.
absl::Status FailingRun(const Fault& fault) {
  const std::unique_ptr<Executor> executor = Made(kDevice);
  const PageableCopy pageable(50000);  // several halves of the pinned memory each way
  fake_cuda::Inject(fault);
  const absl::Status status = pageable.copy.RunOn(*executor);
  fake_cuda::Heal();
  EXPECT_EQ(fake_cuda::UnderWay(), 0);
  EXPECT_EQ(fake_cuda::LastError(), 0);
  EXPECT_FALSE(IsDeviceLost(status));
  EXPECT_EQ(pageable.copy.RunOn(*executor), absl::OkStatus());
  EXPECT_TRUE(pageable.copy.HasWritten(1));
  return status;
}

TEST_F(CudaFailures, AfterAnErrorNothingIsUnderWayAndTheNextRunSucceeds) {
  int failures = 0;
  for (const char* call :
       {"cudaStreamIsCapturing", "cudaPointerGetAttributes", "cudaMemcpyAsync", "cudaEventRecord",
        "cudaStreamWaitEvent", "cudaLaunchKernel", "cudaEventSynchronize"}) {
    for (const int times : {1, 2}) {
      for (int from = 1;; ++from) {
        SCOPED_TRACE(absl::StrCat(call, " ", from, ", ", times, " times"));
        // Waiting that fails twice is the next test.
        if (times == 2 && call == absl::string_view("cudaEventSynchronize")) break;
        const absl::Status status =
            FailingRun({.call = call, .error = 1, .from = from, .times = times});
        if (status.ok()) break;
        EXPECT_THAT(std::string(status.message()), HasSubstr("error 1 ("));
        ++failures;
      }
    }
  }
  EXPECT_GT(failures, 60);
}

TEST_F(CudaFailures, AQueueThatCannotBeWaitedForIsTheEndOfTheExecutor) {
  for (const char* in_vain : {"cudaEventSynchronize", "cudaStreamSynchronize"}) {
    const std::unique_ptr<Executor> executor = Made(kDevice);
    fake_cuda::Inject({.call = "cudaEventSynchronize", .error = 1, .times = 3});
    fake_cuda::Inject({.call = in_vain, .error = 1});
    const absl::Status first = PageableCopy(5000).copy.RunOn(*executor);
    EXPECT_TRUE(IsDeviceLost(first)) << first;  // its launches may still write
    fake_cuda::Heal();
    const PageableCopy later(5000);
    EXPECT_TRUE(IsDeviceLost(later.copy.RunOn(*executor)));
    EXPECT_TRUE(later.copy.IsUntouched());
    fake_cuda::DoAll();
  }
}

TEST_F(CudaFailures, AStickyErrorIsTheLossOfTheDevice) {
  const std::unique_ptr<Executor> executor = Made(kDevice);
  fake_cuda::Inject({.call = "cudaEventSynchronize", .error = 700, .sticky = true});
  const PageableCopy pageable(5000);
  const absl::Status status = pageable.copy.RunOn(*executor);
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("error 700"));
  EXPECT_TRUE(IsDeviceLost(pageable.copy.RunOn(*executor)));
  EXPECT_TRUE(IsDeviceLost(MakeCudaExecutor(kDevice, Small()).status()));
}

TEST_F(CudaFailures, AKernelThatFaultsIsFoundByALaterRunWhereItsOwnHasReturnedEarly) {
  CudaExecutorOptions options = Small();
  options.executor.return_early = true;
  const std::unique_ptr<Executor> executor = Made(kDevice, options);
  DeviceCopy gone(kDevice, 5000);
  EXPECT_EQ(gone.copy.RunOn(*executor), absl::OkStatus());
  fake_cuda::Unmap(gone.source);
  fake_cuda::DoAll();
  const PageableCopy later(5000);
  const absl::Status status = later.copy.RunOn(*executor);
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_TRUE(later.copy.IsUntouched());
}

TEST_F(CudaFailures, OfALaunchOnlyWhatLeavesNoDeviceIsALoss) {
  for (const int error : {1, 2, 98, 400, 701, 801, 900, 906}) {
    fake_cuda::Reset();
    const absl::Status status = Failing("cudaLaunchKernel", error);
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(IsDeviceLost(status)) << status;
    EXPECT_FALSE(absl::IsResourceExhausted(status)) << "that would say: nothing was written";
  }
  for (const int error : {214, 700, 709, 719, 999}) {
    fake_cuda::Reset();
    const absl::Status status = Failing("cudaLaunchKernel", error);
    EXPECT_TRUE(IsDeviceLost(status)) << status;
  }
}

TEST_F(CudaFailures, OfAnErrorThatMayBeEitherItsOwnStreamIsAsked) {
  for (const bool answers : {true, false}) {
    fake_cuda::Reset();
    const std::unique_ptr<Executor> executor = Made(kDevice);
    fake_cuda::Inject({.call = "cudaLaunchKernel", .error = 304, .times = 1});
    if (!answers) fake_cuda::Inject({.call = "cudaStreamQuery", .error = 304, .times = 1});
    EXPECT_EQ(IsDeviceLost(PageableCopy(100).copy.RunOn(*executor)), !answers);
  }
}

// A kernel that waits for another process would have to be waited for.
TEST_F(CudaFailures, NoOtherStreamIsWaitedForToFindOutWhatAnErrorMeans) {
  bool was_waited_for = false;
  fake_cuda::Put(fake_cuda::MakeStream(kDevice), kDevice, [&] { was_waited_for = true; });
  fake_cuda::Put(nullptr, kDevice, [&] { was_waited_for = true; });
  for (const int error : {1, 304, 700}) EXPECT_FALSE(Failing("cudaLaunchKernel", error).ok());
  EXPECT_FALSE(was_waited_for);
}

TEST_F(CudaFailures, ADeviceThatCannotBeOpenedIsNoLoss) {
  for (const char* call : {"cudaGetDeviceCount", "cudaInitDevice"}) {
    for (const int error : {3, 35, 46, 100, 802, 803, 805, 999}) {
      fake_cuda::Reset();
      fake_cuda::Inject({.call = call, .error = error});
      for (const absl::Status& status :
           {MakeCudaExecutor(kDevice, Small()).status(), MakePinnedPool(kDevice, 1000).status()}) {
        EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
        EXPECT_FALSE(IsDeviceLost(status));
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(error)));
        EXPECT_THAT(std::string(status.message()), HasSubstr("; driver 13.0, runtime 1"));
      }
      EXPECT_EQ(fake_cuda::LastError(), 0);
    }
  }
}

TEST_F(CudaFailures, APlaceOnADeviceThatDoesNotTellItsNameSaysThat) {
  fake_cuda::Inject({.call = "cudaGetDeviceProperties", .error = 1});
  const absl::StatusOr<Place> place =
      MakePlace({.cuda_device = kDevice, .cuda_memory_bytes = 1 << 20, .pinned_bytes = 0});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->executor->name(), "cuda:1");
  EXPECT_EQ(place->reason, "a device that does not tell its name");
}

TEST_F(CudaFailures, PiecesOfNothingAreRefused) {
  for (const int64_t piece_bytes : {0, -1}) {
    CudaExecutorOptions options = Small();
    options.executor.piece_bytes = piece_bytes;
    const absl::Status status = MakeCudaExecutor(kDevice, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("piece_bytes ", piece_bytes)));
  }
}

TEST_F(CudaFailures, AnExecutorInAProcessThatHasLostItsDeviceSaysSo) {
  fake_cuda::Inject({.call = "cudaMalloc", .error = 719, .sticky = true});
  const absl::Status status = MakeCudaExecutor(kDevice, Small()).status();
  EXPECT_TRUE(IsDeviceLost(status)) << status;
}

TEST_F(CudaFailures, MemoryThatIsNotThereIsRefusedWithTheSizes) {
  CudaExecutorOptions options = Small();
  options.memory_bytes = int64_t{2} << 30;
  const absl::Status device = MakeCudaExecutor(kDevice, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(device)) << device;
  EXPECT_THAT(std::string(device.message()),
              HasSubstr("2147483648 bytes of device 1; 1073741824 of 1073741824 bytes are free"));
  const absl::Status pinned = MakePinnedPool(kDevice, int64_t{2} << 30).status();
  EXPECT_TRUE(absl::IsResourceExhausted(pinned)) << pinned;
  EXPECT_THAT(std::string(pinned.message()), HasSubstr("2147483648 bytes of pinned host memory"));
}

TEST_F(CudaFailures, WhatCouldNotBeMadeWholeLeavesNothingBehind) {
  int failures = 0;
  for (const char* call :
       {"cudaGetDeviceCount", "cudaGetDriverEntryPointByVersion", "cudaInitDevice",
        "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent", "cudaFuncGetAttributes", "cudaMalloc",
        "cudaHostAlloc", "cudaPointerGetAttributes", "cudaStreamCreateWithFlags",
        "cudaEventCreateWithFlags"}) {
    for (int from = 1;; ++from) {
      fake_cuda::Inject({.call = call, .error = 1, .from = from, .times = 1});
      const bool made = MakeCudaExecutor(kDevice, Small()).ok();
      fake_cuda::Heal();
      EXPECT_EQ(fake_cuda::InUse(), 0) << call << " " << from;
      EXPECT_EQ(fake_cuda::LastError(), 0);
      EXPECT_EQ(fake_cuda::CurrentDevice(), std::nullopt) << call << " " << from;
      if (made) break;
      ++failures;
    }
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace cpshard
