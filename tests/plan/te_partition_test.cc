// Head and tail chunk of every document (contract section 6), held to the formula slot by slot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "core/plan/partition.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Boundaries = std::vector<int64_t>;

// Section 6 step by step, for rank `rank` of `world`.
std::vector<int64_t> ByFormula(const Boundaries& c, int64_t total, int64_t world, int64_t rank) {
  const size_t documents = c.size() - 1;
  const auto d = [&](size_t i) { return c[i] / world; };
  std::vector<int64_t> out;
  for (int64_t t = 0; t < total / world; ++t) {
    size_t s = 0;  // the last document that begins at or before t
    while (s + 1 < documents && d(s + 1) <= t) ++s;
    const int64_t length = d(s + 1) - d(s), i = t - d(s), h = length / 2;
    const int64_t f = i < h ? rank : 2 * (world - 1) - rank;
    out.push_back(i + d(s) * world + h * f);
  }
  return out;
}

void ExpectFormula(const Boundaries& boundaries, int64_t cp) {
  const int64_t total = boundaries.back();
  const absl::StatusOr<std::vector<IndexMap>> partition = TePartition(boundaries, total, cp);
  ASSERT_TRUE(partition.ok()) << partition.status();
  ASSERT_EQ(static_cast<int64_t>(partition->size()), cp);
  std::vector<int> held(total, 0);
  for (int64_t rank = 0; rank < cp; ++rank) {
    const std::vector<int64_t> columns = (*partition)[rank].Expand();
    ASSERT_EQ(columns, ByFormula(boundaries, total, cp, rank))
        << testing::PrintToString(boundaries) << " cp " << cp << " rank " << rank;
    for (int64_t column : columns) ++held.at(column);
  }
  ASSERT_THAT(held, testing::Each(1)) << testing::PrintToString(boundaries) << " cp " << cp;
}

TEST(TePartition, IsTheFormulaOnAllSmallBoundaries) {
  int64_t compared = 0;
  for (int64_t cp = 1; cp <= 5; ++cp) {
    // Documents of 0 ... 3 chunks of 2 * cp tokens; 0 is an empty one, in any place.
    const std::function<void(Boundaries)> extend = [&](Boundaries boundaries) {
      if (boundaries.back() > 0) {
        ExpectFormula(boundaries, cp);
        ++compared;
      }
      if (boundaries.size() == 6) return;
      for (int64_t chunks = 0; chunks <= 3; ++chunks) {
        boundaries.push_back(boundaries.back() + chunks * 2 * cp);
        extend(boundaries);
        boundaries.pop_back();
      }
    };
    extend({0});
  }
  // Of one to five documents, without those that are all empty.
  EXPECT_EQ(compared, 5 * (4 + 16 + 64 + 256 + 1024 - 5));
}

// contract section 6: "for a single document it equals the round-robin map".
TEST(TePartition, OfOneDocumentIsRoundRobin) {
  for (int64_t cp = 1; cp <= 8; ++cp) {
    for (int64_t chunk = 1; chunk <= 4; ++chunk) {
      const int64_t total = 2 * cp * chunk;
      EXPECT_EQ(TePartition({0, total}, total, cp).value(), RoundRobinPartition(total, cp).value());
    }
  }
}

TEST(TePartition, GivesEveryRankTheHeadAndTheTailOfEveryDocument) {
  EXPECT_THAT(TePartition({0, 4, 12}, 12, 2)->at(0).Expand(), ElementsAre(0, 3, 4, 5, 10, 11));
  EXPECT_THAT(TePartition({0, 4, 12}, 12, 2)->at(1).Expand(), ElementsAre(1, 2, 6, 7, 8, 9));
}

TEST(TePartition, AnEmptyDocumentMakesNoDifference) {
  const auto plain = TePartition({0, 8, 16}, 16, 2);
  for (const Boundaries& boundaries : std::vector<Boundaries>{
           {0, 0, 8, 16}, {0, 8, 8, 8, 16}, {0, 8, 16, 16}, {0, 0, 8, 8, 16, 16}}) {
    EXPECT_EQ(TePartition(boundaries, 16, 2).value(), plain.value());
  }
}

void ExpectRefusal(const Boundaries& boundaries, int64_t total, int64_t cp,
                   const testing::Matcher<std::string>& text) {
  const absl::Status status = TePartition(boundaries, total, cp).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), text);
}

TEST(TePartition, BoundariesThatDoNotSpanTheTokensAreRefused) {
  ExpectRefusal({}, 8, 2, AllOf(HasSubstr("0 boundaries"), HasSubstr("8")));
  ExpectRefusal({0}, 8, 2, AllOf(HasSubstr("1 boundaries"), HasSubstr("at least two")));
  ExpectRefusal({4, 8}, 8, 2, AllOf(HasSubstr("from 4 to 8"), HasSubstr("the first 0")));
  ExpectRefusal({0, 4}, 8, 2, AllOf(HasSubstr("from 0 to 4"), HasSubstr("8 tokens")));
  ExpectRefusal({0, 12}, 8, 2, AllOf(HasSubstr("from 0 to 12"), HasSubstr("8 tokens")));
}

TEST(TePartition, ADocumentThatDoesNotDivideIsRefusedByNumber) {
  ExpectRefusal({0, 8, 10, 16}, 16, 2,
                AllOf(HasSubstr("document 1"), HasSubstr("8"), HasSubstr("10"),
                      HasSubstr("2 * cp_size = 4"), HasSubstr("pad it")));
  ExpectRefusal({0, 4}, 4, 4, AllOf(HasSubstr("document 0"), HasSubstr("2 * cp_size = 8")));
  ExpectRefusal({0, 3}, 3, 1, AllOf(HasSubstr("document 0"), HasSubstr("2 * cp_size = 2")));
}

TEST(TePartition, BoundariesThatDescendAreRefusedHoweverFar) {
  ExpectRefusal({0, 8, 4, 8}, 8, 2, AllOf(HasSubstr("document 1"), HasSubstr("8"), HasSubstr("4")));
  ExpectRefusal({0, -4, 8}, 8, 2, AllOf(HasSubstr("document 0"), HasSubstr("-4")));
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max() - 7;  // a multiple of 8
  ExpectRefusal({0, kFar, -16, 8}, 8, 2, AllOf(HasSubstr("document 1"), HasSubstr("-16")));
}

TEST(TePartition, TokensAreAtLeastOneAndAtMostInt32) {
  ExpectRefusal({0, 0}, 0, 2, HasSubstr("total_tokens is 0"));
  constexpr int64_t kEnd = int64_t{1} << 31;
  EXPECT_TRUE(TePartition({0, kEnd - 8}, kEnd - 8, 4).ok());
  ExpectRefusal({0, kEnd}, kEnd, 4,
                AllOf(HasSubstr("total_tokens is 2147483648"), HasSubstr("2147483647")));
}

}  // namespace
}  // namespace cpshard
