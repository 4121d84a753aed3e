#include "tests/conformance/values.h"

#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/elements.h"

namespace cpshard::conformance {
namespace {

absl::Status Malformed(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("value '", name, "': ", what));
}

// Collects the elements of nested data and checks the nesting against the shape on the way.
class Flattener {
 public:
  Flattener(const std::vector<int64_t>& dims, DType dtype) : dims_(dims), dtype_(dtype) {
    for (int64_t dim : dims) empty_ = empty_ || dim == 0;
  }

  absl::Status Add(const Json& data, size_t depth) {
    if (depth == dims_.size()) {
      if (data.is_array())
        return absl::InvalidArgumentError("data is nested deeper than the shape");
      if (empty_) return absl::InvalidArgumentError("an empty tensor has elements");
      return AppendElement(data, dtype_, bytes_);
    }
    if (!data.is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data is not nested as the shape says: ", Excerpt(data), " at depth ", depth));
    }
    const auto size = static_cast<int64_t>(data.size());
    if (size != dims_[depth] && !(empty_ && size == 0)) {  // the reference writes [] for [2, 0] too
      return absl::InvalidArgumentError(absl::StrCat(
          "axis ", depth, " has ", size, " elements in data, ", dims_[depth], " in shape"));
    }
    for (const Json& element : data) CPSHARD_RETURN_IF_ERROR(Add(element, depth + 1));
    return absl::OkStatus();
  }

  std::vector<std::byte> TakeBytes() { return std::move(bytes_); }

