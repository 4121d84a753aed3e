#include "core/exec/executor_kind.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

absl::string_view ToString(ExecutorKind kind) {
  switch (kind) {
    case ExecutorKind::kAuto:
      return "auto";
    case ExecutorKind::kCpu:
      return "cpu";
    case ExecutorKind::kCuda:
      return "cuda";
  }
  return "?";
}

absl::StatusOr<ExecutorKind> ParseExecutorKind(absl::string_view text) {
  for (const ExecutorKind kind : {ExecutorKind::kAuto, ExecutorKind::kCpu, ExecutorKind::kCuda}) {
    if (text == ToString(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("executor '", text, "' is none of auto, cpu and cuda"));
}

}  // namespace cpshard
