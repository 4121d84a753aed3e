// Executors as people name them: in a configuration, in a request, on a command line.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cpshard {

enum class ExecutorKind : uint8_t {
  kAuto,  // "auto": whoever carries it out chooses, and says what it chose
  kCpu,   // "cpu"
  kCuda,  // "cuda"; refused where there is none, never replaced by another
};

absl::string_view ToString(ExecutorKind kind);

// InvalidArgument, quoting the text and naming the three.
absl::StatusOr<ExecutorKind> ParseExecutorKind(absl::string_view text);

}  // namespace cpshard
