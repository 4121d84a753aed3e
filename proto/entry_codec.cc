#include "proto/entry_codec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::StatusOr<DType> DecodeDType(const v1::Entry& entry) {
  switch (entry.dtype()) {
    case v1::DTYPE_BOOL:
      return DType::kBool;
    case v1::DTYPE_U8:
      return DType::kU8;
    case v1::DTYPE_I8:
      return DType::kI8;
    case v1::DTYPE_I16:
      return DType::kI16;
    case v1::DTYPE_I32:
      return DType::kI32;
    case v1::DTYPE_I64:
      return DType::kI64;
    case v1::DTYPE_F16:
      return DType::kF16;
    case v1::DTYPE_BF16:
      return DType::kBF16;
    case v1::DTYPE_F32:
      return DType::kF32;
    case v1::DTYPE_F64:
      return DType::kF64;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "stream '", entry.name(), "' has the unknown dtype ", static_cast<int>(entry.dtype()),
          "; known are BOOL, U8, I8, I16, I32, I64, F16, BF16, F32 and F64"));
  }
}

absl::StatusOr<Scalar> DecodeScalar(const v1::Entry& entry) {
  if (entry.dtype() != v1::DTYPE_UNSPECIFIED || entry.dims_size() != 0 || entry.offset() != 0 ||
      entry.nbytes() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry '", entry.name(), "' is both a tensor and a scalar"));
  }
  const v1::Scalar& scalar = entry.scalar();
  switch (scalar.value_case()) {
    case v1::Scalar::kBoolValue:
      return Scalar(scalar.bool_value());
    case v1::Scalar::kIntValue:
      return Scalar(static_cast<int64_t>(scalar.int_value()));
    case v1::Scalar::kFloatValue:
      return Scalar(scalar.float_value());
    case v1::Scalar::kStringValue:
      return Scalar(scalar.string_value());
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("scalar '", entry.name(), "' has no value; leave an absent entry out"));
  }
}

struct Range {
  uint64_t begin, end;
  const std::string* name;
};

absl::Status CheckOverlap(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      return absl::InvalidArgumentError(
          absl::StrCat("streams '", *ranges[i - 1].name, "' and '", *ranges[i].name,
                       "' overlap in the body at byte ", ranges[i].begin));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(const v1::Entry& entry, const TensorSpec& spec, uint64_t body_size) {
  const uint64_t bytes = NumBytes(spec);
  if (entry.nbytes() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", spec.name, "' states nbytes ",
                                                   entry.nbytes(), ", but ", DTypeName(spec.dtype),
                                                   DimsString(spec.dims), " has ", bytes));
  }
  if (bytes == 0) return absl::OkStatus();
  if (entry.offset() % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", spec.name, "' lies at offset ",
                                                   entry.offset(),
                                                   ", which is not a multiple of 64"));
  }
  if (entry.offset() > body_size || bytes > body_size - entry.offset()) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", spec.name, "' lies at bytes ",
                                                   entry.offset(), " ... +", bytes,
                                                   ", beyond the end at ", body_size));
  }
  return absl::OkStatus();
}

}  // namespace

v1::DType EncodeDType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return v1::DTYPE_BOOL;
    case DType::kU8:
      return v1::DTYPE_U8;
    case DType::kI8:
      return v1::DTYPE_I8;
    case DType::kI16:
      return v1::DTYPE_I16;
    case DType::kI32:
      return v1::DTYPE_I32;
    case DType::kI64:
      return v1::DTYPE_I64;
    case DType::kF16:
      return v1::DTYPE_F16;
    case DType::kBF16:
      return v1::DTYPE_BF16;
    case DType::kF32:
      return v1::DTYPE_F32;
    case DType::kF64:
      return v1::DTYPE_F64;
  }
  return v1::DTYPE_UNSPECIFIED;
}

void EncodeScalar(const ScalarEntry& scalar, v1::Entry* entry) {
  entry->set_name(scalar.name);
  v1::Scalar* value = entry->mutable_scalar();
  if (const bool* b = std::get_if<bool>(&scalar.value)) value->set_bool_value(*b);
  if (const int64_t* i = std::get_if<int64_t>(&scalar.value)) value->set_int_value(*i);
  if (const double* f = std::get_if<double>(&scalar.value)) value->set_float_value(*f);
  if (const std::string* s = std::get_if<std::string>(&scalar.value)) value->set_string_value(*s);
}

