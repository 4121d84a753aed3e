// What frames carry in sessions beside batches and shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"
#include "proto/error_details.h"
#include "proto/frames.h"
#include "tests/proto/messages.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<BatchFrame> Decode(const std::string& bytes) {
  return DecodeBatchFrame({AsBytes(bytes)}, FrameOf::kSession);
}

PushHead FullPush() {
  PushHead push;
  push.at = {"train", 1, 7};
  push.epoch = 2;
  push.last_microbatch = true;
  push.totals = StepTotals{1, 30, 40};
  push.digest = ~uint64_t{0};
  push.state = std::string("\0s", 2);
  return push;
}

TEST(SessionFrame, APushStandsBesideTheBegin) {
  BatchFrame frame;
  frame.batch_id = 3;
  frame.push = FullPush();
  const auto expected = FromText<v1::BatchFrame>(R"(
      batch_id: 3 begin { total_bytes: 64 }
      push { at { stream: "train" pass: 1 step: 7 } epoch: 2 last_microbatch: true
             totals { num_microbatches: 1 num_label_tokens: 30 num_tokens_excl_tail_pad: 40 }
             digest: 18446744073709551615 state: "\000s" }
      body: "b")");
  const std::string begin = expected.begin().SerializeAsString();
  const std::string bytes = EncodeBatchFrame(frame, begin, 1) + "b";
  EXPECT_EQ(Parsed<v1::BatchFrame>(bytes).DebugString(), expected.DebugString());

  const auto read = Decode(expected.SerializeAsString() + kUnknownField);
  ASSERT_TRUE(read.ok() && read->push && read->begin) << read.status();
  EXPECT_EQ(EncodeBatchFrame(*read, begin, 1) + "b", bytes);
  EXPECT_EQ(TextOf(read->body), "b");
}

TEST(SessionFrame, AbsentAndZeroStayApartInAPush) {
  const auto least = FromText<v1::BatchFrame>(R"(begin {} push { at { stream: "s" } })");
  const auto read = Decode(least.SerializeAsString());
  ASSERT_TRUE(read.ok() && read->push) << read.status();
  EXPECT_FALSE(read->push->totals || read->push->digest || read->push->state);
  EXPECT_EQ(read->push->epoch + read->push->microbatch + read->push->at.step, 0);

  const auto zeros = FromText<v1::BatchFrame>(R"(begin {}
      push { at { stream: "s" } last_microbatch: true digest: 0 state: ""
             totals { num_microbatches: 1 num_label_tokens: 0 } })");
  const PushHead push = *Decode(zeros.SerializeAsString())->push;
  EXPECT_EQ(push.digest, 0u);
  EXPECT_EQ(push.state, "");
  EXPECT_EQ(push.totals, (StepTotals{1, 0, std::nullopt}));
}

