// One line of a corpus file as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace cpshard::conformance {

using Json = nlohmann::ordered_json;

// Strict JSON with one allowance: NaN, Infinity and -Infinity may stand where a number does, as
// Python's json module writes them.
// InvalidArgument: not JSON, a key that stands twice in one object, nesting beyond 64 levels.
absl::StatusOr<Json> ParseLine(absl::string_view line);

// A number, or one of the three non-finite ones (bare, or as a string "NaN", "Infinity",
// "-Infinity"). nullopt for anything else.
std::optional<double> ReadDouble(const Json& json);

// An integer that fits. nullopt for anything else, true and 1.0 included.
std::optional<int64_t> ReadInt64(const Json& json);

// A list of such integers. nullopt for anything else.
std::optional<std::vector<int64_t>> ReadInts(const Json& json);

// The member `key` of an object; nullptr when it is missing or null (contract D8), or when `json`
// is not an object.
const Json* Find(const Json& json, absl::string_view key);

// For messages: the JSON text, cut off where it is long.
std::string Excerpt(const Json& json);

}  // namespace cpshard::conformance