void EncodeSpec(const TensorSpec& spec, v1::Entry* entry) {
  entry->set_name(spec.name);
  entry->set_dtype(EncodeDType(spec.dtype));
  entry->mutable_dims()->Add(spec.dims.begin(), spec.dims.end());
}

void EncodeCut(const StreamCut& cut, v1::Entry* entry) {
  entry->set_extent(cut.extent == Extent::kLocal    ? v1::EXTENT_LOCAL
                    : cut.extent == Extent::kPadded ? v1::EXTENT_PADDED
                                                    : v1::EXTENT_WHOLE);
  entry->set_seq_axis(cut.extent == Extent::kWhole ? 0 : cut.seq_axis);
}

absl::StatusOr<StreamCut> DecodeCut(const v1::Entry& entry) {
  const int axis = static_cast<int>(entry.seq_axis());
  switch (entry.extent()) {
    case v1::EXTENT_LOCAL:
    case v1::EXTENT_PADDED:
      if (axis < 0 || axis >= entry.dims_size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("stream '", entry.name(), "' has no axis ", entry.seq_axis()));
      }
      return StreamCut{entry.extent() == v1::EXTENT_LOCAL ? Extent::kLocal : Extent::kPadded, axis};
    case v1::EXTENT_WHOLE:
      return StreamCut{Extent::kWhole, axis};
    default:
      return absl::InvalidArgumentError(absl::StrCat("stream '", entry.name(), "' has no extent"));
  }
}

absl::StatusOr<BatchSpec> DecodeSpecs(const Entries& entries) {
  BatchSpec spec;
  for (const v1::Entry& entry : entries) {
    if (entry.has_scalar()) {
      CPSHARD_ASSIGN_OR_RETURN(Scalar value, DecodeScalar(entry));
      spec.scalars.push_back({entry.name(), std::move(value)});
      continue;
    }
    CPSHARD_ASSIGN_OR_RETURN(const DType dtype, DecodeDType(entry));
    spec.tensors.push_back({entry.name(), dtype, {entry.dims().begin(), entry.dims().end()}});
  }
  return spec;
}

absl::StatusOr<std::vector<TensorPlace>> CheckPlaces(const Entries& entries, const BatchSpec& spec,
                                                     uint64_t body_size, Sharing sharing,
                                                     bool specs_alone) {
  std::vector<TensorPlace> places;
  std::vector<Range> ranges;
  size_t next = 0;  // specs are in the order of the entries that are tensors
  for (const v1::Entry& entry : entries) {
    if (entry.has_scalar()) continue;
    const TensorSpec& tensor = spec.tensors[next++];
    places.emplace_back();
    if (specs_alone && entry.nbytes() == 0) continue;
    CPSHARD_RETURN_IF_ERROR(CheckPlace(entry, tensor, body_size));
    if (entry.nbytes() == 0) continue;
    places.back() = {static_cast<int64_t>(entry.offset()), static_cast<int64_t>(entry.nbytes())};
    ranges.push_back({entry.offset(), entry.offset() + entry.nbytes(), &tensor.name});
  }
  if (sharing == Sharing::kNone) CPSHARD_RETURN_IF_ERROR(CheckOverlap(std::move(ranges)));
  return places;
}

absl::StatusOr<Batch> DecodeTensors(const Entries& entries, const BatchSpec& spec,
                                    const Buffer& body, Sharing sharing, bool specs_alone) {
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<TensorPlace> places,
                           CheckPlaces(entries, spec, body.size(), sharing, specs_alone));
  Batch batch;
  batch.scalars = spec.scalars;
  for (size_t i = 0; i < places.size(); ++i) {
    const TensorSpec& tensor = spec.tensors[i];
    const auto [offset, nbytes] = places[i];
    if (nbytes == 0 && NumBytes(tensor) != 0) continue;
    batch.tensors.push_back({tensor, nbytes > 0 ? body.Slice(offset, nbytes) : Buffer()});
  }
  return batch;
}

}  // namespace cpshard
