#include "tests/bench/table.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"

namespace cpshard::bench {
namespace {

std::string Text(const std::optional<Stats>& stats, int digits) {
  if (!stats) return "";
  return absl::StrFormat("%.*f (%.*f-%.*f)", digits, stats->median, digits, stats->min, digits,
                         stats->max);
}

nlohmann::json Json(const std::optional<Stats>& stats) {
  if (!stats) return nullptr;
  return {{"median", stats->median}, {"min", stats->min}, {"max", stats->max}};
}

bool IsRatio(const Goal& goal) { return goal.figure == Goal::Figure::kOfAnchor; }

nlohmann::json Json(const std::vector<Goal>& goals) {
  nlohmann::json list = nlohmann::json::array();
  for (const Goal& goal : goals) {
    const char* bound = goal.bound == Goal::Bound::kAtLeast ? "at_least" : "at_most";
    list.push_back({{"figure", IsRatio(goal) ? "of_anchor" : "value"}, {bound, goal.number}});
  }
  return list;
}

void PrintLine(const std::string& group, const std::string& name, const std::string& value,
               const std::string& unit, const std::string& anchor, const std::string& stream,
               const std::string& goal) {
  absl::PrintF("| %-34s | %-34s | %-19s | %-4s | %-16s | %-16s | %-34s |\n", group, name, value,
               unit, anchor, stream, goal);
  std::fflush(stdout);
}

}  // namespace

Goal ValueAtMost(double number) { return {Goal::Figure::kValue, Goal::Bound::kAtMost, number}; }

Goal OfAnchorAtLeast(double number) {
  return {Goal::Figure::kOfAnchor, Goal::Bound::kAtLeast, number};
}

std::string GoalText(const Row& row) {
  std::string text;
  for (const Goal& goal : row.goals) {
    absl::StrAppendFormat(&text, "%s%s %g %s", text.empty() ? "" : ", ",
                          goal.bound == Goal::Bound::kAtLeast ? ">=" : "<=", goal.number,
                          IsRatio(goal) ? "of the anchor" : row.unit);
  }
  return text;
}

void Table::PrintHead() const {
  PrintLine("measured in turn", "what", "median (min-max)", "unit", "of the anchor",
            "of StreamCopy", "goal");
  PrintLine("---", "---", "---", "---", "---", "---", "---");
}

void Table::Add(Row row) {
  PrintLine(row.group, row.name, Text(row.value, 2), row.unit, Text(row.of_anchor, 2),
            Text(row.of_stream_copy, 2), GoalText(row));
  rows_.push_back(std::move(row));
}

std::string Table::ToJson() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_) {
    rows.push_back({{"group", row.group},
                    {"name", row.name},
                    {"value", Json(row.value)},
                    {"unit", row.unit},
                    {"of_anchor", Json(row.of_anchor)},
                    {"of_stream_copy", Json(row.of_stream_copy)},
                    {"anchor", row.anchor},
                    {"goals", Json(row.goals)}});
  }
  return nlohmann::json{{"rows", std::move(rows)}}.dump(2) + "\n";
}

}  // namespace cpshard::bench
