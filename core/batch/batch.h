// A batch: named tensors and scalars in order. The value that loaders send, shards are, and files
// hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/batch/buffer.h"
#include "core/plan/inspect.h"
#include "core/plan/sharder.h"
#include "core/plan/spec.h"

namespace cpshard {

// A dense, row-major tensor with its bytes (little endian; a bool is one byte, 0 or 1; 64-byte
// alignment is usual but not promised: readers of elements go through memcpy).
// Invariant: buffer.size() == NumBytes(spec). Copies share the bytes.
struct Tensor {
  TensorSpec spec;
  Buffer buffer;

  absl::Span<const std::byte> bytes() const { return {buffer.data(), buffer.size()}; }
};

struct Batch {
  std::vector<Tensor> tensors;
  std::vector<ScalarEntry> scalars;

  const Tensor* FindTensor(absl::string_view name) const;  // nullptr when absent
};

// The batch as a plan sees it.
BatchSpec SpecOf(const Batch& batch, std::optional<int64_t> cp_size);

// The digest of a batch. XXH3-64 over, per tensor in name order: name, 0, dtype name, 0, int64
// rank, int64 dims, bytes. It names a batch: a layout carries it, so that a layout is not used with
// another batch (D12). Scalars are not part of it.
uint64_t DigestOf(const Batch& batch);

// Values of a tensor, which must outlive the view.
ValueView ViewValues(const Tensor& tensor);

// The values that sharder.Needs names, of the tensors that the batch has; what is absent is for the
// layout to judge. The batch must outlive them.
PlanValues ViewNeeds(const Sharder& sharder, const BatchSpec& spec, const Batch& batch);

// Inspects a plan of this spec with the values of those tensors of the batch that have their bytes:
// numbers that need others are absent. Precondition: the spec passed ValidateSpec.
Inspection InspectBatch(const ShardPlan& plan, const BatchSpec& spec, const Batch& batch,
                        Detail detail = Detail::kDocuments);

// Reads what sharder.Needs asks for, then plans. Precondition: the batch passed ValidateSpec.
// Errors: those of Sharder::Plan.
absl::StatusOr<ShardPlan> PlanBatch(const Sharder& sharder, const Batch& batch,
                                    std::optional<int64_t> cp_size);

}  // namespace cpshard
