#include "core/batch/batch.h"

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

ValueView ViewValues(const Tensor& tensor) {
  return ValueView(tensor.spec.dtype, tensor.spec.dims, tensor.buffer.data());
}

PlanValues ViewNeeds(const Sharder& sharder, const BatchSpec& spec, const Batch& batch) {
  PlanValues values;
  for (const std::string& name : sharder.Needs(spec)) {
    const Tensor* tensor = batch.FindTensor(name);
    if (tensor != nullptr) values.emplace(name, ViewValues(*tensor));
  }
  return values;
}

Inspection InspectBatch(const ShardPlan& plan, const BatchSpec& spec, const Batch& batch,
                        Detail detail) {
  PlanValues values;
  for (const std::string& name : InspectionNeeds(spec)) {
    const Tensor* tensor = batch.FindTensor(name);
    const bool there =
        tensor != nullptr && static_cast<int64_t>(tensor->buffer.size()) == NumBytes(tensor->spec);
    if (there) values.emplace(name, ViewValues(*tensor));
  }
  return Inspect(plan, spec, values, detail);
}

absl::StatusOr<ShardPlan> PlanBatch(const Sharder& sharder, const Batch& batch,
                                    std::optional<int64_t> cp_size) {
  const BatchSpec spec = SpecOf(batch, cp_size);
  return sharder.Plan(spec, ViewNeeds(sharder, spec, batch));
}

}  // namespace cpshard
