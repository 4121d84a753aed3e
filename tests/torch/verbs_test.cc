// The verbs of core/torch as a C++ trainer calls them, on one rank and for every rank of a mesh
// that is not there. Element value = its column, so that a misplaced token shows where it came
// from.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "core/exec/token_verbs.h"
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

std::string ValueErrorOf(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no ValueError";
}

TEST(IndexMaps, RefuseALengthThatTheRanksDoNotDivide) {
  EXPECT_THAT(ValueErrorOf([] {
                ContiguousLocalIndices({0, 3}, 8);
              }),
              HasSubstr("divisible by cp_size, and 8 is not by 3"));
  EXPECT_THAT(ValueErrorOf([] {
                RoundRobinLocalIndices({0, 2}, 6);
              }),
              HasSubstr("divisible by 2 * cp_size, and 6 is not by 4"));
  EXPECT_THAT(ValueErrorOf([] { RoundRobinLocalIndices({0, 2}, -8); }), HasSubstr("-8"));
}

TEST(IndexMaps, RefuseARankThatTheGroupHasNot) {
  for (const CpRank cp : {CpRank{5, 2}, CpRank{-1, 2}, CpRank{2, 2}, CpRank{0, 0}, CpRank{0, -2}}) {
    const std::string expected = c10::str("rank ", cp.rank, " is none of a group of ", cp.size);
    const at::Tensor full = Columns(1, 8);
    EXPECT_THAT(ValueErrorOf([&] { ContiguousLocalIndices(cp, 8); }), HasSubstr(expected));
    EXPECT_THAT(ValueErrorOf([&] { RoundRobinLocalIndices(cp, 8); }), HasSubstr(expected));
    EXPECT_THAT(ValueErrorOf([&] { ShardSequenceForCpRoundRobin(cp, full); }), HasSubstr(expected));
    EXPECT_THAT(ValueErrorOf([&] { ShardSequenceForCpContiguous(cp, full); }), HasSubstr(expected));
  }
}

TEST(InForward, RefusesAMultipleThatNoLengthCanBePaddedTo) {
  for (const int64_t multiple : {int64_t{1} << 62, INT64_MAX}) {
    EXPECT_THAT(ValueErrorOf([&] {
                  ShardSequenceForCpContiguous({0, 2}, Columns(1, 6), {.pad_multiple = multiple});
                }),
                HasSubstr(std::to_string(multiple)));
  }
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
  EXPECT_TRUE(GatherTokenTensor(tensor, map, {}, TokenGroup()).is_same(tensor));
  EXPECT_TRUE(GatherSequence(tensor, TokenGroup()).is_same(tensor));
  EXPECT_TRUE(GatherTokenTensorByIndices(TokenGroup(), tensor, at::arange(4)).is_same(tensor));
}

// Of the slots of the one rank.
const std::vector<int64_t> kTurned = {1, 2, 3, 0};

TEST(TokenVerbs, WithoutAGroupTheColumnsOfOneRankAreStillPutInTheirOrder) {
  const TokenMap map = MakeTokenMap(at::tensor({0, 1, 3, 0, 0, 1}, at::kLong).view({2, 3}), {4}, 4);
  const at::Tensor full = Columns(2, 4), indices = at::tensor(kTurned);
  const TokenTensorLayout padded{.original_seq_len = 3, .padded_seq_len = 4};
  at::Tensor local = ShardTokenTensorByIndices(full, indices).requires_grad_();
  EXPECT_TRUE(at::equal(GatherTokenTensor(local, map, {}, TokenGroup()), full));
  EXPECT_TRUE(at::equal(GatherTokenTensor(local, map, padded, TokenGroup(), {.trim = true}),
                        full.narrow(1, 0, 3)));
  (GatherTokenTensor(local, map, {}, TokenGroup()) * full).sum().backward();
  EXPECT_TRUE(at::equal(local.grad(), indices.to(at::kFloat).expand({2, 4})));
}

TEST(TokenVerbs, WithoutAGroupAMapOfOneRankMustFitTheTensor) {
  const TokenMap map = MakeTokenMap(at::tensor({0, 1, 3, 0, 0, 1}, at::kLong).view({2, 3}), {4}, 4);
  const at::Tensor five = Columns(1, 5);
  EXPECT_THAT(ValueErrorOf([&] { GatherTokenTensor(five, map, {}, TokenGroup()); }),
              HasSubstr("5 slots on axis 1, the map has 4"));
}

TEST(TokenVerbs, WithoutAGroupIndicesChangeNothing) {
  const at::Tensor tensor = Columns(2, 4);
  for (const std::vector<int64_t>& columns : {kTurned, {7, 6, 1, 0}, {0, 0, 1, 1}, {-1, 0, 1, 2}}) {
    EXPECT_TRUE(
        GatherTokenTensorByIndices(TokenGroup(), tensor, at::tensor(columns)).is_same(tensor));
  }
}

// A group of this process alone, to be found and not used.
c10::intrusive_ptr<c10d::ProcessGroup> GroupOf(int rank, const std::string& name) {
  struct Silent : c10d::Backend {
    using c10d::Backend::Backend;
    const std::string getBackendName() const override { return "silent"; }
  };
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, 2);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<Silent>(rank, 2)));
  if (!name.empty()) group->setGroupName(name);
  return group;
}

TEST(TokenGroups, AreFoundByTheNameOfTheirHandleAndNoOther) {
  const auto first = GroupOf(0, "cp"), second = GroupOf(1, "cp");
  EXPECT_EQ(TokenGroup(first).rank(), 0);
  EXPECT_EQ(TokenGroup(first).rank(), 0);  // its own name is no other's
  EXPECT_EQ(TokenGroup("cp").rank(), 0);
  EXPECT_THAT(ValueErrorOf([&] { TokenGroup group(second); }), HasSubstr("registered as 'cp'"));
  EXPECT_THAT(ValueErrorOf([] { TokenGroup group(GroupOf(0, "")); }), HasSubstr("has no name"));
}

TEST(TokenGroups, TakeANameWhoseGroupIsGone) {
  { EXPECT_EQ(TokenGroup(GroupOf(0, "brief")).rank(), 0); }
  const auto again = GroupOf(1, "brief");
  EXPECT_EQ(TokenGroup(again).rank(), 1);
  EXPECT_EQ(TokenGroup("brief").rank(), 1);
}

// Of a batch that was planned here, and of tensors: one program has both.
TEST(TokenVerbs, BesideThoseOverBytes) {
  const HeldColumns held{.closed_form = HeldColumns::ClosedForm::kRoundRobin, .cp_size = 2};
  const auto partition = *PartitionOf(held, 8);
  EXPECT_EQ(Values(RoundRobinLocalIndices({1, 2}, 8)), partition[1].Expand());
}

TEST(TokenVerbs, AnUnknownGroupIsAnError) { EXPECT_THROW(TokenGroup("nobody"), c10::Error); }

}  // namespace
}  // namespace cpshard
