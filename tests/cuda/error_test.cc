// What the numbers mean, by the names that the toolkit has for them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/exec/cuda_error.h"
#include "tests/cuda/error_numbers.h"

namespace cpshard {
namespace {

using Kind = CudaErrorKind;

// Before the device is open, and after.
void Expect(const std::vector<std::string>& names, Kind before, Kind after) {
  for (const std::string& name : names) {
    const int number = NumberOfCudaError(name);
    EXPECT_EQ(KindOfCudaError(number, false), before) << name;
    EXPECT_EQ(KindOfCudaError(number, true), after) << name;
  }
}

TEST(CudaError, WhatEndsTheContextIsALoss) {
  Expect({"ECCUncorrectable", "NvlinkUncorrectable", "IllegalAddress", "LaunchTimeout",
          "ContextIsDestroyed", "Assert", "HardwareStackError", "IllegalInstruction",
          "MisalignedAddress", "InvalidAddressSpace", "InvalidPc", "LaunchFailure",
          "MpsClientTerminated", "ExternalDevice", "Contained", "TensorMemoryLeak"},
         Kind::kLost, Kind::kLost);
}

TEST(CudaError, WhatDoesNotGoTogetherIsNoUsableDevice) {
  Expect({"StubLibrary", "InsufficientDriver", "CallRequiresNewerDriver", "InvalidDeviceFunction",
          "NoDevice", "InvalidKernelImage", "NoKernelImageForDevice", "InvalidPtx",
          "JitCompilerNotFound", "UnsupportedPtxVersion", "JitCompilationDisabled",
          "SystemDriverMismatch", "CompatNotSupportedOnDevice"},
         Kind::kNoUsableDevice, Kind::kNoUsableDevice);
}

TEST(CudaError, WhatPreventsAContextIsNoUsableDeviceAndLaterADeviceToBeAsked) {
  Expect({"InitializationError", "DevicesUnavailable", "IncompatibleDriverContext", "InvalidDevice",
          "DeviceNotLicensed", "StartupFailure", "DeviceUninitialized", "DeviceAlreadyInUse",
          "UnsupportedExecAffinity", "OperatingSystem", "SystemNotReady", "MpsConnectionFailed",
          "MpsRpcFailure", "MpsServerNotReady", "MpsMaxClientsReached", "MpsMaxConnectionsReached"},
         Kind::kNoUsableDevice, Kind::kOther);
}

TEST(CudaError, AnUnknownOneIsNoDeviceAtFirstAndALossLater) {
  Expect({"Unknown"}, Kind::kNoUsableDevice, Kind::kLost);
}

TEST(CudaError, ACapturedGraphIsNoFaultOfTheDevice) {
  Expect({"StreamCaptureUnsupported", "StreamCaptureInvalidated", "StreamCaptureMerge",
          "StreamCaptureUnmatched", "StreamCaptureUnjoined", "StreamCaptureIsolation",
          "StreamCaptureImplicit", "CapturedEvent", "StreamCaptureWrongThread"},
         Kind::kCaptured, Kind::kCaptured);
}

TEST(CudaError, TheRestIsOfTheCall) {
  Expect({"InvalidValue", "InvalidResourceHandle", "LaunchOutOfResources", "NotSupported"},
         Kind::kOther, Kind::kOther);
  Expect({"MemoryAllocation"}, Kind::kOutOfMemory, Kind::kOutOfMemory);
  EXPECT_EQ(KindOfCudaError(0, true), Kind::kNone);
}

TEST(CudaError, AMachineWithoutADeviceIsNotOneWhoseDeviceCannotBeUsed) {
  EXPECT_TRUE(IsOfNoDevice(NumberOfCudaError("NoDevice"), 13000));
  for (const char* name : {"InsufficientDriver", "StubLibrary"}) {
    EXPECT_TRUE(IsOfNoDevice(NumberOfCudaError(name), 0));
    for (const int driver : {11080, 12080, 12090}) {
      EXPECT_FALSE(IsOfNoDevice(NumberOfCudaError(name), driver));
    }
  }
  for (const char* name : {"SystemNotReady", "SystemDriverMismatch", "DevicesUnavailable",
                           "InitializationError", "Unknown", "MemoryAllocation"}) {
    for (const int driver : {0, 13000})
      EXPECT_FALSE(IsOfNoDevice(NumberOfCudaError(name), driver)) << name;
  }
}

}  // namespace
}  // namespace cpshard
