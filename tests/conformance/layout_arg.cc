#include "tests/conformance/layout_arg.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard::conformance {
namespace {

absl::Status Malformed(absl::string_view field, absl::string_view expected, const Json& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("args.", field, " must be ", expected, ", got ", Excerpt(got)));
}

// Lists of one length.
std::optional<IntArray> ReadMatrix(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  IntArray matrix{{static_cast<int64_t>(json.size()), 0}, {}};
  for (const Json& element : json) {
    const std::optional<std::vector<int64_t>> row = ReadInts(element);
    const auto columns = row ? static_cast<int64_t>(row->size()) : -1;
    if (columns < 0 || (!matrix.values.empty() && columns != matrix.shape[1])) return std::nullopt;
    matrix.shape[1] = columns;
    matrix.values.insert(matrix.values.end(), row->begin(), row->end());
  }
  return matrix;
}

absl::Status ReadIndices(const Json& json, LayoutArg& layout) {
  const absl::Status malformed = Malformed("layout.indices", "a list of integers per rank", json);
  if (!json.is_array() || json.empty()) return malformed;
  for (const Json& element : json) {
    std::optional<std::vector<int64_t>> rank = ReadInts(element);
    if (!rank) return malformed;
    layout.indices.push_back(*std::move(rank));
  }
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& name, const Json& json, LayoutArg& layout) {
  const std::string field = absl::StrCat("layout.", name);
  if (name == "original" || name == "padded") {
    const std::optional<int64_t> number = ReadInt64(json);
    if (!number) return Malformed(field, "an integer", json);
    (name == "original" ? layout.fields.original_seq_len : layout.fields.padded_seq_len) = number;
  } else if (name == "indices") {
    return ReadIndices(json, layout);
  } else if (name == "indices_dtype") {
    if (json != "i32" && json != "i64") return Malformed(field, "i32 or i64", json);
    layout.indices_dtype = json == "i32" ? DType::kI32 : DType::kI64;
  } else if (name == "row_shape") {
    std::optional<std::vector<int64_t>> shape = ReadInts(json);
    if (!shape) return Malformed(field, "a list of integers", json);
    const auto axes = static_cast<int64_t>(shape->size());
    layout.fields.input_row_shape = IntArray{{axes}, *std::move(shape)};
  } else if (name == "input_token_stream_positions") {
    layout.fields.input_token_stream_positions = ReadMatrix(json);
    if (!layout.fields.input_token_stream_positions) return Malformed(field, "rows", json);
  } else {
    return Malformed(field, "no field of a layout", json);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LayoutArg> ReadLayoutArg(const Json& args) {
  LayoutArg layout;
  if (const Json* map = Find(args, "map")) {
    if (*map != "identity" && *map != "contiguous" && *map != "round_robin") {
      return Malformed("map", "identity, contiguous or round_robin", *map);
    }
    layout.map = map->get<std::string>();
  }
  const Json* fields = Find(args, "layout");
  if (fields == nullptr) return layout;
  if (!fields->is_object()) return Malformed("layout", "an object", *fields);
  for (const auto& [name, value] : fields->items()) {
    if (!value.is_null()) CPSHARD_RETURN_IF_ERROR(ReadField(name, value, layout));
  }
  return layout;
}

}  // namespace cpshard::conformance
