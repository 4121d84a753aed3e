// What readers get of a stored batch is what would be made for them alone.
#include "server/session/stored_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/options.pb.h"
#include "proto/tensor_places.h"
#include "server/stream/outgoing_answer.h"
#include "tests/property/layout_cases.h"

namespace cpshard {
namespace {

using property::LayoutCase;
using property::Point;
using property::Rng;
using property::Sample;

using Terms = std::shared_ptr<const SessionTerms>;

std::string Wire(const std::string& json) {
  v1::ShardingOptions message = Options::FromJson(json)->message();
  return message.SerializeAsString();
}

Terms TermsOf(int64_t cp_size, const std::string& options = "{}", int64_t job_groups = 1) {
  SessionTerms terms;
  terms.cp_size = cp_size;
  terms.options = Wire(options);
  terms.job_groups = job_groups;
  return std::make_shared<const SessionTerms>(terms);
}

// All frames of an answer, one after the other.
std::string FramesOf(Answer answer) {
  OutgoingAnswer outgoing(7, std::move(answer), Credit{});
  std::string frames;
  while (!outgoing.done()) {
    const OutFrame frame = outgoing.Next();
    frames += frame.header;
    for (const Buffer& piece : frame.body) {
      frames.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  return frames;
}

class StoredBatchTest : public testing::Test {
 protected:
  // As it is when all bytes of `batch` have landed: in one block.
  ArrivedBatch Arrived(const Batch& batch, const ShardPlan& plan) {
    ArrivedBatch arrived;
    arrived.spec = SpecOf(batch, plan.cp_size);
    const std::vector<TensorPlace> places = PlaceTensors(arrived.spec, {});
    for (const TensorPlace& place : places) {
      arrived.bytes = std::max(arrived.bytes, place.offset + place.nbytes);
    }
    const Buffer block = *pool_.Allocate(arrived.bytes);
    for (size_t i = 0; i < places.size(); ++i) {
      const Tensor& tensor = batch.tensors[i];
      Buffer bytes;
      if (places[i].nbytes > 0) {
        bytes = block.Slice(places[i].offset, places[i].nbytes);
        std::memcpy(bytes.data(), tensor.buffer.data(), bytes.size());
      }
      arrived.batch.tensors.push_back({tensor.spec, bytes});
    }
    arrived.batch.scalars = batch.scalars;
    arrived.ranks = *ResolveRanks({}, plan.num_ranks());
    arrived.plan = std::make_shared<const ShardPlan>(plan);
    arrived.output_bytes = *CheckedAnswerBytes(plan, arrived.ranks, Limits());
    arrived.digest = DigestOf(batch);
    return arrived;
  }

  std::shared_ptr<const StoredBatch> Stored(const Batch& batch, const ShardPlan& plan,
                                            const Terms& terms) {
    return *StoredBatch::Make(Arrived(batch, plan), terms, {Limits(), &executors_, &pool_});
  }

  // The frames of a rank's shard that is made for it alone.
  std::string Alone(const Batch& batch, const ShardPlan& plan, int64_t rank) {
    ShardBody body = *ViewShards(plan, batch, {rank}, *executor_, pool_);
    BatchReport report =
        ReportOf(InspectBatch(plan, SpecOf(batch, plan.cp_size), batch, Detail::kBatch), {rank});
    return FramesOf(*EncodeAnswer(std::make_shared<const ShardPlan>(plan), {rank},
                                  std::move(report), DigestOf(batch), std::move(body), pool_));
  }

  void ExpectPartsAsAlone(const StoredBatch& stored, const SessionTerms& terms, const Batch& batch,
                          const ShardPlan& plan, std::optional<int64_t> min_padded_len = {}) {
    for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
      auto part = stored.PartOf(terms, rank, min_padded_len, {}, nullptr);
      ASSERT_TRUE(part.ok()) << part.status();
      ASSERT_EQ(FramesOf(*std::move(part)), Alone(batch, plan, rank)) << "rank " << rank;
    }
  }

  // ids and labels of two rows, cut round robin.
  Batch Rows(int64_t columns) {
    Batch batch;
    for (const char* name : {"input_ids", "labels"}) {
      const TensorSpec spec{name, DType::kI64, {2, columns}};
      const Buffer bytes = *pool_of_tests_.Allocate(NumBytes(spec));
      for (int64_t i = 0; i < 2 * columns; ++i) std::memcpy(bytes.data() + 8 * i, &i, 8);
      batch.tensors.push_back({spec, bytes});
    }
    return batch;
  }
  // Of two documents a row, [2, 2].
  Tensor Lengths(const std::string& name, const std::vector<int64_t>& values) {
    const Buffer bytes = *pool_of_tests_.Allocate(8 * values.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return {{name, DType::kI64, {2, 2}}, bytes};
  }
  ShardPlan PlanOf(const Batch& batch, int64_t cp_size, const std::string& options = kRoundRobin) {
    return *PlanBatch(*Options::FromJson(options)->MakeSharder(), batch, cp_size);
  }

  static constexpr char kRoundRobin[] = R"({"round_robin": {}})";
  BufferPool pool_, pool_of_tests_;
  std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
  const Executors executors_{{MakeCpuExecutor(), "as asked for", nullptr}};
};

class StoredBatchOf : public StoredBatchTest, public testing::WithParamInterface<LayoutCase> {};

TEST_P(StoredBatchOf, GivesEveryRankWhatWouldBeMadeForItAlone) {
  int64_t compared = 0;
  for (const int64_t cp_size : {1, 2, 4}) {
    for (const int64_t length : {0, 7, 12, 31, 600}) {
      for (const int64_t rows : {1, 2}) {
        if (length * rows > 600) continue;
        const Point point =
            GetParam().NearestPoint({.cp_size = cp_size, .length = length, .rows = rows});
        Rng rng(static_cast<uint64_t>(cp_size * 10'000 + length * 10 + rows));
        const Sample sample = GetParam().Draw(point, rng);
        const Batch batch = property::ToProduct(sample);
        const auto plan = PlanBatch(GetParam().SharderFor(sample, point), batch, point.cp_size);
        if (!plan.ok()) continue;
        SCOPED_TRACE(property::Describe(sample, point));
        const Terms terms = TermsOf(*point.cp_size);
        const auto stored = Stored(batch, *plan, terms);
        ExpectPartsAsAlone(*stored, *terms, batch, *plan);
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 8);
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoredBatchOf, testing::ValuesIn(property::LayoutCases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(StoredBatchTest, IsCutAnewForAnotherNumberOfRanksAndBack) {
  const Batch batch = Rows(1000);
  const Terms two = TermsOf(2, kRoundRobin), four = TermsOf(4, kRoundRobin);
  const auto stored = Stored(batch, PlanOf(batch, 2), two);
  ExpectPartsAsAlone(*stored, *four, batch, PlanOf(batch, 4));
  ExpectPartsAsAlone(*stored, *two, batch, PlanOf(batch, 2));
}

TEST_F(StoredBatchTest, IsCutAnewForOtherOptions) {
  const Batch batch = Rows(100);
  const std::string contiguous = R"({"contiguous": {"pad_multiple": 16}, "padding_token_id": 5})";
  const auto stored = Stored(batch, PlanOf(batch, 2), TermsOf(2, kRoundRobin));
  ExpectPartsAsAlone(*stored, *TermsOf(2, contiguous), batch, PlanOf(batch, 2, contiguous));
}

// The CPU's, by another name.
class NamedCuda final : public Executor {
 public:
  absl::Status Run(absl::Span<const Task> tasks) override { return cpu_->Run(tasks); }
  absl::string_view name() const override { return "cuda:0"; }

 private:
  const std::unique_ptr<Executor> cpu_ = MakeCpuExecutor();
};

TEST_F(StoredBatchTest, IsCutAnewForAnExecutorThatIsNamedAndDidNotCutIt) {
  const Executors executors({std::make_unique<NamedCuda>(), "H200", nullptr});
  const Batch batch = Rows(100);
  const ShardPlan plan = PlanOf(batch, 2);
  const auto asking = [](ExecutorKind kind) {
    SessionTerms terms = *TermsOf(2, kRoundRobin);
    terms.executor = kind;
    return std::make_shared<const SessionTerms>(terms);
  };
  const auto stored = *StoredBatch::Make(Arrived(batch, plan), asking(ExecutorKind::kCpu),
                                         {Limits(), &executors, &pool_});
  const auto by = [&](ExecutorKind kind) {
    return stored->PartOf(*asking(kind), 1, {}, {}, nullptr)->body.executor;
  };
  EXPECT_EQ(by(ExecutorKind::kCpu), "cpu");
  EXPECT_EQ(by(ExecutorKind::kAuto), "cpu");  // takes what there is
  EXPECT_EQ(by(ExecutorKind::kCuda), "cuda:0");
  EXPECT_EQ(by(ExecutorKind::kAuto), "cuda:0");
  EXPECT_EQ(by(ExecutorKind::kCpu), "cpu");
}

TEST_F(StoredBatchTest, SaysWhyItCannotBeCutAnew) {
  Batch batch = Rows(100);
  const auto stored = Stored(batch, PlanOf(batch, 2), TermsOf(2, kRoundRobin));
  const auto part = stored->PartOf(*TermsOf(2, R"({"thd": {}})"), 0, {}, {}, nullptr);
  EXPECT_EQ(part.status().code(), absl::StatusCode::kInvalidArgument);
  ExpectPartsAsAlone(*stored, *TermsOf(2, kRoundRobin), batch, PlanOf(batch, 2));
}

TEST_F(StoredBatchTest, OfAJobIsCutWhenTheLengthIsAgreed) {
  Batch batch = Rows(8);
  batch.tensors.push_back(Lengths("seq_lens", {3, 2, 4, 3}));
  batch.tensors.push_back(Lengths("seq_lens_padded", {4, 2, 4, 4}));
  const std::string options = R"({"deepseek_v4": {}, "padding_token_id": 7)";
  const ShardPlan plan = PlanOf(batch, 2, options + "}");
  ASSERT_TRUE(plan.row_need);
  const Terms terms = TermsOf(2, options + "}", 2);
  const auto stored = Stored(batch, plan, terms);
  EXPECT_EQ(stored->Landed(stored).row_need, plan.row_need);
  const int64_t agreed = 4 * *plan.row_need;
  const ShardPlan longer =
      PlanOf(batch, 2, absl::StrCat(options, ", \"min_padded_len\": ", agreed, "}"));
  ExpectPartsAsAlone(*stored, *terms, batch, longer, agreed);
  EXPECT_NE(longer, plan);
}

TEST_F(StoredBatchTest, GivesSelectedStreamsAlone) {
  Batch batch = Rows(600);
  batch.scalars = {{"note", "text"}, {"other", "more"}};
  const ShardPlan plan = PlanOf(batch, 2);
  const Terms terms = TermsOf(2, kRoundRobin);
  const auto stored = Stored(batch, plan, terms);
  for (const int64_t rank : {0, 1}) {
    ShardPlan labels = plan;
    std::erase_if(labels.streams, [](const auto& stream) { return stream.name != "labels"; });
    std::erase_if(labels.scalars, [](const auto& scalar) { return scalar.name != "note"; });
    // The report is of the batch, whatever is selected.
    ShardBody body = *ViewShards(labels, batch, {rank}, *executor_, pool_);
    BatchReport report =
        ReportOf(InspectBatch(plan, SpecOf(batch, 2), batch, Detail::kBatch), {rank});
    const std::string expected =
        FramesOf(*EncodeAnswer(std::make_shared<const ShardPlan>(labels), {rank}, std::move(report),
                               DigestOf(batch), std::move(body), pool_));
    const std::vector<std::string> keys = {"note", "labels"};
    EXPECT_EQ(FramesOf(*stored->PartOf(*terms, rank, {}, keys, nullptr)), expected);
  }
}

TEST_F(StoredBatchTest, RefusesAStreamThatItDoesNotHaveAndNamesThoseThatItHas) {
  const Batch batch = Rows(10);
  const Terms terms = TermsOf(2, kRoundRobin);
  const auto stored = Stored(batch, PlanOf(batch, 2), terms);
  const std::vector<std::string> keys = {"labels", "lables"};
  const absl::Status status = stored->PartOf(*terms, 0, {}, keys, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("'lables'"), testing::HasSubstr("input_ids"),
                             testing::HasSubstr("labels")));
}

TEST_F(StoredBatchTest, AnAnswerKeepsItsPinAndItsMemoryToTheLastPiece) {
  const Batch batch = Rows(3000);
  const Terms terms = TermsOf(2, kRoundRobin);
  auto stored = Stored(batch, PlanOf(batch, 2), terms);
  auto pin = std::make_shared<int>(0);
  const std::weak_ptr<int> pinned = pin;
  std::optional<Answer> answer = *stored->PartOf(*terms, 1, {}, {}, std::move(pin));
  ASSERT_GT(answer->body.pieces.size(), 1u);
  std::vector<Buffer> pieces = std::move(answer->body.pieces);
  answer.reset();
  stored.reset();
  while (!pieces.empty()) {
    EXPECT_FALSE(pinned.expired());
    EXPECT_GT(pool_.stats().buffers_out, 0u);
    pieces.pop_back();
  }
  EXPECT_TRUE(pinned.expired());
  EXPECT_EQ(pool_.stats().buffers_out, 0u);
}

TEST_F(StoredBatchTest, CountsTheMemoryThatItTakes) {
  for (const int64_t columns : {1, 10, 600, 5000, 40'000}) {
    const Batch batch = Rows(columns);
    for (const char* options : {kRoundRobin, R"({"contiguous": {}, "padding_token_id": 0})"}) {
      const auto stored = Stored(batch, PlanOf(batch, 4, options), TermsOf(4, options));
      const int64_t counted = stored->Landed(stored).bytes;
      // Blocks are up to a quarter larger than what was asked for.
      EXPECT_GE(counted + counted / 4, static_cast<int64_t>(pool_.stats().bytes_out)) << columns;
      EXPECT_LE(counted, MemoryOfStep(2 * 8 * 2 * columns)) << columns;
    }
  }
}

TEST(SentBytes, OfAStepAreThoseThatItsMemoryWasAskedFor) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1} << 20, int64_t{1} << 40}) {
    EXPECT_EQ(SentBytesOfStep(MemoryOfStep(bytes)), bytes);
    EXPECT_GE(MemoryOfStep(bytes), MemoryOfBatch(bytes));
  }
}

}  // namespace
}  // namespace cpshard
