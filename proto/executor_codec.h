// Executors on the wire. Used inside proto/ only.
#pragma once

#include "absl/status/statusor.h"
#include "core/exec/executor_kind.h"
#include "cpshard/v1/types.pb.h"

namespace cpshard {

v1::Executor EncodeExecutor(ExecutorKind kind);  // kAuto: EXECUTOR_UNSPECIFIED

// Unspecified: kAuto. InvalidArgument, with the number: one of a newer peer, which must not become
// another executor than it asked for.
absl::StatusOr<ExecutorKind> DecodeExecutor(v1::Executor executor);

}  // namespace cpshard
