#include "tests/conformance/session.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/conformance/input.h"
#include "tests/conformance/json.h"
#include "tests/conformance/run.h"
#include "tests/conformance/vectors.h"

namespace cpshard::conformance {
namespace {

Outcome Unreadable(absl::string_view why) {
  return {.kind = Outcome::Kind::kFailed, .text = std::string(why)};
}

Outcome NotOnWire() { return {.kind = Outcome::Kind::kSkipped, .text = "verb not on the wire"}; }

std::string TextOf(const Json& json, absl::string_view key, absl::string_view missing) {
  const Json* value = Find(json, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string(missing);
}

}  // namespace

void Session::RunFile(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  std::ifstream file(path, std::ios::binary);
  if (absl::EndsWith(path, ".json")) return RunVectors(stem, file);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    RunLine(stem, absl::StrCat(stem, ":", number), line);
  }
  if (!file.eof()) {
    report_.Add(absl::StrCat(stem, "/?"), stem, Unreadable(absl::StrCat("cannot read ", path)));
  }
}

void Session::ReportUnknownIds() {
  for (const std::string& id : wanted_) {
    if (seen_.count(id) == 0) report_.Add("?/?", id, Unreadable("no such case in the corpus"));
  }
}

// Masks and partitions for the solver that magi dispatches with.
void Session::RunVectors(const std::string& stem, std::istream& file) {
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const absl::StatusOr<std::vector<DispatchVector>> vectors = ReadVectors(text);
  const std::string family = absl::StrCat(stem, "/dispatch");
  if (!vectors.ok()) return report_.Add(family, stem, Unreadable(vectors.status().message()));
  for (const DispatchVector& vector : *vectors) {
    if (!wanted_.empty() && wanted_.count(vector.name) == 0) continue;
    seen_.insert(vector.name);
    report_.Add(family, vector.name, target_.on_wire ? NotOnWire() : RunVector(vector));
  }
}

// `where` names the line as long as its id is not known.
void Session::RunLine(const std::string& stem, const std::string& where, const std::string& line) {
  absl::StatusOr<Json> json = ParseLine(line);
  if (!json.ok()) {
    const std::string text = absl::StrCat("unreadable line: ", json.status().message());
    return report_.Add(absl::StrCat(stem, "/?"), where, Unreadable(text));
  }
  const std::string id = TextOf(*json, "id", where);
  const std::string family = absl::StrCat(stem, "/", TextOf(*json, "backend", "?"));
  if (!wanted_.empty() && wanted_.count(id) == 0) return;
  seen_.insert(id);
  const absl::StatusOr<Case> item = SplitCase(*std::move(json));
  if (!item.ok()) {
    const std::string text = absl::StrCat("malformed case: ", item.status().message());
    return report_.Add(family, id, Unreadable(text));
  }
  report_.Add(family, id, RunCase(*item, target_));
}

}  // namespace cpshard::conformance
