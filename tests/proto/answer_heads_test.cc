// The heads of an answer one by one: their bytes, their sizes, what they hold, and what is refused
// so that they never grow too large.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/proto/answers.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

size_t HeapInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

class AnswerHeadsTest : public AnswerTest {
 protected:
  // Two short streams and one text.
  void MakeWidePlan(int64_t cp_size, size_t text_size) {
    batch_.tensors = {Tokens("input_ids", 1, 8), Tokens("labels", 1, 8)};
    batch_.scalars = {{"text", std::string(text_size, 't')}};
    SharedOptions shared;
    shared.padding_token_id = 0;
    plan_ = *PlanBatch(RoundRobin({}, shared), batch_, cp_size);
    ranks_ = *ResolveRanks({}, cp_size);
  }

  // Streams of 128-byte names and 8 dims, beside one that is cut.
  void MakeLongEntries(int entries) {
    MakePlan(1000, 2);
    StreamPlan stream = plan_.streams.at(2);
    plan_.streams.resize(1);
    plan_.scalars.clear();
    stream.extent = Extent::kWhole;
    stream.dims = {100, 100, 100, 4, 4, 4, 4, 4};
    for (int i = 1; i < entries; ++i) {
      stream.name = absl::StrCat(1000 + i, std::string(124, 'n'));
      plan_.streams.push_back(stream);
    }
  }

  // The frame of all ranks, field by field, for a plan of text scalars and small layouts.
  v1::ShardFrame WholeFrame(int64_t total_bytes) const {
    const ShardBody places = PlaceShards(plan_, ranks_);
    v1::ShardFrame frame;
    frame.mutable_begin()->set_num_shards(ranks_.size());
    frame.mutable_begin()->set_total_bytes(total_bytes);
    for (const Notice& notice : plan_.notices) {
      v1::Notice* to = frame.mutable_begin()->add_notices();
      to->set_code(notice.code);
      to->set_text(notice.text);
    }
    frame.mutable_begin()->set_executor("cpu");
    v1::Totals* totals = frame.mutable_begin()->mutable_totals();
    totals->set_summed_over(v1::SUMMED_OVER_CP_GROUP);
    totals->set_num_label_tokens(901);
    totals->mutable_tokens()->set_real(902);
    totals->mutable_tokens()->set_pad(903);
    totals->mutable_tokens()->set_supervised(904);
    totals->set_documents_from("lengths");
    for (size_t k = 0; k < ranks_.size(); ++k) AddShard(k, places, frame.add_shards());
    return frame;
  }

 private:
  void AddShard(size_t k, const ShardBody& places, v1::Shard* shard) const {
    const LayoutPlan& layout = plan_.chunks.at(0);
    v1::ShardLayout* to = shard->mutable_layout();
    to->set_original_seq_len(layout.source_len);
    to->set_padded_seq_len(layout.padded_len);
    to->set_cp_rank(ranks_[k]);
    to->set_cp_size(plan_.num_ranks());
    to->set_batch_digest(kAnswerDigest);
    for (const cpshard::Run& run : layout.partition[ranks_[k]].runs()) {
      to->add_runs()->set_source(run.source);
      to->mutable_runs()->rbegin()->set_length(run.length);
    }
    for (size_t s = 0; s < plan_.streams.size(); ++s) {
      const StreamPlan& stream = plan_.streams[s];
      const TensorSpec spec = OutputSpec(plan_, stream, ranks_[k]);
      v1::Entry* entry = shard->add_entries();
      entry->set_name(stream.name);
      entry->set_dtype(static_cast<v1::DType>(static_cast<int>(stream.dtype) + 1));
      for (int64_t dim : spec.dims) entry->add_dims(dim);
      entry->set_offset(places.offsets[s * ranks_.size() + k]);
      entry->set_nbytes(NumBytes(spec));
      entry->set_extent(static_cast<v1::Extent>(static_cast<int>(stream.extent) + 1));
      if (stream.extent != Extent::kWhole) entry->set_seq_axis(stream.axis);
    }
    for (const ScalarEntry& scalar : ScalarsOf(plan_, ranks_[k])) {
      v1::Entry* entry = shard->add_entries();
      entry->set_name(scalar.name);
      entry->mutable_scalar()->set_string_value(std::get<std::string>(scalar.value));
    }
    shard->mutable_load()->mutable_tokens()->set_real(1000 + ranks_[k]);
    shard->mutable_load()->mutable_tokens()->set_pad(2000 + ranks_[k]);
    shard->mutable_load()->mutable_tokens()->set_supervised(3000 + ranks_[k]);
    shard->mutable_load()->set_causal_rows(0.5 + static_cast<double>(ranks_[k]));
  }
};

