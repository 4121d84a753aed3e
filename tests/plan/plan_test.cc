// What can be asked of a plan: shapes and bytes of its outputs, and its text.
#include "core/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <optional>
#include <random>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Rows of 6 columns become 8; rank 0 holds 5 of them and rank 1 the other 3.
ShardPlan Uneven(std::vector<StreamPlan> streams) {
  LayoutPlan layout;
  layout.rows = 2;
  layout.source_len = 6;
  layout.padded_len = 8;
  layout.placement.resize(1);
  layout.placement[0].Append({0, 6});
  layout.placement[0].Append({kFill, 2});
  layout.partition.resize(2);
  layout.partition[0].Append({0, 5});
  layout.partition[1].Append({5, 3});
  layout.padded_to = "a multiple of four";
  ShardPlan plan;
  plan.cp_size = 2;
  plan.chunks = {layout};
  plan.streams = std::move(streams);
  return plan;
}

StreamPlan Stream(Extent extent) {
  return {.name = "s", .dtype = DType::kI32, .dims = {2, 6, 3}, .axis = 1, .extent = extent};
}

TEST(Plan, ALocalOutputHasTheRanksOwnLength) {
  const ShardPlan plan = Uneven({Stream(Extent::kLocal)});
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 0), (TensorSpec{"s", DType::kI32, {2, 5, 3}}));
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1), (TensorSpec{"s", DType::kI32, {2, 3, 3}}));
}

TEST(Plan, APaddedOutputHasThePaddedLengthAndOneAsSentIsUntouched) {
  const ShardPlan plan = Uneven({Stream(Extent::kPadded), Stream(Extent::kAsSent)});
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1), (TensorSpec{"s", DType::kI32, {2, 8, 3}}));
  EXPECT_EQ(OutputSpec(plan, plan.streams[1], 1), (TensorSpec{"s", DType::kI32, {2, 6, 3}}));
}

TEST(Plan, BytesCountAStreamThatEveryRankHoldsOnce) {
  const std::vector<int64_t> both = {0, 1}, second = {1};
  const auto bytes = [](const ShardPlan& plan, const std::vector<int64_t>& ranks) {
    return CheckedOutputBytes(plan, ranks, {}).value();
  };
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kLocal)}), both), 2 * 8 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kLocal)}), second), 2 * 3 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kPadded)}), both), 2 * 8 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kAsSent)}), both), 2 * 6 * 3 * 4);
  EXPECT_EQ(bytes(Uneven({}), both), 0);
}

TEST(Plan, OutputMayFillTheLimitAndNotPassIt) {
  const std::vector<int64_t> ranks = {0, 1};
  const ShardPlan plan = Uneven({Stream(Extent::kLocal), Stream(Extent::kPadded)});
  EXPECT_TRUE(CheckedOutputBytes(plan, ranks, {.max_batch_bytes = 384}).ok());
  const absl::Status over = CheckedOutputBytes(plan, ranks, {.max_batch_bytes = 383}).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(over.message()), AllOf(HasSubstr("383"), HasSubstr("6"), HasSubstr("8"),
                                                 HasSubstr("a multiple of four")));
}

