#include "core/exec/cuda_error.h"

#include "absl/strings/cord.h"

namespace cpshard {
namespace {

constexpr char kNoDevice[] = "cpshard/no-device";  // payload of a status

// After these nothing goes on in the context: CUDA's documentation asks for a new process.
bool IsSticky(int error) {
  switch (error) {
    case 214:  // ECCUncorrectable
    case 220:  // NvlinkUncorrectable
    case 226:  // Contained
    case 700:  // IllegalAddress
    case 702:  // LaunchTimeout
    case 709:  // ContextIsDestroyed
    case 710:  // Assert
    case 714:  // HardwareStackError
    case 715:  // IllegalInstruction
    case 716:  // MisalignedAddress
    case 717:  // InvalidAddressSpace
    case 718:  // InvalidPc
    case 719:  // LaunchFailure
    case 721:  // TensorMemoryLeak
    case 810:  // MpsClientTerminated
    case 911:  // ExternalDevice
      return true;
    default:
      return false;
  }
}

// Driver, runtime, code and device do not go together: that stays so.
bool IsMismatch(int error) {
  switch (error) {
    case 34:   // StubLibrary
    case 35:   // InsufficientDriver
    case 36:   // CallRequiresNewerDriver
    case 98:   // InvalidDeviceFunction
    case 100:  // NoDevice
    case 200:  // InvalidKernelImage
    case 209:  // NoKernelImageForDevice
    case 218:  // InvalidPtx
    case 221:  // JitCompilerNotFound
    case 222:  // UnsupportedPtxVersion
    case 223:  // JitCompilationDisabled
    case 803:  // SystemDriverMismatch
    case 804:  // CompatNotSupportedOnDevice
      return true;
    default:
      return false;
  }
}

// A context could not be made: after a fork, with a device that another process has alone, with
// services that are not up (fabric manager, MPS). 999 is Unknown: the driver does not say.
bool IsOfCreation(int error) {
  switch (error) {
    case 3:    // InitializationError
    case 46:   // DevicesUnavailable
    case 49:   // IncompatibleDriverContext
    case 101:  // InvalidDevice
    case 102:  // DeviceNotLicensed
    case 127:  // StartupFailure
    case 201:  // DeviceUninitialized
    case 216:  // DeviceAlreadyInUse
    case 224:  // UnsupportedExecAffinity
    case 304:  // OperatingSystem
    case 802:  // SystemNotReady
    case 805:  // MpsConnectionFailed
    case 806:  // MpsRpcFailure
    case 807:  // MpsServerNotReady
    case 808:  // MpsMaxClientsReached
    case 809:  // MpsMaxConnectionsReached
    case 999:  // Unknown
      return true;
    default:
      return false;
  }
}

}  // namespace

CudaErrorKind KindOfCudaError(int error, bool is_open) {
  if (error == 0) return CudaErrorKind::kNone;
  if (error == 2) return CudaErrorKind::kOutOfMemory;  // MemoryAllocation
  if (error >= 900 && error <= 908) return CudaErrorKind::kCaptured;
  if (IsSticky(error) || (is_open && error == 999)) return CudaErrorKind::kLost;
  if (IsMismatch(error) || (!is_open && IsOfCreation(error))) {
    return CudaErrorKind::kNoUsableDevice;
  }
  return CudaErrorKind::kOther;
}

bool IsOfNoDevice(int error, int driver) {
  switch (error) {
    case 34:  // StubLibrary: a toolkit's, in place of a driver's
    case 35:  // InsufficientDriver: none is older than any
      return driver == 0;
    case 100:  // NoDevice
      return true;
    default:
      return false;
  }
}

absl::Status NoDevice(absl::Status status) {
  status.SetPayload(kNoDevice, absl::Cord());
  return status;
}

bool IsNoDevice(const absl::Status& status) { return status.GetPayload(kNoDevice).has_value(); }

}  // namespace cpshard