 private:
  const std::vector<int64_t>& dims_;
  DType dtype_;
  bool empty_ = false;
  std::vector<std::byte> bytes_;
};

Buffer BufferOf(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  std::byte* data = owner->data();
  const size_t size = owner->size();
  return Buffer(std::move(owner), data, size);
}

absl::Status AppendScalar(absl::string_view name, const Json& json, Batch& batch) {
  if (json.is_null() || absl::EndsWith(name, "_group")) return absl::OkStatus();
  ScalarEntry entry{std::string(name), false};
  if (json.is_boolean()) {
    entry.value = json.get<bool>();
  } else if (const std::optional<int64_t> integer = ReadInt64(json)) {
    entry.value = *integer;
  } else if (json.is_string()) {
    if (json == "<cp_group>") return absl::OkStatus();
    entry.value = json.get<std::string>();
  } else if (json.is_number_float()) {
    entry.value = json.get<double>();
  } else {
    return Malformed(name, absl::StrCat(Excerpt(json), " is not a scalar of a batch"));
  }
  batch.scalars.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status AppendList(absl::string_view name, const Json& list, const Pick& pick, Batch& batch) {
  if (!list.is_array()) return Malformed(name, "'list' is not an array");
  for (size_t i = 0; i < list.size(); ++i) {
    CPSHARD_RETURN_IF_ERROR(AppendValue(absl::StrCat(name, ".", i), list[i], pick, batch));
  }
  return absl::OkStatus();
}

absl::Status AppendStruct(absl::string_view name, const Json& record, const Pick& pick,
                          Batch& batch) {
  for (const auto& [field, value] : record.items()) {
    if (field == "struct") continue;
    const std::string full = absl::StrCat(name, ".", field);
    CPSHARD_RETURN_IF_ERROR(value.is_object() ? AppendValue(full, value, pick, batch)
                                              : AppendScalar(full, value, batch));
  }
  return absl::OkStatus();
}

// One of the values of `choices`, a list under `key`.
absl::Status AppendChoice(absl::string_view name, absl::string_view key, const Json& choices,
                          std::optional<int64_t> index, const Pick& pick, Batch& batch) {
  if (!index) return Malformed(name, absl::StrCat("'", key, "', but here all have one value"));
  if (!choices.is_array() || *index >= static_cast<int64_t>(choices.size())) {
    return Malformed(name, absl::StrCat("'", key, "' has no number ", *index));
  }
  return AppendValue(name, choices[*index], pick, batch);
}

}  // namespace

absl::StatusOr<Tensor> DecodeTensor(absl::string_view name, const Json& json) {
  const Json* dtype_name = Find(json, "dtype");
  const Json* shape = Find(json, "shape");
  const Json* data = Find(json, "data");
  if (dtype_name == nullptr || shape == nullptr || data == nullptr || !dtype_name->is_string() ||
      !shape->is_array()) {
    return Malformed(name, "a tensor needs dtype, shape and data");
  }
  const std::optional<DType> dtype = ParseDType(dtype_name->get_ref<const std::string&>());
  if (!dtype) return Malformed(name, absl::StrCat("unknown dtype ", Excerpt(*dtype_name)));
  Tensor tensor;
  tensor.spec.name = std::string(name);
  tensor.spec.dtype = *dtype;
  for (const Json& dim : *shape) {
    const std::optional<int64_t> size = ReadInt64(dim);
    if (!size || *size < 0) return Malformed(name, absl::StrCat("bad shape ", Excerpt(*shape)));
    tensor.spec.dims.push_back(*size);
  }
  Flattener flattener(tensor.spec.dims, *dtype);
  if (absl::Status status = flattener.Add(*data, 0); !status.ok()) {
    return Malformed(name, status.message());
  }
  tensor.buffer = BufferOf(flattener.TakeBytes());
  return tensor;
}

Tensor IntTensor(absl::string_view name, DType dtype, std::vector<int64_t> dims,
                 absl::Span<const int64_t> values) {
  const int64_t item = ItemSize(dtype);
  std::vector<std::byte> bytes(values.size() * item);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(&bytes[i * item], &values[i], item);
  return Tensor{{std::string(name), dtype, std::move(dims)}, BufferOf(std::move(bytes))};
}

absl::Status AppendValue(absl::string_view name, const Json& json, const Pick& pick, Batch& batch) {
  if (json.is_null()) return absl::OkStatus();
  if (json.is_object()) {
    if (json.contains("struct")) return AppendStruct(name, json, pick, batch);
    if (json.contains("dtype")) {
      CPSHARD_ASSIGN_OR_RETURN(Tensor tensor, DecodeTensor(name, json));
      batch.tensors.push_back(std::move(tensor));
      return absl::OkStatus();
    }
    if (json.size() == 1 && json.contains("value")) return AppendScalar(name, json["value"], batch);
    if (json.size() == 1 && json.contains("list")) {
      return AppendList(name, json["list"], pick, batch);
    }
    if (json.size() == 1 && json.contains("per_rank")) {
      return AppendChoice(name, "per_rank", json["per_rank"], pick.rank, pick, batch);
    }
    if (json.size() == 1 && json.contains("per_replica")) {
      return AppendChoice(name, "per_replica", json["per_replica"], pick.replica, pick, batch);
    }
  }
  return Malformed(name, absl::StrCat("unknown encoding ", Excerpt(json)));
}

absl::StatusOr<Batch> DecodeValues(const Json& object, const Pick& pick) {
  if (!object.is_object()) return absl::InvalidArgumentError("values must stand in an object");
  Batch batch;
  for (const auto& [name, value] : object.items()) {
    CPSHARD_RETURN_IF_ERROR(AppendValue(name, value, pick, batch));
  }
  std::set<std::string> names;
  for (const Tensor& tensor : batch.tensors) {
    if (!names.insert(tensor.spec.name).second) return Malformed(tensor.spec.name, "comes twice");
  }
  for (const ScalarEntry& scalar : batch.scalars) {
    if (!names.insert(scalar.name).second) return Malformed(scalar.name, "comes twice");
  }
  return batch;
}

std::optional<std::string> FindPerRank(const Json& object) {
  for (const auto& [name, value] : object.items()) {
    if (Find(value, "per_rank") != nullptr) return name;
  }
  return std::nullopt;
}

}  // namespace cpshard::conformance