TEST(Plan, AnOutputBeyondInt64IsOverTheLimit) {
  StreamPlan wide = Stream(Extent::kAsSent);
  wide.dims = {int64_t{1} << 40, int64_t{1} << 40};
  const std::vector<int64_t> ranks = {0};
  EXPECT_EQ(CheckedOutputBytes(Uneven({wide}), ranks, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Plan, APaddedLengthOverTheLimitIsRefusedEvenWhereNoStreamHasIt) {
  ShardPlan plan = Uneven({});
  plan.chunks[0].padded_len = int64_t{1} << 40;
  EXPECT_EQ(CheckedOutputBytes(plan, std::vector<int64_t>{0}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The bytes output by output; nullopt: refused.
std::optional<int64_t> BytesOneByOne(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                     int64_t limit) {
  int64_t total = 0;
  for (const LayoutPlan& layout : plan.chunks) {
    if (layout.padded_len > limit) return std::nullopt;
  }
  for (const StreamPlan& stream : plan.streams) {
    for (size_t k = 0; k < (stream.extent == Extent::kLocal ? ranks.size() : 1); ++k) {
      if (ranks.empty()) break;
      int64_t bytes = ItemSize(stream.dtype);
      for (int64_t dim : OutputSpec(plan, stream, ranks[k]).dims) {
        if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
      }
      if (__builtin_add_overflow(total, bytes, &total) || total > limit) return std::nullopt;
    }
  }
  return total;
}

// Lengths from 0 to beyond int64 when they are multiplied or added up.
ShardPlan AnyPlan(std::mt19937_64& random) {
  const auto length = [&] {
    constexpr int kBits[] = {0, 1, 3, 3, 3, 20, 31, 61, 62, 63};
    const int bits = kBits[random() % std::size(kBits)];
    return static_cast<int64_t>(random() & ((uint64_t{1} << bits) - 1));
  };
  ShardPlan plan;
  plan.cp_size = 1 + random() % 4;
  plan.chunks.resize(1 + random() % 2);
  for (LayoutPlan& layout : plan.chunks) {
    layout.padded_len = length();
    layout.partition.resize(*plan.cp_size);
    const int64_t all = length();
    for (IndexMap& map : layout.partition) map.Append({0, random() % 2 == 0 ? all : length()});
  }
  plan.streams.resize(random() % 3);
  for (StreamPlan& stream : plan.streams) {
    stream.dtype = random() % 2 == 0 ? DType::kU8 : DType::kI64;
    stream.dims.resize(1 + random() % 4);
    for (int64_t& dim : stream.dims) dim = random() % 3 == 0 ? length() : 1;
    stream.axis = static_cast<int>(random() % stream.dims.size());
    constexpr Extent kExtents[] = {Extent::kLocal, Extent::kLocal, Extent::kPadded,
                                   Extent::kAsSent};
    stream.extent = kExtents[random() % std::size(kExtents)];
  }
  return plan;
}

TEST(Plan, BytesAreThoseOfTheOutputsOneByOne) {
  std::mt19937_64 random(7);
  int passed = 0, refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    const ShardPlan plan = AnyPlan(random);
    std::vector<int64_t> ranks;
    for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
      if (random() % 4 != 0) ranks.push_back(rank);
    }
    constexpr int64_t kLimits[] = {0, 100, int64_t{1} << 31, std::numeric_limits<int64_t>::max()};
    int64_t limit = kLimits[random() % std::size(kLimits)];
    const std::optional<int64_t> needed =
        BytesOneByOne(plan, ranks, std::numeric_limits<int64_t>::max());
    if (needed && random() % 2 == 0) limit = *needed - random() % 2;
    const std::optional<int64_t> expected = BytesOneByOne(plan, ranks, limit);
    const auto bytes = CheckedOutputBytes(plan, ranks, {.max_batch_bytes = limit});
    ASSERT_EQ(bytes.ok(), expected.has_value()) << ToString(plan) << bytes.status();
    if (expected) {
      ASSERT_EQ(*bytes, *expected) << ToString(plan);
    }
    ++(expected ? passed : refused);
  }
  EXPECT_GT(passed, 10'000);
  EXPECT_GT(refused, 10'000);
}

TEST(Plan, TextShowsLayoutMapsAndStreams) {
  EXPECT_EQ(ToString(Uneven({Stream(Extent::kLocal), Stream(Extent::kAsSent)})),
            "cp_size 2\n"
            "layout rows 2, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+5\n"
            "  rank 1: 5+3\n"
            "stream s i32 [2, 6, 3] local\n"
            "stream s i32 [2, 6, 3] as_sent\n");
  EXPECT_EQ(ToString(ShardPlan()), "cp_size none\n");
}

}  // namespace
}  // namespace cpshard
