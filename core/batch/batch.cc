#include "core/batch/batch.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

template <typename T>
void Widen(const Tensor& tensor, std::vector<int64_t>& values) {
  const std::byte* bytes = tensor.buffer.data();
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = value;
  }
}

}  // namespace

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

absl::StatusOr<IntTensor> ReadInts(const Tensor& tensor) {
  IntTensor ints{tensor.spec.dims, std::vector<int64_t>(NumElements(tensor.spec))};
  switch (tensor.spec.dtype) {
    case DType::kBool:
    case DType::kU8:
      Widen<uint8_t>(tensor, ints.values);
      return ints;
    case DType::kI8:
      Widen<int8_t>(tensor, ints.values);
      return ints;
    case DType::kI16:
      Widen<int16_t>(tensor, ints.values);
      return ints;
    case DType::kI32:
      Widen<int32_t>(tensor, ints.values);
      return ints;
    case DType::kI64:
      Widen<int64_t>(tensor, ints.values);
      return ints;
    default:
      return absl::InvalidArgumentError(absl::StrCat("stream '", tensor.spec.name, "' of dtype ",
                                                     DTypeName(tensor.spec.dtype),
                                                     " must be of an integer dtype"));
  }
}

absl::StatusOr<ShardPlan> PlanBatch(const Sharder& sharder, const Batch& batch,
                                    std::optional<int64_t> cp_size) {
  const BatchSpec spec = SpecOf(batch, cp_size);
  PlanValues values;
  for (const std::string& name : sharder.Needs(spec)) {
    const Tensor* tensor = batch.FindTensor(name);
    if (tensor == nullptr) continue;  // absent is for the layout to judge
    CPSHARD_ASSIGN_OR_RETURN(IntTensor ints, ReadInts(*tensor));
    values.emplace(name, std::move(ints));
  }
  return sharder.Plan(spec, values);
}

}  // namespace cpshard
