#include "tests/conformance/input.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard::conformance {
namespace {

constexpr int64_t kMaxReplicas = 64;

// Moves a member out of the case; null when it is missing.
Json Take(Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return nullptr;
  Json value = std::move(*found);
  json.erase(found);
  return value;
}

absl::Status Malformed(absl::string_view field, absl::string_view expected, const Json& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("field '", field, "' must be ", expected, ", got ", Excerpt(got)));
}

absl::StatusOr<std::string> TakeText(Json& json, const char* key) {
  const Json value = Take(json, key);
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    return Malformed(key, "a string", value);
  }
  return value.get<std::string>();
}

absl::StatusOr<Json> TakeObject(Json& json, const char* key) {
  Json value = Take(json, key);
  if (!value.is_object()) return Malformed(key, "an object", value);
  return value;
}

// Members of `over` replace those of `base`; objects are merged.
void LayOver(Json& base, const Json& over) {
  for (const auto& [key, value] : over.items()) {
    const bool merge = value.is_object() && base.contains(key) && base[key].is_object();
    if (merge) {
      LayOver(base[key], value);
    } else {
      base[key] = value;
    }
  }
}

absl::Status TakeSizes(Json& json, Input& input) {
  if (!json.contains("cp_size")) return absl::InvalidArgumentError("field 'cp_size' is missing");
  if (const Json cp_size = Take(json, "cp_size"); !cp_size.is_null()) {
    input.cp_size = ReadInt64(cp_size);
    if (!input.cp_size) return Malformed("cp_size", "an integer or null", cp_size);
  }
  if (const Json replicas = Take(json, "dp_size"); !replicas.is_null()) {
    input.dp_size = ReadInt64(replicas);
    const bool counts = input.dp_size.has_value() && *input.dp_size >= 1 &&
                        *input.dp_size <= kMaxReplicas && input.cp_size.has_value();
    if (!counts) return Malformed("dp_size", "a small count, with a cp_size", replicas);
  }
  return absl::OkStatus();
}

absl::StatusOr<Input> TakeInput(Json& json) {
  Input input;
  CPSHARD_ASSIGN_OR_RETURN(input.id, TakeText(json, "id"));
  CPSHARD_ASSIGN_OR_RETURN(input.backend, TakeText(json, "backend"));
  CPSHARD_RETURN_IF_ERROR(TakeSizes(json, input));
  CPSHARD_ASSIGN_OR_RETURN(input.args, TakeObject(json, "args"));
  CPSHARD_ASSIGN_OR_RETURN(input.batch, TakeObject(json, "batch"));
  if (Json mask = Take(json, "loss_mask_arg"); !mask.is_null()) {
    input.loss_mask_arg = std::move(mask);
  }
  return input;
}

}  // namespace

absl::StatusOr<Case> SplitCase(Json json) {
  if (!json.is_object()) return absl::InvalidArgumentError("a case must be an object");
  Json ranks = Take(json, "ranks");
  Json product = Take(json, "product");
  CPSHARD_ASSIGN_OR_RETURN(Input input, TakeInput(json));
  const Json words = Take(json, "words");
  if (!words.is_null() && !words.is_boolean()) return Malformed("words", "a bool", words);
  for (const char* comment : {"title", "source"}) Take(json, comment);
  if (!json.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown field '", json.begin().key(), "'"));
  }

  std::string skip = words == true ? "described in words" : "";
  bool comparable = true;
  if (product.is_object() && product.contains("expect") && product["expect"].is_null()) {
    comparable = false;
    const Json* why = Find(product, "why");
    skip = "cannot be sent: expect is null";
    if (why != nullptr) absl::StrAppend(&skip, ", ", why->dump());
  }
  if (const Json* expect = Find(product, "expect")) {
    const Json* args = Find(*expect, "args");
    if (args != nullptr && args->is_object()) LayOver(input.args, *args);
  }
  return Case{std::move(input), SealedExpectation(std::move(ranks), std::move(product)),
              std::move(skip), words == true, comparable};
}

}  // namespace cpshard::conformance
