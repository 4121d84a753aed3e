#include "tests/cuda/error_numbers.h"

#include <cuda_runtime_api.h>

#include <map>

namespace cpshard {

int NumberOfCudaError(const std::string& name) {
  static const auto* const numbers = new std::map<std::string, int>{
#define CPSHARD_NUMBER(name) {#name, cudaError##name}
      CPSHARD_NUMBER(MemoryAllocation),
      CPSHARD_NUMBER(InitializationError),
      CPSHARD_NUMBER(StubLibrary),
      CPSHARD_NUMBER(InsufficientDriver),
      CPSHARD_NUMBER(CallRequiresNewerDriver),
      CPSHARD_NUMBER(DevicesUnavailable),
      CPSHARD_NUMBER(IncompatibleDriverContext),
      CPSHARD_NUMBER(InvalidValue),
      CPSHARD_NUMBER(InvalidDeviceFunction),
      CPSHARD_NUMBER(NoDevice),
      CPSHARD_NUMBER(InvalidDevice),
      CPSHARD_NUMBER(DeviceNotLicensed),
      CPSHARD_NUMBER(StartupFailure),
      CPSHARD_NUMBER(InvalidKernelImage),
      CPSHARD_NUMBER(DeviceUninitialized),
      CPSHARD_NUMBER(NoKernelImageForDevice),
      CPSHARD_NUMBER(ECCUncorrectable),
      CPSHARD_NUMBER(DeviceAlreadyInUse),
      CPSHARD_NUMBER(InvalidPtx),
      CPSHARD_NUMBER(NvlinkUncorrectable),
      CPSHARD_NUMBER(JitCompilerNotFound),
      CPSHARD_NUMBER(UnsupportedPtxVersion),
      CPSHARD_NUMBER(JitCompilationDisabled),
      CPSHARD_NUMBER(UnsupportedExecAffinity),
      CPSHARD_NUMBER(OperatingSystem),
      CPSHARD_NUMBER(InvalidResourceHandle),
      CPSHARD_NUMBER(IllegalAddress),
      CPSHARD_NUMBER(LaunchOutOfResources),
      CPSHARD_NUMBER(LaunchTimeout),
      CPSHARD_NUMBER(ContextIsDestroyed),
      CPSHARD_NUMBER(Assert),
      CPSHARD_NUMBER(HardwareStackError),
      CPSHARD_NUMBER(IllegalInstruction),
      CPSHARD_NUMBER(MisalignedAddress),
      CPSHARD_NUMBER(InvalidAddressSpace),
      CPSHARD_NUMBER(InvalidPc),
      CPSHARD_NUMBER(LaunchFailure),
      CPSHARD_NUMBER(NotSupported),
      CPSHARD_NUMBER(SystemNotReady),
      CPSHARD_NUMBER(SystemDriverMismatch),
      CPSHARD_NUMBER(CompatNotSupportedOnDevice),
      CPSHARD_NUMBER(MpsConnectionFailed),
      CPSHARD_NUMBER(MpsRpcFailure),
      CPSHARD_NUMBER(MpsServerNotReady),
      CPSHARD_NUMBER(MpsMaxClientsReached),
      CPSHARD_NUMBER(MpsMaxConnectionsReached),
      CPSHARD_NUMBER(MpsClientTerminated),
      CPSHARD_NUMBER(StreamCaptureUnsupported),
      CPSHARD_NUMBER(StreamCaptureInvalidated),
      CPSHARD_NUMBER(StreamCaptureMerge),
      CPSHARD_NUMBER(StreamCaptureUnmatched),
      CPSHARD_NUMBER(StreamCaptureUnjoined),
      CPSHARD_NUMBER(StreamCaptureIsolation),
      CPSHARD_NUMBER(StreamCaptureImplicit),
      CPSHARD_NUMBER(CapturedEvent),
      CPSHARD_NUMBER(StreamCaptureWrongThread),
      CPSHARD_NUMBER(ExternalDevice),
      CPSHARD_NUMBER(Contained),
      CPSHARD_NUMBER(TensorMemoryLeak),
      CPSHARD_NUMBER(Unknown),
#undef CPSHARD_NUMBER
  };
  return numbers->at(name);
}

}  // namespace cpshard
