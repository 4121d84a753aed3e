// The verbs of core/torch as a C++ trainer calls them, on one rank and for every rank of a mesh
// that is not there. Element value = its column, so that a misplaced token shows where it came
// from.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/plan/partition.h"
#include "core/torch/index_maps.h"
#include "core/torch/token_map.h"
#include "core/torch/token_verbs.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

// [outer, length] of columns.
at::Tensor Columns(int64_t outer, int64_t length) {
  return at::arange(length, at::kFloat).expand({outer, length}).contiguous();
}

std::vector<int64_t> Values(const at::Tensor& indices) {
  const at::Tensor flat = indices.contiguous();
  const int64_t* begin = flat.const_data_ptr<int64_t>();
  return {begin, begin + flat.numel()};
}

TEST(IndexMaps, AreThePlansPartitions) {
  for (int64_t size = 1; size <= 8; ++size) {
    for (int64_t padded = 0; padded <= 48; padded += 2 * size) {
      const auto contiguous = *ContiguousPartition(padded, size);
      const auto round_robin = *RoundRobinPartition(padded, size);
      for (int64_t rank = 0; rank < size; ++rank) {
        EXPECT_EQ(Values(ContiguousLocalIndices({rank, size}, padded)), contiguous[rank].Expand());
        EXPECT_EQ(Values(RoundRobinLocalIndices({rank, size}, padded)), round_robin[rank].Expand());
      }
    }
  }
  EXPECT_EQ(Values(IdentityLocalIndices(3)), (std::vector<int64_t>{0, 1, 2}));
}

TEST(IndexMaps, RefuseALengthThatTheRanksDoNotDivide) {
  const auto text = [](const auto& function) -> std::string {
    try {
      function();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "no ValueError";
  };
  EXPECT_THAT(text([] {
                ContiguousLocalIndices({0, 3}, 8);
              }),
              HasSubstr("divisible by cp_size, and 8 is not by 3"));
  EXPECT_THAT(text([] {
                RoundRobinLocalIndices({0, 2}, 6);
              }),
              HasSubstr("divisible by 2 * cp_size, and 6 is not by 4"));
}

// A part of padded columns, where those from `length` on are `pad`.
void ExpectPart(const LocalSequence& part, int64_t length, float pad) {
  const at::Tensor expected =
      part.local_indices.to(at::kFloat).masked_fill(part.local_indices.ge(length), pad);
  EXPECT_TRUE(at::equal(part.local, expected.expand(part.local.sizes())));
}

TEST(InForward, PadsToTheDivisorOfItsLayoutAndCuts) {
  for (int64_t length = 0; length <= 13; ++length) {
    for (int64_t rank = 0; rank < 2; ++rank) {
      const at::Tensor full = Columns(3, length);
      const auto robin = ShardSequenceForCpRoundRobin({rank, 2}, full, {.pad_value = -7});
      EXPECT_EQ(robin.padded_seq_len.expect_int(), (length + 3) / 4 * 4);
      ExpectPart(robin, length, -7);
      const auto contiguous =
          ShardSequenceForCpContiguous({rank, 2}, full, {.pad_value = -7, .pad_multiple = 3});
      EXPECT_EQ(contiguous.padded_seq_len.expect_int(), (length + 5) / 6 * 6);
      ExpectPart(contiguous, length, -7);
    }
  }
}

TEST(InForward, LeavesTheTensorAsItIsOnOneRank) {
  const at::Tensor full = Columns(2, 5);
  const LocalSequence part = ShardSequenceForCpContiguous({0, 1}, full);
  EXPECT_TRUE(part.local.is_same(full));
  EXPECT_EQ(part.padded_seq_len.expect_int(), 5);
  EXPECT_THROW(ShardSequenceForCpContiguous({0, 1}, full, {.seq_dim = 2}), c10::IndexError);
}

TEST(InForward, GivesTheGradientToTheTokensOfTheRankAlone) {
  const at::Tensor full = Columns(1, 5).requires_grad_();
  ShardSequenceForCpRoundRobin({0, 2}, full).local.sum().backward();  // columns 0 1 6 7
  EXPECT_TRUE(at::equal(full.grad(), at::tensor({1.f, 1.f, 0.f, 0.f, 0.f}).view({1, 5})));
}

TEST(TokenVerbs, WithoutAGroupGatherGivesTheTensorItself) {
  const at::Tensor tensor = Columns(2, 4);
  const TokenMap map = MakeTokenMap(at::tensor({0, 0, 4}, at::kLong).view({1, 3}), {4}, 4);
  EXPECT_TRUE(GatherTokenTensor(tensor, map, {}, Group()).is_same(tensor));
  EXPECT_TRUE(GatherSequence(tensor, Group()).is_same(tensor));
  EXPECT_TRUE(GatherTokenTensorByIndices(Group(), tensor, at::arange(4)).is_same(tensor));
}

TEST(TokenVerbs, AnUnknownGroupIsAnError) { EXPECT_THROW(Group("nobody"), c10::Error); }

}  // namespace
}  // namespace cpshard