TEST(SessionFrame, AHelloAndAnEndAreFramesOfTheirOwn) {
  BatchFrame hello, end;
  hello.hello = LoaderHello{"g", 1, 2, 5, 3, {{"train", 1, 8, 9}, {"val", 0, 0, 0}}};
  end.end = EndOfStream{"train", 1, 2, 40};
  const auto hello_message = FromText<v1::BatchFrame>(R"(
      hello { group: "g" loader: 1 num_loaders: 2 incarnation: 5 generation_seen: 3
              streams { name: "train" pass: 1 released: 8 held_from: 9 }
              streams { name: "val" } })");
  const auto end_message =
      FromText<v1::BatchFrame>(R"(end { stream: "train" pass: 1 epoch: 2 end_step: 40 })");
  for (const auto& [frame, message] :
       {std::pair(hello, hello_message), std::pair(end, end_message)}) {
    const std::string bytes = EncodeBatchFrame(frame, "", 0);
    EXPECT_EQ(Parsed<v1::BatchFrame>(bytes).DebugString(), message.DebugString());
    const auto read = Decode(bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(EncodeBatchFrame(*read, "", 0), bytes);
  }
}

TEST(SessionFrame, WhatCannotStandTogetherIsRefused) {
  const std::string hello = R"(hello { group: "g" num_loaders: 1 })",
                    end = R"(end { stream: "s" })";
  const std::string push = R"(push { at { stream: "s" } })";
  for (const std::string& with : {std::string("begin {}") + push, std::string("last: true"),
                                  std::string("cancel: true"), std::string("body: 'b'")}) {
    for (const std::string& one : {hello, end}) {
      const absl::Status status =
          Decode(FromText<v1::BatchFrame>(one + with).SerializeAsString()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one << with;
      EXPECT_THAT(std::string(status.message()), HasSubstr(one.substr(0, one.find(' '))));
    }
  }
  const auto status_of = [](const std::string& text) {
    return std::string(
        Decode(FromText<v1::BatchFrame>(text).SerializeAsString()).status().message());
  };
  EXPECT_THAT(status_of(hello + end), HasSubstr("something else"));
  EXPECT_THAT(status_of("batch_id: 7 begin {}"), HasSubstr("batch 7: "));
  EXPECT_THAT(status_of("batch_id: 7 begin {}"), HasSubstr("`begin` without `push`"));
  EXPECT_THAT(status_of(push), HasSubstr("`push` without `begin`"));
  EXPECT_EQ(status_of("batch_id: 7 frame_seq: 1 body: 'b'"), "");
  EXPECT_EQ(status_of("batch_id: 7 cancel: true"), "");
}

TEST(SessionFrame, ShardBatchesIgnoresWhatIsOfSessions) {
  // Each of them would be refused in a session.
  for (const char* text : {"push { epoch: -1 }", "hello {} body: 'b'", "end {}", "begin {}"}) {
    const std::string bytes = FromText<v1::BatchFrame>(text).SerializeAsString();
    EXPECT_FALSE(Decode(bytes).ok()) << text;
    const auto read = DecodeBatchFrame({AsBytes(bytes)});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_FALSE(read->push || read->hello || read->end);
  }
  const std::string delivery = FromText<v1::ShardFrame>("delivery {}").SerializeAsString();
  EXPECT_FALSE(DecodeShardFrame({AsBytes(delivery)}, FrameOf::kSession).ok());
  EXPECT_FALSE(DecodeShardFrame({AsBytes(delivery)})->delivery);
}

TEST(SessionFrame, TheLargestStateFitsBesideTheLargestHead) {
  v1::BatchBegin begin;
  begin.add_entries()->set_name(std::string(kMaxHeadBytes - 8, 'n'));
  ASSERT_EQ(begin.ByteSizeLong(), static_cast<size_t>(kMaxHeadBytes));
  BatchFrame frame;
  frame.batch_id = frame.offset = ~uint64_t{0};
  frame.push = FullPush();
  frame.push->at = {std::string(128, 's'), int64_t{1} << 62, int64_t{1} << 62};
  frame.push->epoch = int64_t{1} << 62;
  frame.push->state = std::string(65536, 's');
  const std::string bytes = EncodeBatchFrame(frame, begin.SerializeAsString(), 0);
  EXPECT_EQ(Decode(bytes)->push->state, frame.push->state);
  EXPECT_THAT(std::string(DecodeBatchFrame({AsBytes(bytes)}).status().message()),
              HasSubstr("65536"));

  v1::ShardFrame shards;
  shards.add_shards()->add_entries()->set_name(std::string(kMaxHeadBytes - 12, 'n'));
  ASSERT_EQ(shards.ByteSizeLong(), static_cast<size_t>(kMaxHeadBytes));
  ShardFrame answer;
  answer.batch_id = ~uint64_t{0};
  answer.delivery = DeliveryHead{
      answer.batch_id, frame.push->at, 0, true, StepTotals{1, 2, 3}, 4, 0, 1, frame.push->state};
  const std::string sent = EncodeShardFrame(answer, shards.SerializeAsString(), 0);
  EXPECT_EQ(DecodeShardFrame({AsBytes(sent)}, FrameOf::kSession)->delivery, answer.delivery);
}

TEST(SessionFrame, AHeaderOver129KibibytesIsRefusedWithItsSize) {
  const auto of_size = [](size_t size) {
    v1::BatchFrame message;
    message.mutable_begin()->add_entries()->set_name(std::string(size - 12, 'n'));
    message.mutable_push()->mutable_at()->set_stream("s");
    std::string bytes = message.SerializeAsString();
    message.mutable_begin()->mutable_entries(0)->mutable_name()->resize(2 * size - 12 -
                                                                        bytes.size());
    return message.SerializeAsString();
  };
  ASSERT_EQ(of_size(132096).size(), 132096u);
  EXPECT_TRUE(Decode(of_size(132096)).ok());
  EXPECT_THAT(std::string(Decode(of_size(132097)).status().message()),
              HasSubstr("132097 bytes, over the 132096"));
}

TEST(SessionFrame, ADeliveryStandsBesideTheHeadsOfItsShards) {
  ShardFrame frame;
  frame.batch_id = 9;
  frame.last = true;
  frame.delivery =
      DeliveryHead{9, {"train", 1, 7}, 2, true, StepTotals{3, 30, std::nullopt}, 5, 1, 2, "state"};
  const auto expected = FromText<v1::ShardFrame>(R"(
      batch_id: 9 begin { num_shards: 1 } last: true
      delivery { at { stream: "train" pass: 1 step: 7 } microbatch: 2 last: true
                 totals { num_microbatches: 3 num_label_tokens: 30 } digest: 5 owner: 1
                 num_loaders: 2 owner_state: "state" })");
  v1::ShardFrame head;
  *head.mutable_begin() = expected.begin();
  const std::string bytes = EncodeShardFrame(frame, head.SerializeAsString(), 0);
  EXPECT_EQ(Parsed<v1::ShardFrame>(bytes).DebugString(), expected.DebugString());
  const auto read = DecodeShardFrame({AsBytes(bytes)}, FrameOf::kSession);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->delivery, frame.delivery);
  EXPECT_TRUE(read->begin && read->last);
}

TEST(SessionFrame, ADeliveryWithoutTotalsAndStateHasNone) {
  const auto message =
      FromText<v1::ShardFrame>(R"(batch_id: 2 delivery { at { stream: "s" } num_loaders: 1 })");
  const auto read = DecodeShardFrame({AsBytes(message.SerializeAsString())}, FrameOf::kSession);
  ASSERT_TRUE(read.ok()) << read.status();
  const DeliveryHead expected{2, {"s", 0, 0}, 0, false, std::nullopt, 0, 0, 1, std::nullopt};
  EXPECT_EQ(read->delivery, expected);
}

TEST(SessionFrame, AStatusOfARequestCarriesItsDetails) {
  const ErrorDetails details{"BELOW_FLOOR", {{"floor", "40"}}, absl::Milliseconds(20)};
  ShardFrame frame;
  frame.batch_id = 4;
  frame.error = BatchError{WithDetails(absl::OutOfRangeError("step 7"), details), std::nullopt};
  const std::string bytes = EncodeShardFrame(frame, "", 0);
  EXPECT_EQ(Parsed<v1::ShardFrame>(bytes).DebugString(), FromText<v1::ShardFrame>(R"(batch_id: 4
                status { code: 11 message: "step 7" retry_after_ms: 20 reason: "BELOW_FLOOR"
                         values { key: "floor" value: "40" } })")
                                                             .DebugString());
  const auto read = DecodeShardFrame({AsBytes(bytes)}, FrameOf::kSession);
  ASSERT_TRUE(read.ok() && read->error) << read.status();
  EXPECT_EQ(read->error->status, frame.error->status);
  EXPECT_EQ(DetailsOf(read->error->status), details);
  EXPECT_EQ(read->error->retry_after_ms, 20);
}

// --- the begin of a pushed batch

v1::BatchBegin PushedBegin() {
  return FromText<v1::BatchBegin>(R"(
      entries { name: "input_ids" dtype: DTYPE_I32 dims: 1 dims: 8 offset: 0 nbytes: 32 }
      entries { name: "note" scalar { int_value: 3 } } total_bytes: 32)");
}

TEST(PushedBegin, ItIsReadWithTheOptionsAndAllRanksOfTheGroup) {
  const Options options = *Options::FromJson(R"({"round_robin": {}, "padding_token_id": 7})");
  const auto begin = DecodeBatchBegin(PushedBegin(), options, 4, Limits());
  ASSERT_TRUE(begin.ok()) << begin.status();
  EXPECT_EQ(begin->options.ToBytes(), options.ToBytes());
  EXPECT_EQ(begin->cp_size, 4);
  EXPECT_EQ(begin->spec.cp_size, 4);
  EXPECT_EQ(begin->ranks, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(begin->spec.tensors, (std::vector<TensorSpec>{{"input_ids", DType::kI32, {1, 8}}}));
  EXPECT_EQ(begin->total_bytes, 32);
  EXPECT_EQ(*EncodePushedBegin(*begin), PushedBegin().SerializeAsString());
}

TEST(PushedBegin, AnExecutorStaysHereAsTheOtherTermsDo) {
  auto begin = DecodeBatchBegin(PushedBegin(), Options(), 4, Limits());
  begin->executor = ExecutorKind::kCuda;
  EXPECT_EQ(*EncodePushedBegin(*begin), PushedBegin().SerializeAsString());
}

TEST(PushedBegin, OneThatHasItsOwnTermsIsRefused) {
  const std::vector<std::function<void(v1::BatchBegin&)>> spoils = {
      [](auto& m) { m.mutable_options(); },
      [](auto& m) { m.set_cp_size(4); },
      [](auto& m) { m.add_ranks(0); },
      [](auto& m) { m.set_executor(v1::EXECUTOR_CPU); },
      [](auto& m) { m.set_executor(static_cast<v1::Executor>(7)); },
  };
  for (const auto& spoil : spoils) {
    v1::BatchBegin message = PushedBegin();
    spoil(message);
    const absl::Status status = DecodeBatchBegin(message, Options(), 4, Limits()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the group's"));
  }
}

TEST(PushedBegin, ItsTensorsAreCheckedAsEverywhere) {
  v1::BatchBegin message = PushedBegin();
  message.set_total_bytes(33);
  EXPECT_FALSE(DecodeBatchBegin(message, Options(), 4, Limits()).ok());
  message = PushedBegin();
  message.mutable_entries(0)->set_nbytes(64);
  EXPECT_FALSE(DecodeBatchBegin(message, Options(), 4, Limits()).ok());
  EXPECT_FALSE(DecodeBatchBegin(PushedBegin(), Options(), 4, {.max_batch_bytes = 31}).ok());
}

}  // namespace
}  // namespace cpshard
