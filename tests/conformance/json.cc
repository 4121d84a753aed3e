#include "tests/conformance/json.h"

#include <cctype>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cpshard::conformance {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kExcerptBytes = 80;
constexpr absl::string_view kNonFinite[] = {"NaN", "Infinity", "-Infinity"};

// Quotes the bare non-finite numbers, which JSON does not have.
std::string QuoteNonFinite(absl::string_view line) {
  std::string result;
  result.reserve(line.size());
  bool in_string = false;
  for (size_t i = 0; i < line.size();) {
    if (in_string && line[i] == '\\' && i + 1 < line.size()) {
      result.append(line.data() + i, 2);
      i += 2;
      continue;
    }
    if (line[i] == '"') in_string = !in_string;
    absl::string_view token;
    if (!in_string) {
      for (absl::string_view candidate : kNonFinite) {
        if (absl::StartsWith(line.substr(i), candidate)) token = candidate;
      }
    }
    if (token.empty()) {
      result.push_back(line[i++]);
    } else {
      absl::StrAppend(&result, "\"", token, "\"");
      i += token.size();
    }
  }
  return result;
}

// Watches the parser for what nlohmann accepts and a case must not have.
class Watch {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) too_deep_ = true;
    if (too_deep_) return false;
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end && !keys_.empty()) keys_.pop_back();
    if (event == Event::key && !keys_.empty()) {
      const std::string key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second && repeated_.empty()) repeated_ = key;
    }
    return true;
  }

  absl::Status status() const {
    if (too_deep_) return absl::InvalidArgumentError(absl::StrCat("deeper than ", kMaxDepth));
    if (!repeated_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the key '", repeated_, "' stands twice"));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string repeated_;
  bool too_deep_ = false;
};

}  // namespace

absl::StatusOr<Json> ParseLine(absl::string_view line) {
  Watch watch;
  Json json = Json::parse(
      QuoteNonFinite(line),
      [&watch](int depth, Json::parse_event_t event, Json& parsed) {
        return watch(depth, event, parsed);
      },
      /*allow_exceptions=*/false);
  if (absl::Status status = watch.status(); !status.ok()) return status;
  if (json.is_discarded()) return absl::InvalidArgumentError("not JSON");
  return json;
}

std::optional<double> ReadDouble(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_string()) return std::nullopt;
  const std::string& text = json.get_ref<const std::string&>();
  if (text == kNonFinite[0]) return std::numeric_limits<double>::quiet_NaN();
  if (text == kNonFinite[1]) return std::numeric_limits<double>::infinity();
  if (text == kNonFinite[2]) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<int64_t> ReadInt64(const Json& json) {
  if (json.is_number_unsigned()) {
    const uint64_t value = json.get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(value);
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  return std::nullopt;
}

std::optional<std::vector<int64_t>> ReadInts(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> values;
  for (const Json& element : json) {
    const std::optional<int64_t> value = ReadInt64(element);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

const Json* Find(const Json& json, absl::string_view key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(std::string(key));
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

std::string Excerpt(const Json& json) {
  std::string text = json.dump();
  if (text.size() <= kExcerptBytes) return text;
  return absl::StrCat(text.substr(0, kExcerptBytes), "...");
}

}  // namespace cpshard::conformance
