#include "client/cli/demo/report.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard::demo {
namespace {

using Json = nlohmann::json;

Json ToJson(const RoundBegun& round) { return {{"in_flight", round.in_flight}}; }

Json ToJson(const BatchReport& report) {
  Json json = {{"layout", report.layout},
               {"batch", report.batch},
               {"real_tokens", report.real_tokens},
               {"columns", report.columns},
               {"bytes", report.bytes},
               {"tokens_of_rank", report.tokens_of_rank},
               {"seconds", report.seconds},
               {"equal", report.equal}};
  if (!report.difference.empty()) json["difference"] = report.difference;
  return json;
}

// Reads members of an object; remembers whether all were there.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  bool Has(const char* name) const { return json_.contains(name); }
  bool ok() const { return ok_; }

  int64_t Count(const char* name) { return CountIn(Member(name)); }

  double Seconds(const char* name) {
    const Json& value = Member(name);
    if (!value.is_number()) return ok_ = false, 0;
    return value.get<double>();
  }

  std::string Text(const char* name) { return TextIn(Member(name)); }

  std::vector<std::string> Texts(const char* name) {
    std::vector<std::string> texts;
    const Json& list = Member(name);
    if (!list.is_array()) return ok_ = false, texts;
    for (const Json& value : list) texts.push_back(TextIn(value));
    return texts;
  }

  std::vector<int64_t> Counts(const char* name) {
    std::vector<int64_t> counts;
    const Json& list = Member(name);
    if (!list.is_array()) return ok_ = false, counts;
    for (const Json& value : list) counts.push_back(CountIn(value));
    return counts;
  }

 private:
  const Json& Member(const char* name) const {
    static const Json kNone;
    const auto found = json_.find(name);
    return found == json_.end() ? kNone : *found;
  }

  std::string TextIn(const Json& value) {
    if (!value.is_string()) return ok_ = false, "";
    return value.get<std::string>();
  }

  int64_t CountIn(const Json& value) {
    if (!value.is_number_integer() || value < 0) return ok_ = false, 0;
    return value.get<int64_t>();
  }

  const Json& json_;
  bool ok_ = true;
};

}  // namespace

std::string ToLine(const LoaderLine& line) {
  const Json json = std::visit([](const auto& value) { return ToJson(value); }, line);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<LoaderLine> ParseLine(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  Reader reader(json);
  LoaderLine line;
  if (json.is_object() && reader.Has("in_flight")) {
    line = RoundBegun{reader.Count("in_flight")};
  } else if (json.is_object()) {
    BatchReport report{.layout = reader.Text("layout"),
                       .batch = reader.Count("batch"),
                       .real_tokens = reader.Count("real_tokens"),
                       .columns = reader.Count("columns"),
                       .bytes = reader.Count("bytes"),
                       .tokens_of_rank = reader.Counts("tokens_of_rank"),
                       .seconds = reader.Seconds("seconds"),
                       .equal = reader.Texts("equal")};
    if (reader.Has("difference")) report.difference = reader.Text("difference");
    line = std::move(report);
  }
  if (json.is_object() && reader.ok()) return line;
  return absl::InvalidArgumentError(absl::StrCat("a loader reported what is no report: ", text));
}

}  // namespace cpshard::demo
