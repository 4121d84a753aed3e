#include "proto/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Element i of the tensor is the byte `first + i`.
Tensor Bytes(const char* name, DType dtype, std::vector<int64_t> dims, uint8_t first,
             BufferPool& pool) {
  Tensor tensor{{name, dtype, std::move(dims)}, {}};
  tensor.buffer = *pool.Allocate(NumBytes(tensor.spec));
  for (size_t i = 0; i < tensor.buffer.size(); ++i) {
    tensor.buffer.data()[i] = static_cast<std::byte>(first + i);
  }
  return tensor;
}

class CodecTest : public ::testing::Test {
 protected:
  CodecTest() {
    batch_.tensors.push_back(Bytes("input_ids", DType::kI16, {2, 3}, 1, pool_));
    batch_.tensors.push_back(Bytes("empty", DType::kF64, {0, 3}, 0, pool_));
    batch_.tensors.push_back(Bytes("scalar_tensor", DType::kBF16, {}, 90, pool_));
    batch_.scalars = {{"flag", true}, {"count", int64_t{-3}}, {"rate", 0.5}, {"note", "x"}};
    options_ = *Options::FromJson(R"({"identity": {}})");
  }

  v1::ShardBatchRequest Encoded() {
    v1::ShardBatchRequest message;
    EXPECT_TRUE(
        EncodeShardBatchRequest(batch_, options_, 2, {}, ExecutorKind::kAuto, &message).ok());
    return message;
  }

  absl::Status DecodeStatus(const v1::ShardBatchRequest& message) {
    return DecodeShardBatchRequest(message, Limits()).status();
  }

  BufferPool pool_;
  Batch batch_;
  Options options_;
};

TEST_F(CodecTest, ARequestSurvivesTheWire) {
  const v1::ShardBatchRequest message = Encoded();
  const auto request = DecodeShardBatchRequest(message, Limits());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->cp_size, 2);
  EXPECT_EQ(request->ranks, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(request->batch.scalars, batch_.scalars);
  ASSERT_EQ(request->batch.tensors.size(), batch_.tensors.size());
  for (size_t i = 0; i < batch_.tensors.size(); ++i) {
    EXPECT_EQ(request->batch.tensors[i].spec, batch_.tensors[i].spec);
    EXPECT_EQ(request->batch.tensors[i].bytes(), batch_.tensors[i].bytes());
  }
}

TEST_F(CodecTest, NoMeshAndAMeshOfOneStayApart) {
  for (std::optional<int64_t> cp_size : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
    v1::ShardBatchRequest message;
    ASSERT_TRUE(
        EncodeShardBatchRequest(batch_, options_, cp_size, {}, ExecutorKind::kAuto, &message).ok());
    EXPECT_EQ(DecodeShardBatchRequest(message, Limits())->cp_size, cp_size);
  }
}

TEST_F(CodecTest, TheExecutorThatIsAskedForSurvivesTheWire) {
  for (ExecutorKind executor : {ExecutorKind::kAuto, ExecutorKind::kCpu, ExecutorKind::kCuda}) {
    v1::ShardBatchRequest message;
    ASSERT_TRUE(EncodeShardBatchRequest(batch_, options_, 2, {}, executor, &message).ok());
    EXPECT_EQ(DecodeShardBatchRequest(message, Limits())->executor, executor);
  }
  EXPECT_EQ(DecodeShardBatchRequest(Encoded(), Limits())->executor, ExecutorKind::kAuto);
}

TEST_F(CodecTest, AnExecutorThatIsNoneIsRefusedAndNotTakenForAnother) {
  for (int number : {3, -1, 99}) {
    v1::ShardBatchRequest message = Encoded();
    message.set_executor(static_cast<v1::Executor>(number));
    const absl::Status status = DecodeStatus(message);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("executor ", number, " is")));
  }
}

TEST_F(CodecTest, EveryTensorBeginsAtAMultipleOf64) {
  const v1::ShardBatchRequest message = Encoded();
  for (const v1::Entry& entry : message.entries()) EXPECT_EQ(entry.offset() % 64, 0u);
}

