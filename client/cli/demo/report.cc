#include "client/cli/demo/report.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/demo/json_members.h"

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

}  // namespace

std::string ToLine(const LoaderLine& line) {
  const Json json = std::visit([](const auto& value) { return ToJson(value); }, line);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<LoaderLine> ParseLine(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  JsonMembers reader(json);
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
