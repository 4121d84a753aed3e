#include "tests/conformance/vectors.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/json.h"

namespace cpshard::conformance {
namespace {

bool IsLists(const Json& json) {
  if (!json.is_array()) return false;
  for (const Json& element : json) {
    if (!ReadInts(element)) return false;
  }
  return true;
}

bool IsTexts(const Json& json) {
  if (!json.is_array()) return false;
  for (const Json& element : json) {
    if (!element.is_string()) return false;
  }
  return true;
}

bool IsInts(const Json& json) { return ReadInts(json).has_value(); }
bool IsInt(const Json& json) { return ReadInt64(json).has_value(); }
bool IsBool(const Json& json) { return json.is_boolean(); }
bool IsName(const Json& json) { return json.is_string(); }
bool IsIntsOrNull(const Json& json) { return json.is_null() || IsInts(json); }

struct Field {
  absl::string_view name;
  bool (*is_legal)(const Json&);
};

constexpr Field kFields[] = {
    {"name", IsName},        {"q_ranges", IsLists},   {"k_ranges", IsLists},
    {"mask_types", IsTexts}, {"total_seqlen", IsInt}, {"chunk_size", IsInt},
    {"cp_size", IsInt},      {"uneven", IsBool},      {"areas", IsInts},
    {"partitions", IsLists}, {"loads", IsInts},       {"split_sizes", IsIntsOrNull},
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadVectorNames(absl::string_view text) {
  CPSHARD_ASSIGN_OR_RETURN(const Json vectors, ParseLine(text));
  if (!vectors.is_array()) return absl::InvalidArgumentError("not a list of vectors");
  std::vector<std::string> names;
  for (const Json& vector : vectors) {
    for (const Field& field : kFields) {
      const std::string name(field.name);
      const bool legal =
          vector.is_object() && vector.contains(name) && field.is_legal(vector[name]);
      if (legal) continue;
      return absl::InvalidArgumentError(absl::StrCat("vector ", names.size(), ": field '", name,
                                                     "' is missing or of another type"));
    }
    names.push_back(vector["name"].get<std::string>());
  }
  return names;
}

}  // namespace cpshard::conformance