TEST_F(CodecTest, ATensorThatLiesWrongIsRefusedByName) {
  const v1::ShardBatchRequest good = Encoded();
  struct Case {
    const char* why;
    std::function<void(v1::ShardBatchRequest&)> spoil;
  };
  const Case cases[] = {
      {"nbytes", [](auto& m) { m.mutable_entries(0)->set_nbytes(11); }},
      {"multiple of 64", [](auto& m) { m.mutable_entries(0)->set_offset(32); }},
      {"beyond", [](auto& m) { m.mutable_entries(0)->set_offset(640); }},
      {"beyond", [](auto& m) { m.mutable_entries(0)->set_offset(~uint64_t{63}); }},
      {"overlap", [](auto& m) { m.mutable_entries(2)->set_offset(0); }},
      {"beyond", [](auto& m) { m.mutable_body()->resize(5); }},
      {"dtype", [](auto& m) { m.mutable_entries(0)->set_dtype(static_cast<v1::DType>(99)); }},
      {"dtype", [](auto& m) { m.mutable_entries(0)->clear_dtype(); }},
      {"both", [](auto& m) { m.mutable_entries(0)->mutable_scalar()->set_bool_value(true); }},
      {"negative", [](auto& m) { m.mutable_entries(0)->set_dims(0, -2); }},
  };
  for (const Case& c : cases) {
    v1::ShardBatchRequest message = good;
    c.spoil(message);
    const absl::Status status = DecodeStatus(message);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

TEST_F(CodecTest, NumbersThatDoNotFitTheWireAreRefusedNotCutOff) {
  for (int64_t number : {int64_t{-1}, (int64_t{1} << 32) + 2, int64_t{-1} << 62}) {
    v1::ShardBatchRequest message;
    EXPECT_EQ(
        EncodeShardBatchRequest(batch_, options_, number, {}, ExecutorKind::kAuto, &message).code(),
        absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(EncodeShardBatchRequest(batch_, options_, 2, {number}, ExecutorKind::kAuto, &message)
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(CodecTest, AScalarWithoutAValueIsRefused) {
  v1::ShardBatchRequest message = Encoded();
  v1::Entry* entry = message.add_entries();
  entry->set_name("nothing");
  entry->mutable_scalar();
  EXPECT_THAT(std::string(DecodeStatus(message).message()), HasSubstr("nothing"));
}

TEST_F(CodecTest, ARequestOverFourMebibytesNamesTheStreamCall) {
  batch_.tensors.push_back(Bytes("large", DType::kU8, {int64_t{4} << 20}, 0, pool_));
  v1::ShardBatchRequest message;
  const absl::Status status =
      EncodeShardBatchRequest(batch_, options_, 2, {}, ExecutorKind::kAuto, &message);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ShardBatches"));
}

TEST_F(CodecTest, AReplyCarriesAStreamThatEveryRankHoldsWholeOnce) {
  const Sharder sharder = *options_.MakeSharder();
  const ShardPlan plan = *PlanBatch(sharder, batch_, 2);
  v1::ShardBatchReply reply;
  const auto executor = MakeCpuExecutor();
  ASSERT_TRUE(WriteShardBatchReply(plan, batch_, {0, 1}, *executor, pool_, &reply).ok());
  EXPECT_EQ(reply.shards(0).entries(0).offset(), reply.shards(1).entries(0).offset());
  EXPECT_LE(reply.body().size(), 128u);
  const auto result = DecodeShardBatchReply(&reply);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const RankShard& shard : result->shards) {
    EXPECT_EQ(shard.layout.batch_digest, DigestOf(batch_));
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      EXPECT_EQ(shard.batch.tensors[i].bytes(), batch_.tensors[i].bytes());
      EXPECT_EQ(shard.cuts[i].extent, Extent::kWhole);
    }
  }
}

// The CPU under another name.
class NamedExecutor final : public Executor {
 public:
  absl::Status Run(absl::Span<const Task> tasks) override { return cpu_->Run(tasks); }
  absl::string_view name() const override { return "cuda:3"; }

 private:
  const std::unique_ptr<Executor> cpu_ = MakeCpuExecutor();
};

TEST_F(CodecTest, AReplyNamesTheExecutorThatMadeIt) {
  const ShardPlan plan = *PlanBatch(*options_.MakeSharder(), batch_, 2);
  NamedExecutor executor;
  v1::ShardBatchReply reply;
  ASSERT_TRUE(WriteShardBatchReply(plan, batch_, {0, 1}, executor, pool_, &reply).ok());
  EXPECT_EQ(DecodeShardBatchReply(&reply)->executor, "cuda:3");
}

TEST_F(CodecTest, AReplyTooLargeByItsEntriesAloneIsRefusedBeforeItIsBuilt) {
  for (int i = 0; i < 200; ++i) {
    batch_.tensors.push_back(Bytes(absl::StrCat("stream", i).c_str(), DType::kBool, {1}, 0, pool_));
  }
  const ShardPlan plan = *PlanBatch(*options_.MakeSharder(), batch_, 4096);
  const std::vector<int64_t> ranks = *ResolveRanks({}, 4096);
  v1::ShardBatchReply reply;
  const auto executor = MakeCpuExecutor();
  const absl::Status status = WriteShardBatchReply(plan, batch_, ranks, *executor, pool_, &reply);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ShardBatches"));
  EXPECT_EQ(reply.shards_size(), 0);
}

TEST_F(CodecTest, AReplyMayHoldMoreEntriesThanABatch) {
  v1::ShardBatchReply reply;
  v1::Shard* shard = reply.add_shards();
  shard->mutable_layout()->set_cp_size(1);
  for (int i = 0; i < 300; ++i) {
    v1::Entry* entry = shard->add_entries();
    entry->set_name(absl::StrCat("stream", i));
    entry->set_dtype(v1::DTYPE_U8);
    entry->add_dims(0);
    entry->set_extent(v1::EXTENT_WHOLE);
  }
  EXPECT_TRUE(DecodeShardBatchReply(&reply).ok());
}

TEST_F(CodecTest, AReplyThatLiesIsRefusedByTheClient) {
  const Sharder sharder = *options_.MakeSharder();
  const ShardPlan plan = *PlanBatch(sharder, batch_, 2);
  v1::ShardBatchReply reply;
  const auto executor = MakeCpuExecutor();
  ASSERT_TRUE(WriteShardBatchReply(plan, batch_, {0}, *executor, pool_, &reply).ok());
  reply.mutable_shards(0)->mutable_entries(0)->set_offset(1 << 20);
  EXPECT_EQ(DecodeShardBatchReply(&reply).status().code(), absl::StatusCode::kInvalidArgument);
}

// Positions that no memory holds: to make them would be the end of the test.
ShardPlan PlanOfEndlessPositions() {
  ShardPlan plan;
  plan.cp_size = 2;
  plan.chunks.resize(1);
  plan.chunks[0].rows = plan.chunks[0].source_len = int64_t{1} << 40;
  plan.chunks[0].placement.resize(1);
  plan.chunks[0].partition.resize(2);
  plan.chunks[0].report.stream_positions = true;
  return plan;
}

TEST_F(CodecTest, AReplyWhoseLayoutsAreTooLargeIsRefusedBeforeTheyAreMade) {
  v1::ShardBatchReply reply;
  const auto executor = MakeCpuExecutor();
  const absl::Status status =
      WriteShardBatchReply(PlanOfEndlessPositions(), batch_, {0, 1}, *executor, pool_, &reply);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ShardBatches"));
}

TEST_F(CodecTest, APlanWhoseLayoutsAreTooLargeIsRefusedBeforeTheyAreMade) {
  const absl::Status status = CheckPlanLayoutReply(PlanOfEndlessPositions(), {0});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ShardBatches"));
  EXPECT_TRUE(CheckPlanLayoutReply(*PlanBatch(*options_.MakeSharder(), batch_, 2), {0, 1}).ok());
  EXPECT_EQ(Summarize(PlanOfEndlessPositions(), {}, {0}, Limits()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CodecTest, APlanRequestCarriesTheValuesThatAreReadAndNoOthers) {
  batch_.tensors.push_back(Bytes("seq_lens", DType::kU8, {1, 2}, 3, pool_));
  batch_.tensors.push_back({{"alone", DType::kI64, {1, 2}}, {}});  // without bytes
  v1::PlanLayoutRequest message;
  const auto left_out = EncodePlanLayoutRequest(batch_, options_, 2, {1},
                                                {"seq_lens", "alone", "absent"}, {}, {}, &message);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_TRUE(left_out->empty());
  const auto plan = DecodePlanLayoutRequest(message, Limits());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Request& request = plan->request;
  EXPECT_EQ(request.spec.tensors, SpecOf(batch_, 2).tensors);
  EXPECT_EQ(request.batch.scalars, batch_.scalars);
  EXPECT_EQ(request.ranks, (std::vector<int64_t>{1}));
  EXPECT_EQ(request.batch.FindTensor("input_ids"), nullptr);
  EXPECT_EQ(request.batch.FindTensor("alone"), nullptr);
  ASSERT_NE(request.batch.FindTensor("seq_lens"), nullptr);
  EXPECT_EQ(request.batch.FindTensor("seq_lens")->bytes(), batch_.FindTensor("seq_lens")->bytes());
}

TEST_F(CodecTest, APlanRequestCarriesWhatIsCountedAsFarAsThereIsRoom) {
  const int64_t half = kMaxUnaryBytes / 2;
  batch_.tensors = {{{"read", DType::kU8, {1, half}}, *pool_.Allocate(half)},
                    {{"large", DType::kU8, {1, half}}, *pool_.Allocate(half)},
                    {{"small", DType::kU8, {1, 100}}, *pool_.Allocate(100)}};
  v1::PlanLayoutRequest message;
  const auto left_out = EncodePlanLayoutRequest(batch_, options_, 2, {}, {"read"},
                                                {"absent", "large", "small", "read"}, {}, &message);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_THAT(*left_out, ElementsAre("large"));
  const auto plan = DecodePlanLayoutRequest(message, Limits());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NE(plan->request.batch.FindTensor("read"), nullptr);
  EXPECT_NE(plan->request.batch.FindTensor("small"), nullptr);
  EXPECT_EQ(plan->request.batch.FindTensor("large"), nullptr);
}

TEST_F(CodecTest, WhatIsWantedFillsARequestToTheBrimAndNotOver) {
  for (int64_t spare = -200; spare <= 200; spare += 8) {
    const int64_t bytes = kMaxUnaryBytes - 300 + spare;
    batch_.tensors = {{{"wanted", DType::kU8, {1, bytes}}, *pool_.Allocate(bytes)}};
    v1::PlanLayoutRequest message;
    const auto left_out =
        EncodePlanLayoutRequest(batch_, options_, 2, {}, {}, {"wanted"}, {}, &message);
    ASSERT_TRUE(left_out.ok()) << left_out.status();
    EXPECT_LE(static_cast<int64_t>(message.ByteSizeLong()), kMaxUnaryBytes);
    EXPECT_EQ(left_out->empty(), static_cast<int64_t>(message.body().size()) >= bytes) << bytes;
  }
}

TEST_F(CodecTest, QuestionsOfAPlanRequestSurvive) {
  const PlanQuestions questions{{8, 0, 5}, {SourceToken{1, 7}, SlotQuery{{3, 9}, 1}}};
  v1::PlanLayoutRequest message;
  ASSERT_TRUE(EncodePlanLayoutRequest({}, options_, 2, {}, {}, {}, questions, &message).ok());
  const auto plan = DecodePlanLayoutRequest(message, Limits());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->questions.document_lengths, questions.document_lengths);
  ASSERT_EQ(plan->questions.queries.size(), 2u);
  EXPECT_EQ(std::get<SourceToken>(plan->questions.queries[0]), (SourceToken{1, 7}));
  EXPECT_EQ(std::get<SlotQuery>(plan->questions.queries[1]).slot, (RankSlot{3, 9}));
  EXPECT_EQ(std::get<SlotQuery>(plan->questions.queries[1]).row, 1);
  message.add_queries();
  EXPECT_THAT(std::string(DecodePlanLayoutRequest(message, Limits()).status().message()),
              HasSubstr("neither a token nor a slot"));
}

TEST_F(CodecTest, APlanRequestOverFourMebibytesIsRefused) {
  batch_.tensors = {
      {{"seq_lens", DType::kU8, {1, kMaxUnaryBytes}}, *pool_.Allocate(kMaxUnaryBytes)}};
  v1::PlanLayoutRequest message;
  EXPECT_EQ(EncodePlanLayoutRequest(batch_, options_, 2, {}, {"seq_lens"}, {}, {}, &message)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  message.Clear();
  EXPECT_TRUE(EncodePlanLayoutRequest(batch_, options_, 2, {}, {}, {}, {}, &message).ok());
}

TEST_F(CodecTest, APlanRequestMayLeaveTheBytesOut) {
  v1::PlanLayoutRequest message;
  ASSERT_TRUE(EncodePlanLayoutRequest(batch_, options_, 2, {}, {}, {}, {}, &message).ok());
  const auto plan = DecodePlanLayoutRequest(message, Limits());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->request.spec.tensors, SpecOf(batch_, 2).tensors);
  EXPECT_EQ(plan->request.batch.FindTensor("input_ids"), nullptr);
}

}  // namespace
}  // namespace cpshard
