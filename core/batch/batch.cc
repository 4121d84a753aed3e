#include "core/batch/batch.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
const Tensor* Batch::FindTensor(absl::string_view name) const {
  for (const Tensor& tensor : tensors) {
    if (tensor.spec.name == name) return &tensor;
  }
  return nullptr;
}

BatchSpec SpecOf(const Batch& batch, std::optional<int64_t> cp_size) {
  BatchSpec spec;
  spec.cp_size = cp_size;
  spec.scalars = batch.scalars;
  spec.tensors.reserve(batch.tensors.size());
  for (const Tensor& tensor : batch.tensors) spec.tensors.push_back(tensor.spec);
  return spec;
}

absl::StatusOr<IntView> ViewInts(const Tensor& tensor) {
  if (IsFloating(tensor.spec.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", tensor.spec.name, "' of dtype ",
                                                   DTypeName(tensor.spec.dtype),
                                                   " must be of an integer dtype"));
  }
  return IntView(tensor.spec.dtype, tensor.spec.dims, tensor.buffer.data());
}

absl::StatusOr<PlanValues> ViewNeeds(const Sharder& sharder, const BatchSpec& spec,
                                     const Batch& batch) {
  PlanValues values;
  for (const std::string& name : sharder.Needs(spec)) {
    const Tensor* tensor = batch.FindTensor(name);
    if (tensor == nullptr) continue;
    CPSHARD_ASSIGN_OR_RETURN(IntView ints, ViewInts(*tensor));
    values.emplace(name, std::move(ints));
  }
  return values;
}

absl::StatusOr<ShardPlan> PlanBatch(const Sharder& sharder, const Batch& batch,
                                    std::optional<int64_t> cp_size) {
  const BatchSpec spec = SpecOf(batch, cp_size);
  CPSHARD_ASSIGN_OR_RETURN(const PlanValues values, ViewNeeds(sharder, spec, batch));
  return sharder.Plan(spec, values);
}

}  // namespace cpshard
