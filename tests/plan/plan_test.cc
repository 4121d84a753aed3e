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
  const ShardPlan plan = Uneven({Stream(Extent::kPadded), Stream(Extent::kWhole)});
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
  EXPECT_EQ(bytes(Uneven({Stream(Extent::kWhole)}), both), 2 * 6 * 3 * 4);
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
  StreamPlan wide = Stream(Extent::kWhole);
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
      std::vector<int64_t> dims = OutputSpec(plan, stream, ranks[k]).dims;
      if (plan.stacked() && stream.extent == Extent::kLocal) {  // [C, ...]: C times the columns
        dims[OutputAxis(plan, stream)] *= dims[0];
        dims[0] = 1;
      }
      for (int64_t dim : dims) {
        if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
      }
      if (__builtin_add_overflow(total, bytes, &total) || total > limit) return std::nullopt;
    }
  }
  return total;
}

// Lengths from 0 to beyond int64 when they are multiplied or added up. Several chunks have the same
// lengths, tokens that int64 can count and no padded stream (plan.h).
ShardPlan AnyPlan(std::mt19937_64& random) {
  const auto length = [&] {
    constexpr int kBits[] = {0, 1, 3, 3, 3, 20, 31, 61, 62, 63};
    const int bits = kBits[random() % std::size(kBits)];
    return static_cast<int64_t>(random() & ((uint64_t{1} << bits) - 1));
  };
  ShardPlan plan;
  plan.cp_size = 1 + random() % 4;
  LayoutPlan layout;
  const size_t chunks = 1 + random() % 2;
  const auto column_length = [&] { return length() / static_cast<int64_t>(chunks); };
  layout.padded_len = column_length();
  layout.partition.resize(*plan.cp_size);
  const int64_t all = column_length();
  for (IndexMap& map : layout.partition) map.Append({0, random() % 2 == 0 ? all : column_length()});
  plan.chunks.assign(chunks, layout);
  plan.streams.resize(random() % 3);
  for (StreamPlan& stream : plan.streams) {
    stream.dtype = random() % 2 == 0 ? DType::kU8 : DType::kI64;
    stream.dims.resize(1 + random() % 4);
    for (int64_t& dim : stream.dims) dim = random() % 3 == 0 ? length() : 1;
    stream.axis = static_cast<int>(random() % stream.dims.size());
    constexpr Extent kExtents[] = {Extent::kLocal, Extent::kLocal, Extent::kPadded, Extent::kWhole};
    stream.extent = kExtents[random() % std::size(kExtents)];
    if (plan.stacked() && stream.extent == Extent::kPadded) stream.extent = Extent::kLocal;
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

// Two chunks of 8 columns; rank 0 holds 5 of each and rank 1 the other 3.
ShardPlan Stacked(std::vector<StreamPlan> streams) {
  ShardPlan plan = Uneven(std::move(streams));
  plan.chunks.push_back(plan.chunks.front());
  return plan;
}

StreamPlan Flat(Extent extent) {
  return {.name = "s", .dtype = DType::kI32, .dims = {16, 3}, .axis = 0, .extent = extent};
}

TEST(Plan, ChunksAreStackedOnANewFirstAxisOfWhatIsCut) {
  const ShardPlan plan = Stacked({Flat(Extent::kLocal), Flat(Extent::kWhole)});
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 0), (TensorSpec{"s", DType::kI32, {2, 5, 3}}));
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1), (TensorSpec{"s", DType::kI32, {2, 3, 3}}));
  EXPECT_EQ(OutputSpec(plan, plan.streams[1], 1), (TensorSpec{"s", DType::kI32, {16, 3}}));
  EXPECT_EQ(OutputAxis(plan, plan.streams[0]), 1);
  EXPECT_EQ(OutputAxis(plan, plan.streams[1]), 0);
}

TEST(Plan, OneChunkIsNotStacked) {
  const ShardPlan plan = Uneven({Flat(Extent::kLocal)});
  EXPECT_FALSE(plan.stacked());
  EXPECT_EQ(OutputAxis(plan, plan.streams[0]), 0);
  EXPECT_EQ(OutputSpec(plan, plan.streams[0], 1), (TensorSpec{"s", DType::kI32, {3, 3}}));
}

TEST(Plan, LocalSlotsAreThoseOfAllChunks) {
  EXPECT_EQ(LocalSlots(Uneven({}).chunks, 0), 5);
  EXPECT_EQ(LocalSlots(Stacked({}).chunks, 0), 10);
  EXPECT_EQ(LocalSlots(Stacked({}).chunks, 1), 6);
  EXPECT_EQ(LocalSlots({}, 0), 0);
}

TEST(Plan, BytesOfAStackedStreamAreThoseOfAllChunks) {
  const std::vector<int64_t> both = {0, 1}, second = {1};
  EXPECT_EQ(CheckedOutputBytes(Stacked({Flat(Extent::kLocal)}), both, {}).value(), 16 * 3 * 4);
  EXPECT_EQ(CheckedOutputBytes(Stacked({Flat(Extent::kLocal)}), second, {}).value(), 6 * 3 * 4);
  EXPECT_EQ(CheckedOutputBytes(Stacked({Flat(Extent::kWhole)}), both, {}).value(), 16 * 3 * 4);
}

