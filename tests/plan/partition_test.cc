// The closed-form maps (contract 2.7), stated element by element.
#include "core/plan/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

void ExpectInvalid(const absl::Status& status, const testing::Matcher<std::string>& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), text);
}

// Every column 0 ... padded_len-1 is held by exactly one rank.
void ExpectCoversOnce(const std::vector<IndexMap>& partition, int64_t padded_len) {
  std::vector<int> held(padded_len, 0);
  for (const IndexMap& local : partition) {
    for (int64_t column : local.Expand()) ++held.at(column);
  }
  EXPECT_THAT(held, testing::Each(1));
}

TEST(Partition, WholeGivesEveryRankAllColumns) {
  const std::vector<IndexMap> partition = WholePartition(5, 3);
  EXPECT_THAT(partition,
              ElementsAre(IndexMap::Identity(5), IndexMap::Identity(5), IndexMap::Identity(5)));
}

TEST(Partition, ContiguousGivesRankRItsSlice) {
  for (int64_t cp = 1; cp <= 8; ++cp) {
    for (int64_t local = 0; local <= 5; ++local) {
      const absl::StatusOr<std::vector<IndexMap>> partition = ContiguousPartition(cp * local, cp);
      ASSERT_TRUE(partition.ok());
      ASSERT_EQ(static_cast<int64_t>(partition->size()), cp);
      for (int64_t rank = 0; rank < cp; ++rank) {
        ASSERT_EQ((*partition)[rank].size(), local);
        for (int64_t slot = 0; slot < local; ++slot) {
          ASSERT_EQ((*partition)[rank].At(slot), rank * local + slot);
        }
      }
      ExpectCoversOnce(*partition, cp * local);
    }
  }
}

TEST(Partition, RoundRobinGivesEveryRankAHeadAndATailChunk) {
  for (int64_t cp = 1; cp <= 8; ++cp) {
    for (int64_t chunk = 0; chunk <= 4; ++chunk) {
      const int64_t padded = 2 * cp * chunk;
      const absl::StatusOr<std::vector<IndexMap>> partition = RoundRobinPartition(padded, cp);
      ASSERT_TRUE(partition.ok());
      ASSERT_EQ(static_cast<int64_t>(partition->size()), cp);
      for (int64_t rank = 0; rank < cp; ++rank) {
        std::vector<int64_t> expected;
        for (int64_t i = 0; i < chunk; ++i) expected.push_back(rank * chunk + i);
        for (int64_t i = 0; i < chunk; ++i) expected.push_back((2 * cp - 1 - rank) * chunk + i);
        ASSERT_EQ((*partition)[rank].Expand(), expected) << "cp " << cp << " rank " << rank;
      }
      ExpectCoversOnce(*partition, padded);
    }
  }
}

TEST(Partition, ChunksThatTouchAreOneRun) {
  EXPECT_EQ(RoundRobinPartition(8, 2)->at(0).ToString(), "0+2 6+2");
  EXPECT_EQ(RoundRobinPartition(8, 2)->at(1).ToString(), "2+4");
}

TEST(Partition, ALengthThatDoesNotDivideIsRefusedWithBothNumbers) {
  ExpectInvalid(ContiguousPartition(10, 4).status(),
                AllOf(HasSubstr("divisible by cp_size"), HasSubstr("10"), HasSubstr("4")));
  ExpectInvalid(RoundRobinPartition(12, 4).status(),
                AllOf(HasSubstr("divisible by 2 * cp_size"), HasSubstr("12"), HasSubstr("8")));
}

TEST(Partition, RoundUpGivesTheSmallestMultipleThatIsNotBelow) {
  for (int64_t length = 0; length <= 40; ++length) {
    for (int64_t divisor = 1; divisor <= 17; ++divisor) {
      int64_t expected = length;
      while (expected % divisor != 0) ++expected;
      ASSERT_EQ(RoundUp(length, divisor, "x").value(), expected) << length << " " << divisor;
    }
  }
}

TEST(Partition, RoundUpBeyondInt64IsRefusedAndNamesTheDivisor) {
  EXPECT_EQ(RoundUp(kMaxInt64, 1, "x").value(), kMaxInt64);
  EXPECT_EQ(RoundUp(1, kMaxInt64, "x").value(), kMaxInt64);
  ExpectInvalid(RoundUp(kMaxInt64, 2, "pad_multiple").status(),
                AllOf(HasSubstr("pad_multiple"), HasSubstr("9223372036854775807")));
}

TEST(Partition, AProductBeyondInt64IsRefusedWithBothFactors) {
  EXPECT_EQ(CheckedMultiply(3, int64_t{1} << 60, "x").value(), int64_t{3} << 60);
  EXPECT_EQ(CheckedMultiply(0, kMaxInt64, "x").value(), 0);
  ExpectInvalid(CheckedMultiply(4, int64_t{1} << 62, "pad_multiple").status(),
                AllOf(HasSubstr("pad_multiple"), HasSubstr("4"), HasSubstr("4611686018427387904")));
}

}  // namespace
}  // namespace cpshard
