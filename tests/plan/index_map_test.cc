// IndexMap against plain vectors: position -> column, -1 = fill. "Exhaustive" below means every
// vector of up to four positions over fill and up to four columns.
#include "core/plan/index_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// In the body of a TEST, Run is a member function of GoogleTest.
using Runs = std::vector<Run>;
using Columns = std::vector<int64_t>;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// One position at a time: Append has to find the runs.
IndexMap MapOf(const Columns& columns) {
  IndexMap map;
  for (int64_t column : columns) map.Append({column, 1});
  return map;
}

// Calls fn(vector) for every vector of `size` entries from -1 ... columns-1.
template <typename Fn>
void ForVectors(int64_t size, int64_t columns, Fn fn) {
  Columns vector(size, -1);
  while (true) {
    fn(vector);
    int64_t i = 0;
    while (i < size && vector[i] == columns - 1) vector[i++] = -1;
    if (i == size) return;
    ++vector[i];
  }
}

void ExpectInvalid(const absl::Status& status, const char* part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(IndexMap, AnEmptyMapHasNoPositions) {
  const IndexMap map;
  EXPECT_EQ(map.size(), 0);
  EXPECT_THAT(map.runs(), IsEmpty());
  EXPECT_THAT(map.starts(), IsEmpty());
  EXPECT_THAT(map.Expand(), IsEmpty());
  EXPECT_EQ(map.ToString(), "");
  EXPECT_EQ(IndexMap::Identity(0), map);
}

TEST(IndexMap, TheHeaderExampleReadsAsWritten) {
  IndexMap map;
  map.Append({4, 3});
  map.Append({kFill, 2});
  map.Append({0, 3});
  EXPECT_THAT(map.Expand(), ElementsAre(4, 5, 6, -1, -1, 0, 1, 2));
  EXPECT_THAT(map.starts(), ElementsAre(0, 3, 5));
  EXPECT_EQ(map.size(), 8);
  EXPECT_EQ(map.ToString(), "4+3 .+2 0+3");
}

TEST(IndexMap, AppendMergesWhereColumnsGoOn) {
  IndexMap map;
  map.Append({4, 2});
  map.Append({6, 1});
  EXPECT_EQ(map.runs(), (Runs{{4, 3}}));
  map.Append({6, 1});  // repeats the last column: not a continuation
  EXPECT_EQ(map.runs(), (Runs{{4, 3}, {6, 1}}));
}

TEST(IndexMap, AppendMergesFillWithFillOnly) {
  IndexMap map;
  map.Append({kFill, 1});
  map.Append({kFill, 2});
  map.Append({0, 1});  // kFill + 1 == 0, and yet no continuation
  map.Append({kFill, 1});
  EXPECT_EQ(map.runs(), (Runs{{kFill, 3}, {0, 1}, {kFill, 1}}));
}

TEST(IndexMap, AppendOfLengthZeroAddsNothing) {
  IndexMap map = IndexMap::Identity(2);
  map.Append({9, 0});
  map.Append({kFill, 0});
  EXPECT_EQ(map, IndexMap::Identity(2));
}

TEST(IndexMap, EqualFunctionsAreEqualHoweverTheyWereBuilt) {
  ForVectors(4, 3, [](const Columns& columns) {
    const IndexMap map = MapOf(columns);
    ASSERT_EQ(map.Expand(), columns);
    for (size_t i = 0; i + 1 < map.runs().size(); ++i) {  // no two runs that should be one
      const cpshard::Run& run = map.runs()[i];
      const cpshard::Run& next = map.runs()[i + 1];
      ASSERT_FALSE(run.source == kFill ? next.source == kFill
                                       : next.source == run.source + run.length);
    }
    const absl::StatusOr<IndexMap> again = IndexMap::FromRuns(map.runs(), 3);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(*again, map);
  });
}

TEST(IndexMap, AtAndRunAtFindEveryPosition) {
  ForVectors(4, 4, [](const Columns& columns) {
    const IndexMap map = MapOf(columns);
    for (int64_t position = 0; position < map.size(); ++position) {
      ASSERT_EQ(map.At(position), columns[position]) << map.ToString();
      const size_t run = map.RunAt(position);
      ASSERT_LE(map.starts()[run], position);
      ASSERT_LT(position, map.starts()[run] + map.runs()[run].length);
    }
  });
}

TEST(IndexMap, ThenMapsFillThroughToFill) {
  IndexMap placement = IndexMap::Identity(6);
  placement.Append({kFill, 2});
  IndexMap partition;
  partition.Append({0, 2});
  partition.Append({6, 2});
  partition.Append({kFill, 1});
  EXPECT_EQ(placement.Then(partition).ToString(), "0+2 .+3");
}

TEST(IndexMap, ThenIsCompositionOfFunctions) {
  for (int64_t outer_size = 0; outer_size <= 3; ++outer_size) {
    ForVectors(outer_size, 3, [&](const Columns& outer) {
      const IndexMap map = MapOf(outer);
      for (int64_t inner_size = 0; inner_size <= 3; ++inner_size) {
        ForVectors(inner_size, outer_size, [&](const Columns& inner) {
          Columns expected;
          for (int64_t position : inner) expected.push_back(position < 0 ? -1 : outer[position]);
          ASSERT_EQ(map.Then(MapOf(inner)).Expand(), expected);
          ASSERT_EQ(map.Then(MapOf(inner)), MapOf(expected));
        });
      }
    });
  }
}

TEST(IndexMap, InverseTakesColumnsBackToPositionsOrRefuses) {
  for (int64_t size = 0; size <= 4; ++size) {
    ForVectors(size, 4, [&](const Columns& columns) {
      for (int64_t count = 0; count <= 5; ++count) {
        Columns expected(count, -1);
        bool has_inverse = true;
        for (int64_t position = 0; position < size; ++position) {
          const int64_t column = columns[position];
          if (column < 0) continue;
          if (column >= count || expected[column] != -1) {
            has_inverse = false;
            break;
          }
          expected[column] = position;
        }
        const absl::StatusOr<IndexMap> inverse = MapOf(columns).Inverse(count);
        ASSERT_EQ(inverse.ok(), has_inverse) << MapOf(columns).ToString() << " of " << count;
        if (has_inverse) {
          ASSERT_EQ(inverse->Expand(), expected);
        }
      }
    });
  }
}

TEST(IndexMap, InverseNamesTheColumnThatStandsInItsWay) {
  ExpectInvalid(MapOf({5, 6, 6}).Inverse(9).status(), "column 6 ");
  ExpectInvalid(MapOf({5, 6}).Inverse(6).status(), "6");
}

TEST(IndexMap, InverseOfTheInverseOfAPermutationIsItself) {
  const IndexMap map = MapOf({4, 5, 0, 1, 6, 2, 3});
  EXPECT_EQ(map.Inverse(7)->Inverse(7).value(), map);
  EXPECT_EQ(map.Then(*map.Inverse(7)), IndexMap::Identity(7));
}

TEST(IndexMap, FromRunsTakesEveryRangeOfTheColumns) {
  for (int64_t source = 0; source <= 5; ++source) {
    for (int64_t length = 0; length <= 6; ++length) {
      const Runs runs = {{source, length}};
      EXPECT_EQ(IndexMap::FromRuns(runs, 5).ok(), source + length <= 5) << source << "+" << length;
    }
  }
  const Runs fill = {{kFill, 1000}};
  EXPECT_EQ(IndexMap::FromRuns(fill, 0)->ToString(), ".+1000");
}

TEST(IndexMap, FromRunsNamesTheRunThatItRefuses) {
  const auto from = [](Runs runs, int64_t columns) {
    return IndexMap::FromRuns(runs, columns).status();
  };
  ExpectInvalid(from({{0, 1}, {2, -1}}, 5), "run 1");
  ExpectInvalid(from({{kFill, -1}}, 5), "run 0");
  ExpectInvalid(from({{-2, 1}}, 5), "run 0");
  ExpectInvalid(from({{-2, 0}}, 5), "run 0");
  ExpectInvalid(from({{0, 5}, {4, 2}}, 5), "run 1");
  ExpectInvalid(from({{6, 0}}, 5), "run 0");
}

TEST(IndexMap, FromRunsRefusesWhatPassesInt64) {
  const auto from = [](Runs runs) { return IndexMap::FromRuns(runs, kMaxInt64).status(); };
  ExpectInvalid(from({{kMaxInt64, 1}}), "run 0");
  ExpectInvalid(from({{1, kMaxInt64}}), "run 0");
  ExpectInvalid(from({{std::numeric_limits<int64_t>::min(), 1}}), "run 0");
  ExpectInvalid(from({{kFill, kMaxInt64}, {0, 1}}), "run 1");
  EXPECT_TRUE(from({{kFill, kMaxInt64}}).ok());
  EXPECT_TRUE(from({{0, kMaxInt64}, {0, 0}}).ok());
}

}  // namespace
}  // namespace cpshard
