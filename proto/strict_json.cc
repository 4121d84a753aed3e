#include "proto/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cpshard {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;

// Walks the text and stops at the first fault.
class Checker : public nlohmann::json_sax<Json> {
 public:
  const std::string& fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(size_t) override { return Deeper(); }
  bool end_array() override {
    --depth_;
    return true;
  }

  // Integers that do not fit arrive here, as the text they were.
  bool number_float(number_float_t, const string_t& text) override {
    if (text.find_first_of(".eE") != string_t::npos) return true;
    return Fail(absl::StrCat("the integer ", text, Where(), " is beyond 64 bits"));
  }
  bool start_object(size_t) override {
    if (!Deeper()) return false;
    keys_.emplace_back();
    path_.emplace_back();
    return true;
  }
  bool end_object() override {
    --depth_;
    keys_.pop_back();
    path_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    path_.back() = absl::StrCat("'", name, "'");
    return keys_.back().insert(name).second || Fail(absl::StrCat("'", name, "' is there twice"));
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("not JSON at byte ", position));
  }

 private:
  // Readers behind this one may recurse.
  bool Deeper() {
    return ++depth_ <= kMaxDepth || Fail(absl::StrCat("nested deeper than ", kMaxDepth));
  }

  bool Fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  // " in 'labels'.'shape'"
  std::string Where() const {
    return path_.empty() ? "" : absl::StrCat(" in ", absl::StrJoin(path_, "."));
  }

  int depth_ = 0;
  std::string fault_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::vector<std::string> path_;            // the key each of them is at
};

}  // namespace

absl::Status CheckStrictJson(absl::string_view text, absl::string_view what) {
  Checker checker;
  if (Json::sax_parse(text.begin(), text.end(), &checker)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", checker.fault()));
}

}  // namespace cpshard
