// What an answer says of a batch beside its shards is the same by every way: in process, in the
// reply of a unary call, in the frames of a stream. Over many small batches of every layout.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <utility>

#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "proto/frames.h"
#include "tests/property/checks.h"
#include "tests/property/layout_cases.h"
#include "tests/property/stitching.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

ShardResult ByUnaryCall(const ShardPlan& plan, const Batch& batch,
                        const std::vector<int64_t>& ranks) {
  v1::ShardBatchReply reply;
  const absl::Status written =
      WriteShardBatchReply(plan, batch, ranks, TheExecutor(), ThePool(), &reply);
  EXPECT_TRUE(written.ok()) << written;
  auto result = DecodeShardBatchReply(&reply);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

ShardResult ByFrames(const ShardPlan& plan, const Batch& batch, const std::vector<int64_t>& ranks) {
  EXPECT_TRUE(CheckHeads(plan).ok()) << CheckHeads(plan);
  auto body = ViewShards(plan, batch, ranks, TheExecutor(), ThePool());
  EXPECT_TRUE(body.ok()) << body.status();
  BatchReport report = ReportOf(InspectBatch(plan, SpecOf(batch, plan.cp_size), batch), ranks);
  auto answer = EncodeAnswer(std::make_shared<const ShardPlan>(plan), ranks, std::move(report), 1,
                             *std::move(body), ThePool());
  EXPECT_TRUE(answer.ok()) << answer.status();
  std::vector<ShardFrame> frames;
  while (!answer->heads.done()) {
    const std::string message = EncodeShardFrame({}, answer->heads.Next(), 0);
    EXPECT_LE(static_cast<int64_t>(message.size()), kMaxHeaderBytes);
    auto frame = DecodeShardFrame(
        {Bytes(reinterpret_cast<const std::byte*>(message.data()), message.size())});
    EXPECT_TRUE(frame.ok()) << frame.status();
    frames.push_back(*std::move(frame));
  }
  auto bytes = std::make_shared<std::vector<std::byte>>(answer->body.size);
  const Buffer whole(bytes, bytes->data(), bytes->size());
  auto shards = ReadShards(frames, whole);
  EXPECT_TRUE(shards.ok()) << shards.status();
  return {*std::move(shards), frames.front().begin->notices, frames.front().begin->totals};
}

void ExpectTheSame(const ShardResult& got, const ShardResult& want, const char* way) {
  EXPECT_EQ(got.totals, want.totals) << way;
  EXPECT_EQ(got.notices, want.notices) << way;
  ASSERT_EQ(got.shards.size(), want.shards.size());
  for (size_t k = 0; k < want.shards.size(); ++k) {
    EXPECT_EQ(got.shards[k].load, want.shards[k].load) << way << ", shard " << k;
  }
}

class Reports : public testing::TestWithParam<LayoutCase> {};

TEST_P(Reports, AreTheSameInProcessInAReplyAndInFrames) {
  int64_t compared = 0, with_labels = 0, with_loads = 0;
  for (int64_t cp_size = 0; cp_size <= 5; ++cp_size) {
    for (int64_t length = 0; length <= 30; length += 2) {
      Point point{.length = length, .rows = 1 + length % 3};
      if (cp_size > 0) point.cp_size = cp_size;
      point = GetParam().NearestPoint(point);
      Rng rng(cp_size * 31 + length);
      Sample sample = GetParam().Draw(point, rng);
      GetParam().Fit(sample);
      const Batch batch = ToProduct(sample);
      const auto plan = PlanBatch(GetParam().SharderFor(sample, point), batch, point.cp_size);
      if (!plan.ok() || HasFailure()) continue;
      // The last rank alone, then all of them: the totals are the batch's both times.
      std::vector<int64_t> ranks = {point.num_ranks() - 1};
      auto one = MakeShards(*plan, batch, ranks, TheExecutor(), ThePool());
      auto all =
          MakeShards(*plan, batch, *ResolveRanks({}, point.num_ranks()), TheExecutor(), ThePool());
      ASSERT_TRUE(one.ok() && all.ok());
      AddReport(*plan, batch, *one);
      AddReport(*plan, batch, *all);
      EXPECT_EQ(one->totals, all->totals);
      EXPECT_EQ(one->shards[0].load, all->shards.back().load);
      ExpectTheSame(ByUnaryCall(*plan, batch, ranks), *one, "unary");
      ExpectTheSame(ByFrames(*plan, batch, ranks), *one, "stream");
      ranks = *ResolveRanks({}, point.num_ranks());
      ExpectTheSame(ByUnaryCall(*plan, batch, ranks), *all, "unary");
      ExpectTheSame(ByFrames(*plan, batch, ranks), *all, "stream");
      ++compared;
      with_labels += all->totals.num_label_tokens.has_value() ? 1 : 0;
      with_loads += all->shards[0].load.has_value() ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 10);
  EXPECT_GT(with_labels, 0);
  EXPECT_GT(with_loads, 0);
}

INSTANTIATE_TEST_SUITE_P(EveryLayout, Reports, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard::property