TEST_F(AnswerHeadsTest, TogetherTheyAreOneMessageOfAllRanks) {
  for (const std::vector<int64_t>& ranks :
       {std::vector<int64_t>{}, {5}, {63, 0, 17}, {9, 8, 7, 6, 5, 4, 3, 2, 1}}) {
    MakePlan(1000, 64, 200);
    plan_.notices = {{"code", "text"}};
    ranks_ = *ResolveRanks(ranks, 64);
    const auto answer = Encode();
    ASSERT_TRUE(answer.ok()) << answer.status();
    std::string all;
    for (const std::string& head : AllHeads(answer->heads)) all += head;
    EXPECT_TRUE(all == WholeFrame(answer->body.size).SerializeAsString());
  }
}

TEST_F(AnswerHeadsTest, AHeadIsMadeWhenItIsTakenAndNotBefore) {
  constexpr int64_t kRanks = 4096;
  MakeWidePlan(kRanks, 40'000);
  ASSERT_TRUE(CheckHeads(plan_).ok());
  auto body = ViewShards(plan_, batch_, ranks_, *executor_, pool_);
  ASSERT_TRUE(body.ok()) << body.status();
  const auto plan = std::make_shared<const ShardPlan>(plan_);
  const size_t before = HeapInUse();
  auto answer = EncodeAnswer(plan, ranks_, AnyReport(), kAnswerDigest, *std::move(body), pool_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  int heads = 0;
  size_t most = 0;
  for (; !answer->heads.done(); ++heads) {
    const std::string head = answer->heads.Next();
    EXPECT_LE(static_cast<int64_t>(head.size()), kMaxHeadBytes);
    most = std::max(most, HeapInUse());
  }
  EXPECT_EQ(heads, kRanks) << "no two texts of 40 KB fit one frame";
  EXPECT_LT(most, before + (size_t{1} << 20)) << "all of them take 160 MB";
}

TEST_F(AnswerHeadsTest, NoticesThatFillTheFirstOneLeaveTheShardsToTheNext) {
  MakeWidePlan(2, 40'000);
  plan_.notices = {{"code", std::string(40'000, 'n')}};
  ASSERT_TRUE(CheckHeads(plan_).ok());
  const auto answer = Encode();
  const auto frames = FramesOf(AllHeads(answer->heads));
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].num_shards, 0);
  EXPECT_EQ(frames[0].begin->notices, plan_.notices);
  EXPECT_EQ(frames[2].num_shards, 1);
  ExpectEverythingSurvives(*answer);
}

TEST_F(AnswerHeadsTest, TheLargestThatIsNotRefusedFitsAndMissesNoMoreThanAFewHundredBytes) {
  size_t largest = 0;
  for (size_t size = 64'000; size < 65'400; ++size) {
    MakeWidePlan(2, size);
    if (CheckHeads(plan_).ok()) largest = size;
  }
  MakeWidePlan(2, largest);
  const auto answer = Encode();
  const std::vector<std::string> heads = AllHeads(answer->heads);
  EXPECT_LE(heads.size(), 3u) << "the begin may stand alone";
  EXPECT_GT(static_cast<int64_t>(heads.back().size()), kMaxHeadBytes - 500);
  ExpectEverythingSurvives(*answer);
}

// Ranks of uneven length, streams of any extent, layouts up to and over what a head keeps.
ShardPlan AnyPlan(std::mt19937_64& random) {
  const auto length = [&] { return static_cast<int64_t>(random() >> (44 + random() % 18)); };
  ShardPlan plan;
  plan.cp_size = 1 + random() % 3;
  LayoutPlan& layout = plan.chunks.emplace_back();
  layout.rows = 1 + random() % 2;
  layout.source_len = length() % 9000;
  layout.placement.resize(1);
  layout.placement[0].Append({0, layout.source_len});
  layout.partition.resize(*plan.cp_size);
  for (IndexMap& map : layout.partition) map.Append({length(), length() % 20'000});
  layout.report.stream_positions = random() % 4 == 0;
  layout.report.indices = random() % 2 == 0 ? Report::Indices::kI64 : Report::Indices::kNone;
  plan.streams.resize(random() % 200);
  for (StreamPlan& stream : plan.streams) {
    stream.name = std::string(1 + random() % 128, 'n');
    stream.dims.assign(2 + random() % 3, 1);
    stream.dims[0] = length();
    stream.extent = random() % 2 == 0 ? Extent::kLocal : Extent::kWhole;
  }
  plan.scalars = {{"text", {std::string()}}};
  return plan;
}

// As many bytes as numbers take, and more notices than there is room for.
BatchReport LongestReport(int64_t ranks) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const AreaTotals area{1e300, 1e300, 1e300};
  BatchReport report;
  report.totals = {kMost, kMost, {kMost, kMost, kMost}, kMost, std::string(128, 's'), kMost, {}};
  report.totals.balance = {area, area, area, area, 1e300, kMost, kMost, kMost};
  report.loads.resize(ranks, {{kMost, kMost, kMost}, 1e300, 1e300, 1e300, 1e300});
  report.notices.resize(100, {"code", std::string(1000, 'n')});
  return report;
}

// The longest text beside which CheckHeads passes.
void FillHead(ShardPlan& plan) {
  std::string& text = std::get<std::string>(plan.scalars.at(0).values.at(0));
  size_t most = 0;
  for (size_t step = 32'768; step > 0; step /= 2) {
    text.assign(most + step, 't');
    if (CheckHeads(plan).ok()) most += step;
  }
  text.assign(most, 't');
}

TEST_F(AnswerHeadsTest, FitForAnyPlanThatIsJustNotRefused) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    ShardPlan any = AnyPlan(random);
    FillHead(any);
    ASSERT_TRUE(CheckHeads(any).ok()) << CheckHeads(any);
    const auto plan = std::make_shared<const ShardPlan>(std::move(any));
    auto answer = EncodeAnswer(plan, *ResolveRanks({}, plan->num_ranks()),
                               LongestReport(plan->num_ranks()), 1, {}, pool_);
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (const std::string& head : AllHeads(answer->heads)) {
      ASSERT_LE(static_cast<int64_t>(head.size()), kMaxHeadBytes) << ToString(*plan);
    }
  }
}

TEST_F(AnswerHeadsTest, NoticesOfAReportThatFindNoRoomBesideThePlansOwnAreLeftOut) {
  MakePlan(8, 2);
  BatchReport report = LongestReport(2);
  report.notices.front() = {"own", "of the plan"};
  auto body = ViewShards(plan_, batch_, ranks_, *executor_, pool_);
  const auto answer = EncodeAnswer(std::make_shared<const ShardPlan>(plan_), ranks_, report,
                                   kAnswerDigest, *std::move(body), pool_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto frames = FramesOf(AllHeads(answer->heads));
  EXPECT_EQ(frames.at(0).begin->totals, report.totals);
  const std::vector<Notice>& notices = frames[0].begin->notices;
  ASSERT_GT(notices.size(), 60u) << "64 KiB hold so many of 1,000 bytes";
  EXPECT_TRUE(std::equal(notices.begin(), notices.end(), report.notices.begin()));
}

TEST_F(AnswerHeadsTest, OnesThatNoFrameHoldsAreRefusedWithTheirNumbers) {
  MakePlan(8, 2);
  plan_.scalars.push_back({"large", {std::string(66'000, 'x')}});
  const absl::Status status = CheckHeads(plan_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 0"), HasSubstr(absl::StrCat(NumEntries(), " entries")),
                    HasSubstr("has 66"), HasSubstr("65280")));
}

TEST_F(AnswerHeadsTest, NoticesThatNoFrameHoldsAreRefused) {
  MakePlan(8, 2);
  plan_.notices = {{"code", std::string(66'000, 'x')}};
  const absl::Status status = CheckHeads(plan_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("notices"));
}

TEST_F(AnswerHeadsTest, AsManyEntriesAsABatchMayHaveWithTheLongestNamesAndShapesFit) {
  MakeLongEntries(256);
  EXPECT_TRUE(CheckHeads(plan_).ok()) << CheckHeads(plan_);
  ReportPositions();
  plan_.chunks[0].rows = plan_.chunks[0].source_len = int64_t{1} << 40;
  EXPECT_TRUE(CheckHeads(plan_).ok()) << "the arrays of this layout would be in the body";
  MakeLongEntries(400);
  EXPECT_FALSE(CheckHeads(plan_).ok());
}

TEST_F(AnswerHeadsTest, OfAPlanWithoutALayoutAreCheckedToo) {
  batch_.tensors = {TensorOf("whole", DType::kU8, {3}, {1, 2, 3})};
  plan_ = *PlanBatch(Identity(), batch_, 2);
  EXPECT_TRUE(CheckHeads(plan_).ok());
  plan_.scalars = {{"large", {std::string(66'000, 'x')}}};
  EXPECT_FALSE(CheckHeads(plan_).ok());
}

}  // namespace
}  // namespace cpshard