TEST(Plan, ScalarsAreThoseOfTheRank) {
  ShardPlan plan = Uneven({});
  plan.scalars = {{"cp_rank", {int64_t{0}, int64_t{1}}}, {"qkv_format", {std::string("thd")}}};
  EXPECT_EQ(ScalarsOf(plan, 0), (std::vector<ScalarEntry>{{"cp_rank", int64_t{0}},
                                                          {"qkv_format", std::string("thd")}}));
  EXPECT_EQ(ScalarsOf(plan, 1), (std::vector<ScalarEntry>{{"cp_rank", int64_t{1}},
                                                          {"qkv_format", std::string("thd")}}));
}

// Runs of rank 0: 0+2 7+1; of rank 1: 2+5.
ShardPlan Reporting(bool indices, bool positions) {
  ShardPlan plan = Uneven({});
  LayoutPlan& layout = plan.chunks[0];
  layout.partition.assign(2, {});
  layout.partition[0].Append({0, 2});
  layout.partition[0].Append({7, 1});
  layout.partition[1].Append({2, 5});
  if (indices) layout.report.indices = Report::Indices::kI32;
  layout.report.stream_positions = positions;
  return plan;
}

TEST(Plan, BytesOfALayoutAreItsRunsItsIndicesAndItsPositions) {
  const std::vector<int64_t> both = {0, 1}, first = {0};
  const auto bytes = [](const ShardPlan& plan, const std::vector<int64_t>& ranks) {
    return CheckedLayoutBytes(plan, ranks, {}).value();
  };
  EXPECT_EQ(bytes(Reporting(false, false), first), 2 * 2 * 8);  // source and length of two runs
  EXPECT_EQ(bytes(Reporting(false, false), both), 3 * 2 * 8);
  EXPECT_EQ(bytes(Reporting(true, false), first), (2 * 2 + 3) * 8);
  EXPECT_EQ(bytes(Reporting(true, false), both), (3 * 2 + 3 + 5) * 8);
  EXPECT_EQ(bytes(Reporting(true, true), both), (3 * 2 + 3 + 5 + 2 * 6) * 8);  // [2, 6] once
  EXPECT_EQ(bytes(ShardPlan(), first), 0);
}

// Chunks have runs, and nothing of the record else (contract 4.7).
TEST(Plan, BytesOfTheLayoutOfChunksAreTheirRuns) {
  ShardPlan plan = Reporting(true, true);
  plan.chunks.push_back(plan.chunks[0]);
  EXPECT_EQ(CheckedLayoutBytes(plan, std::vector<int64_t>{0, 1}, {}).value(), 2 * 3 * 2 * 8);
}

TEST(Plan, ALayoutMayFillTheLimitAndNotPassIt) {
  const std::vector<int64_t> ranks = {0, 1};
  const ShardPlan plan = Reporting(true, true);
  constexpr int64_t kBytes = (3 * 2 + 3 + 5 + 2 * 6) * 8;
  EXPECT_TRUE(CheckedLayoutBytes(plan, ranks, {.max_batch_bytes = kBytes}).ok());
  const absl::Status over =
      CheckedLayoutBytes(plan, ranks, {.max_batch_bytes = kBytes - 1}).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(over.message()),
              AllOf(HasSubstr(std::to_string(kBytes - 1)), HasSubstr("a multiple of four")));
}

TEST(Plan, ALayoutBeyondInt64IsOverTheLimit) {
  ShardPlan positions = Reporting(false, true);
  positions.chunks[0].rows = int64_t{1} << 40;
  positions.chunks[0].source_len = int64_t{1} << 40;
  ShardPlan longest = Reporting(false, true);  // just within int64, until its runs are added
  longest.chunks[0].rows = 1;
  longest.chunks[0].source_len = std::numeric_limits<int64_t>::max();
  ShardPlan indices = Reporting(true, false);
  for (IndexMap& map : indices.chunks[0].partition) map.Append({8, int64_t{1} << 62});
  for (const ShardPlan& plan : {positions, longest, indices}) {
    EXPECT_EQ(CheckedLayoutBytes(plan, std::vector<int64_t>{0, 1}, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Plan, TextShowsALiteralAsAWholeStream) {
  ShardPlan plan;
  plan.cp_size = 4;
  StreamPlan literal{"cu_seqlens", DType::kI32, {3}, 0};
  literal.extent = Extent::kWhole;
  literal.value.from = Literal{{0, 4, 8}};
  plan.streams = {literal};
  EXPECT_EQ(ToString(plan),
            "cp_size 4\n"
            "stream cu_seqlens i32 [3] whole\n");
}

TEST(Plan, PlansThatDifferInALiteralOrAScalarAreNotEqual) {
  ShardPlan plan = Uneven({Stream(Extent::kWhole)});
  plan.streams[0].value.from = Literal{{0, 4, 8}};
  plan.scalars = {{"cp_rank", {int64_t{0}, int64_t{1}}}};
  ShardPlan other = plan;
  EXPECT_EQ(other, plan);
  other.streams[0].value.from = Literal{{0, 4, 9}};
  EXPECT_NE(other, plan);
  other = plan;
  other.scalars[0].values[1] = int64_t{2};
  EXPECT_NE(other, plan);
}

TEST(Plan, TextShowsLayoutMapsAndStreams) {
  EXPECT_EQ(ToString(Uneven({Stream(Extent::kLocal), Stream(Extent::kWhole)})),
            "cp_size 2\n"
            "layout rows 2, source_len 6, padded_len 8\n"
            "  placement 0: 0+6 .+2\n"
            "  rank 0: 0+5\n"
            "  rank 1: 5+3\n"
            "stream s i32 [2, 6, 3] local\n"
            "stream s i32 [2, 6, 3] whole\n");
  EXPECT_EQ(ToString(ShardPlan()), "cp_size none\n");
}

}  // namespace
}  // namespace cpshard
