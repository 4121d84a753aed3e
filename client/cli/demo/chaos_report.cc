#include "client/cli/demo/chaos_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/demo/json_members.h"
#include "client/cli/demo/line.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {

using Json = nlohmann::json;

std::string NameOfDigest(uint64_t digest) {
  return absl::StrCat(absl::Hex(digest, absl::kZeroPad16));
}

std::string MomentOf(const ChaosLine& line) {
  return absl::StrCat(line.event, "/", line.at.stream, "/", line.at.pass, "/", line.at.step);
}

std::string ToLine(const ChaosLine& line) {
  const Json json = {
      {"event", line.event},   {"stream", line.at.stream},      {"pass", line.at.pass},
      {"step", line.at.step},  {"batches", line.batches},       {"shards", line.shards},
      {"waited", line.waited}, {"difference", line.difference}, {"state", line.state}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<ChaosLine> ParseChaosLine(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  JsonMembers members(json);
  ChaosLine line;
  if (json.is_object()) {
    line = {.event = members.Text("event"),
            .at = {members.Text("stream"), members.Count("pass"), members.Count("step")},
            .batches = members.Texts("batches"),
            .shards = members.Texts("shards"),
            .waited = members.Seconds("waited"),
            .difference = members.Text("difference"),
            .state = members.Text("state")};
  }
  if (json.is_object() && members.ok()) return line;
  return absl::InvalidArgumentError(absl::StrCat("a process reported what is no report: ", text));
}

ChaosReporter::ChaosReporter(int in, int out, std::vector<std::string> holds)
    : in_(in), out_(out), holds_(std::move(holds)) {}

absl::Status ChaosReporter::Say(const ChaosLine& line) const {
  CPSHARD_RETURN_IF_ERROR(WriteLine(out_, ToLine(line)));
  const bool held = std::find(holds_.begin(), holds_.end(), MomentOf(line)) != holds_.end();
  if (held) AwaitLine(in_);
  return absl::OkStatus();
}

}  // namespace cpshard::demo
