#include "proto/executor_codec.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

v1::Executor EncodeExecutor(ExecutorKind kind) {
  switch (kind) {
    case ExecutorKind::kAuto:
      return v1::EXECUTOR_UNSPECIFIED;
    case ExecutorKind::kCpu:
      return v1::EXECUTOR_CPU;
    case ExecutorKind::kCuda:
      return v1::EXECUTOR_CUDA;
  }
  return v1::EXECUTOR_UNSPECIFIED;
}

absl::StatusOr<ExecutorKind> DecodeExecutor(v1::Executor executor) {
  switch (executor) {
    case v1::EXECUTOR_UNSPECIFIED:
      return ExecutorKind::kAuto;
    case v1::EXECUTOR_CPU:
      return ExecutorKind::kCpu;
    case v1::EXECUTOR_CUDA:
      return ExecutorKind::kCuda;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("executor ", static_cast<int>(executor),
                       " is none of 0 (the server's choice), 1 (cpu) and 2 (cuda)"));
  }
}

}  // namespace cpshard
