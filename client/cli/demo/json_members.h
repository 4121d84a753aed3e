// The lines that processes of the demo write to each other, as they are read.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cpshard::demo {

// Reads members of an object; remembers whether all were there.
class JsonMembers {
 public:
  explicit JsonMembers(const nlohmann::json& json) : json_(json) {}

  bool Has(const char* name) const { return json_.contains(name); }
  bool ok() const { return ok_; }

  int64_t Count(const char* name) { return CountIn(Member(name)); }

  double Seconds(const char* name) {
    const nlohmann::json& value = Member(name);
    if (!value.is_number()) return ok_ = false, 0;
    return value.get<double>();
  }

  std::string Text(const char* name) { return TextIn(Member(name)); }

  std::vector<std::string> Texts(const char* name) {
    std::vector<std::string> texts;
    const nlohmann::json& list = Member(name);
    if (!list.is_array()) return ok_ = false, texts;
    for (const nlohmann::json& value : list) texts.push_back(TextIn(value));
    return texts;
  }

  std::vector<int64_t> Counts(const char* name) {
    std::vector<int64_t> counts;
    const nlohmann::json& list = Member(name);
    if (!list.is_array()) return ok_ = false, counts;
    for (const nlohmann::json& value : list) counts.push_back(CountIn(value));
    return counts;
  }

 private:
  const nlohmann::json& Member(const char* name) const {
    static const nlohmann::json kNone;
    const auto found = json_.find(name);
    return found == json_.end() ? kNone : *found;
  }

  std::string TextIn(const nlohmann::json& value) {
    if (!value.is_string()) return ok_ = false, "";
    return value.get<std::string>();
  }

  int64_t CountIn(const nlohmann::json& value) {
    if (!value.is_number_integer() || value < 0) return ok_ = false, 0;
    return value.get<int64_t>();
  }

  const nlohmann::json& json_;
  bool ok_ = true;
};

}  // namespace cpshard::demo
