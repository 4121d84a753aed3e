// The size of a layout, guessed from the plan, against the layout itself.
#include "proto/layout_arrays.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "proto/codec.h"

namespace cpshard {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

int64_t SizeOf(const ShardPlan& plan, int64_t rank) {
  v1::ShardLayout message;
  EncodeLayout(LayoutFor(plan, rank, std::numeric_limits<uint64_t>::max()), &message);
  return static_cast<int64_t>(message.ByteSizeLong());
}

// Runs from anywhere, also where no plan has them.
LayoutPlan AnyLayout(std::mt19937& random, int64_t ranks) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  LayoutPlan layout;
  layout.rows = below(4);
  layout.source_len = below(300);
  layout.padded_len = below(2) == 0 ? layout.source_len : kLargest / 8;
  layout.placement.resize(1);
  layout.placement[0].Append({0, below(layout.source_len + 1)});
  layout.partition.resize(ranks);
  for (IndexMap& map : layout.partition) {
    for (int64_t runs = below(20); runs > 0; --runs) {
      map.Append({below(3) == 0 ? kFill : kLargest / 4 - below(1 << 20), below(40)});
    }
  }
  layout.report.stream_positions = below(2) == 0;
  layout.report.indices = below(2) == 0 ? Report::Indices::kI64 : Report::Indices::kNone;
  layout.report.indices_2d = below(2) == 0;
  layout.report.original_seq_len = -1;  // the longest on the wire
  layout.report.padded_seq_len = -1;
  layout.report.input_row_shape = RowShape{-1, -1};
  return layout;
}

TEST(MaxLayoutBytes, NoLayoutIsLarger) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    ShardPlan plan;
    plan.cp_size = 3;
    for (uint64_t chunks = random() % 4; chunks > 0; --chunks) {
      plan.chunks.push_back(AnyLayout(random, 3));
    }
    for (int64_t rank = 0; rank < 3; ++rank) {
      ASSERT_LE(SizeOf(plan, rank), MaxLayoutBytes(plan, rank)) << ToString(plan);
    }
  }
}

TEST(MinLayoutBytes, NoLayoutIsSmaller) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    ShardPlan plan;
    plan.cp_size = 3;
    for (uint64_t chunks = random() % 4; chunks > 0; --chunks) {
      plan.chunks.push_back(AnyLayout(random, 3));
    }
    for (int64_t rank = 0; rank < 3; ++rank) {
      ASSERT_GE(SizeOf(plan, rank), MinLayoutBytes(plan, rank)) << ToString(plan);
    }
  }
}

TEST(MinLayoutBytes, OfArraysBeyondAnySizeAreOverAMessage) {
  ShardPlan plan;
  plan.chunks.resize(1);
  plan.chunks[0].partition.resize(1);
  plan.chunks[0].rows = plan.chunks[0].source_len = kLargest;
  plan.chunks[0].report.stream_positions = true;
  EXPECT_GE(MinLayoutBytes(plan, 0), kMaxMessageBytes);
}

TEST(MaxLayoutBytes, OneWithoutArraysIsSmallHoweverManyRanksThereAre) {
  ShardPlan plan;
  plan.cp_size = 4096;
  plan.chunks.resize(1);
  plan.chunks[0].partition.resize(4096);
  plan.chunks[0].partition[4095].Append({0, 8});
  EXPECT_LT(MaxLayoutBytes(plan, 4095), 1024);
}

TEST(MaxLayoutBytes, ArraysBeyondAnySizeAreOverWhatAHeadKeeps) {
  ShardPlan plan;
  plan.chunks.resize(1);
  plan.chunks[0].partition.resize(1);
  plan.chunks[0].rows = plan.chunks[0].source_len = kLargest;
  plan.chunks[0].report.stream_positions = true;
  EXPECT_GT(MaxLayoutBytes(plan, 0), kMaxLayoutBytes);
}

}  // namespace
}  // namespace cpshard
