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

void PrintLine(const std::string& group, const std::string& name, const std::string& value,
               const std::string& unit, const std::string& anchor, const std::string& stream,
               const std::string& goal) {
  absl::PrintF("| %-34s | %-34s | %-19s | %-4s | %-16s | %-16s | %-18s |\n", group, name, value,
               unit, anchor, stream, goal);
  std::fflush(stdout);
}

}  // namespace

void Table::PrintHead() const {
  PrintLine("measured in turn", "what", "median (min-max)", "unit", "of the anchor",
            "of StreamCopy", "goal");
  PrintLine("---", "---", "---", "---", "---", "---", "---");
}

void Table::Add(Row row) {
  PrintLine(row.group, row.name, Text(row.value, 2), row.unit, Text(row.of_anchor, 2),
            Text(row.of_stream_copy, 2), row.goal);
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
                    {"goal", row.goal}});
  }
  return nlohmann::json{{"rows", std::move(rows)}}.dump(2) + "\n";
}

}  // namespace cpshard::bench
