#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "tests/proto/spans.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ShardFrame> Decode(const v1::ShardFrame& message) {
  return DecodeShardFrame({AsBytes(message.SerializeAsString())});
}

BatchError SentAndRead(BatchError error) {
  ShardFrame frame;
  frame.error = std::move(error);
  const auto read = DecodeShardFrame({AsBytes(EncodeShardFrame(frame, "", 0))});
  EXPECT_TRUE(read.ok() && read->error) << read.status();
  return read.ok() && read->error ? *read->error : BatchError();
}

TEST(ShardFrame, TheGeneratedParserReadsWhatWeSend) {
  v1::ShardFrame expected;
  expected.set_batch_id(~uint64_t{0});
  expected.set_frame_seq(5);
  expected.mutable_begin()->set_num_shards(1);
  expected.mutable_begin()->set_total_bytes(1000);
  expected.mutable_begin()->add_notices()->set_code("n");
  expected.add_shards()->mutable_layout()->set_cp_size(1);
  const std::string head = expected.SerializeAsString().substr(13);  // without fields 1 and 2
  expected.set_offset(64);
  expected.set_last(true);
  expected.mutable_credit()->set_bytes(77);
  expected.mutable_credit()->set_batches(1);
  expected.set_body("body");

  ShardFrame frame;
  frame.batch_id = ~uint64_t{0};
  frame.frame_seq = 5;
  frame.offset = 64;
  frame.last = true;
  frame.credit = {77, 1};
  const std::string header = EncodeShardFrame(frame, head, 4);
  v1::ShardFrame generic;
  ASSERT_TRUE(generic.ParseFromString(header + "body"));
  EXPECT_EQ(generic.SerializeAsString(), expected.SerializeAsString());

  const std::string body = "body";
  const auto read = DecodeShardFrame({AsBytes(header), AsBytes(body)});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->batch_id, ~uint64_t{0});
  EXPECT_EQ(read->frame_seq, 5u);
  ASSERT_TRUE(read->begin && read->credit);
  EXPECT_EQ(read->begin->num_shards, 1);
  EXPECT_EQ(read->begin->total_bytes, 1000);
  EXPECT_EQ(read->begin->notices, (std::vector<Notice>{{"n", ""}}));
  EXPECT_EQ(read->num_shards, 1);
  EXPECT_EQ(read->offset, 64u);
  EXPECT_TRUE(read->last);
  EXPECT_EQ(read->credit->bytes, 77);
  EXPECT_EQ(read->credit->batches, 1);
  EXPECT_FALSE(read->error || read->draining);
  ASSERT_EQ(read->body.pieces.size(), 1u);
  EXPECT_EQ(read->body.pieces[0].data(), AsBytes(body).data());
}

TEST(ShardFrame, DrainingIsAFrameOfItsOwn) {
  ShardFrame frame;
  frame.draining = true;
  const auto read = DecodeShardFrame({AsBytes(EncodeShardFrame(frame, "", 0))});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->draining);
  EXPECT_FALSE(read->begin || read->credit || read->error || read->last);
}

TEST(ShardFrame, EveryStatusOfABatchSurvives) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "stream 'ids' has 7 of 8");
    const BatchError read = SentAndRead({status, std::nullopt});
    EXPECT_EQ(read.status, status);
    EXPECT_EQ(read.retry_after_ms, std::nullopt);
  }
  EXPECT_EQ(SentAndRead({absl::UnavailableError("x"), 0}).retry_after_ms, 0);
  EXPECT_EQ(SentAndRead({absl::UnavailableError("x"), 250}).retry_after_ms, 250);
  EXPECT_EQ(SentAndRead({absl::UnavailableError("x"), -1}).retry_after_ms, 0);
  EXPECT_EQ(SentAndRead({absl::UnavailableError("x"), int64_t{1} << 40}).retry_after_ms,
            int64_t{4294967295});
}

TEST(ShardFrame, AStatusCodeThatIsNoneIsUnknownAndNamed) {
  for (uint32_t code : {0u, 17u, 4000000000u}) {
    v1::ShardFrame message;
    message.mutable_status()->set_code(code);
    message.mutable_status()->set_message("why");
    const auto read = Decode(message);
    ASSERT_TRUE(read.ok() && read->error);
    EXPECT_EQ(read->error->status.code(), absl::StatusCode::kUnknown);
    EXPECT_EQ(read->error->status.message(), absl::StrCat("status code ", code, ": why"));
  }
}

TEST(ShardFrame, AStatusTextIsCutAt2KibibytesBetweenTwoCharacters) {
  const std::string whole(2048, 'x');
  EXPECT_EQ(SentAndRead({absl::InternalError(whole), {}}).status.message(), whole);
  EXPECT_EQ(SentAndRead({absl::InternalError(whole + "x"), {}}).status.message(), whole + "...");
  const std::string euro = "\xe2\x82\xac";
  for (size_t before : {2045, 2046, 2047}) {
    const std::string start(before, 'x');
    const std::string kept = before == 2045 ? start + euro : start;
    EXPECT_EQ(SentAndRead({absl::InternalError(start + euro + "rest"), {}}).status.message(),
              kept + "...");
  }
}

TEST(ShardFrame, SizesThatNoAnswerHasAreRefused) {
  for (uint64_t bytes : {uint64_t{1} << 63, ~uint64_t{0}, (uint64_t{1} << 40) + 1}) {
    v1::ShardFrame total, credit;
    total.mutable_begin()->set_total_bytes(bytes);
    credit.mutable_credit()->set_bytes(bytes);
    for (const v1::ShardFrame& message : {total, credit}) {
      const absl::Status status = Decode(message).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(bytes)));
    }
  }
}

TEST(ShardFrame, BytesThatAreNoMessageAreRefusedWithTheirNumber) {
  const absl::Status status = DecodeShardFrame({AsBytes("\x22\x05junk")}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a message of 6 bytes is not a ShardFrame");
}

}  // namespace
}  // namespace cpshard
