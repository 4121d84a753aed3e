// The map algebra against position-by-position arithmetic.
//
// Input: a byte of columns, a byte that counts the runs of the first map, then runs of two bytes
// (source, length); what is left over makes the second map. A first byte of 255 stands for runs of
// 64-bit numbers instead, which only FromRuns sees.
#include <cstring>
#include <optional>
#include <vector>

#include "core/plan/index_map.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

using Columns = std::vector<int64_t>;

// Takes up to `count` runs off the front. A source byte of 200 or more is a fill or too small,
// a length byte of 250 or more is below 0.
std::vector<Run> TakeRuns(absl::string_view& input, size_t count) {
  std::vector<Run> runs;
  while (runs.size() < count && input.size() >= 2) {
    const int source = static_cast<uint8_t>(input[0]);
    const int length = static_cast<uint8_t>(input[1]);
    runs.push_back({source >= 250   ? source - 257
                    : source >= 200 ? kFill
                                    : source,
                    length >= 250 ? length - 256 : length % 32});
    input.remove_prefix(2);
  }
  return runs;
}

// nullopt: the runs are none of a map onto `columns`.
std::optional<Columns> Reference(const std::vector<Run>& runs, int64_t columns) {
  Columns result;
  for (const Run& run : runs) {
    if (run.length < 0 || run.source < kFill) return std::nullopt;
    if (run.source != kFill && run.source + run.length > columns) return std::nullopt;
    for (int64_t i = 0; i < run.length; ++i) {
      result.push_back(run.source == kFill ? kFill : run.source + i);
    }
  }
  return result;
}

std::optional<Columns> ReferenceInverse(const Columns& map, int64_t columns) {
  Columns inverse(columns, kFill);
  for (size_t i = 0; i < map.size(); ++i) {
    if (map[i] == kFill) continue;
    if (map[i] >= columns || inverse[map[i]] != kFill) return std::nullopt;
    inverse[map[i]] = static_cast<int64_t>(i);
  }
  return inverse;
}

// The map is what `columns` lists, and its runs are as few as can be.
void MustBe(const IndexMap& map, const Columns& columns) {
  Must(map.Expand() == columns, "Expand");
  Must(map.size() == static_cast<int64_t>(columns.size()), "size");
  Must(map.starts().size() == map.runs().size(), "a start per run");
  for (int64_t i = 0; i < map.size(); ++i) {
    Must(map.At(i) == columns[i], "At");
    const size_t run = map.RunAt(i);
    Must(map.starts()[run] <= i && i < map.starts()[run] + map.runs()[run].length, "RunAt");
  }
  IndexMap again;
  for (int64_t column : columns) again.Append({column, 1});
  Must(again == map && again.ToString() == map.ToString(), "one form per map");
}

void CheckInverse(const IndexMap& map, const Columns& columns, int64_t size) {
  const auto inverse = map.Inverse(size);
  const auto expected = ReferenceInverse(columns, size);
  Must(inverse.ok() == expected.has_value(), "Inverse refuses what repeats or lies beyond");
  if (expected) MustBe(*inverse, *expected);
}

void CheckLargeRuns(absl::string_view input) {
  std::vector<Run> runs(input.size() / sizeof(Run));
  if (runs.empty()) return;
  std::memcpy(runs.data(), input.data(), runs.size() * sizeof(Run));
  const int64_t columns = runs.back().length;
  runs.pop_back();
  if (columns < 0) return;  // not a number of columns
  const auto map = IndexMap::FromRuns(runs, columns);
  if (!map.ok()) return;
  int64_t total = 0;
  for (const Run& run : runs) {
    Must(!__builtin_add_overflow(total, run.length, &total), "the length fits int64");
  }
  Must(map->size() == total, "size of a large map");
  (void)map->Inverse(columns);
  if (total > 0) Must(map->At(total - 1) < columns, "At of a large map");
  Must(map->Then(IndexMap::Identity(total)) == *map, "Then Identity");
}

}  // namespace

void IndexMapTarget(absl::string_view input) {
  if (input.size() < 2) return;
  const int64_t columns = static_cast<uint8_t>(input[0]);
  const size_t count = static_cast<uint8_t>(input[1]);
  input.remove_prefix(2);
  if (columns == 255) return CheckLargeRuns(input);

  const std::vector<Run> runs = TakeRuns(input, count % 64);
  const auto map = IndexMap::FromRuns(runs, columns);
  const auto expected = Reference(runs, columns);
  Must(map.ok() == expected.has_value(), "FromRuns refuses what is no map");
  if (!expected) return;
  MustBe(*map, *expected);
  CheckInverse(*map, *expected, columns);
  CheckInverse(*map, *expected, columns / 2);

  const std::vector<Run> more = TakeRuns(input, 64);
  const auto next = IndexMap::FromRuns(more, map->size());
  const auto next_expected = Reference(more, map->size());
  Must(next.ok() == next_expected.has_value(), "FromRuns refuses what is no second map");
  if (!next_expected) return;
  Columns composed;
  for (int64_t i : *next_expected) composed.push_back(i == kFill ? kFill : (*expected)[i]);
  MustBe(map->Then(*next), composed);
}

}  // namespace cpshard::fuzz
