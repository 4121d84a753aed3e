// A place to shard at, as a user asks for it: an executor, and memory that it reaches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/exec/device/pinned_blocks.h"
#include "core/exec/executor.h"
#include "core/exec/executor_kind.h"

namespace cpshard {

// Of the device, for one Run: with less it would be cut into too many parts.
inline constexpr int64_t kLeastCudaMemoryOfARun = int64_t{1} << 20;

struct PlaceOptions {
  ExecutorKind executor = ExecutorKind::kAuto;

  // The rest is of CUDA alone.
  int cuda_device = 0;                             // as the process sees them: CUDA_VISIBLE_DEVICES
  int64_t cuda_memory_bytes = int64_t{256} << 20;  // of the device, for all Runs at a time
  int64_t pinned_bytes = int64_t{1} << 30;         // of the host, for batches and shards; 0: none
  int64_t runs_at_once = 1;

  // Asked of each executor, of which there are as many as Runs at a time, with the blocks that
  // batches will lie in (null: none): what it says, MakePlace says, for kAuto too.
  std::function<absl::Status(Executor&, const std::shared_ptr<PinnedBlocks>&)> try_out;
};

struct Place {
  std::unique_ptr<Executor> executor;  // thread-safe; "cpu", "cuda:0"
  std::string reason;                  // why it is this one: one line, for people

  // Of BufferPoolOptions::blocks: pinned memory; null: ordinary memory.
  std::shared_ptr<PinnedBlocks> blocks;
};

// kAuto: a CUDA device where one can be used, else the CPU, and the reason says why.
// What MakeCudaExecutor and MakePinnedPool return, where CUDA was asked for by name, and for kAuto
// where the device is lost (IsDeviceLost): it is there, and a new process may have it.
// InvalidArgument: a device that is not there, less than 1 MB of the device for each Run at a time
// - of kAuto too, where there are devices; negative sizes and runs_at_once < 1, wherever.
absl::StatusOr<Place> MakePlace(const PlaceOptions& options);

}  // namespace cpshard
