// Cutting a message into header and body, against what the generated parser makes of the same
// bytes.
#include "proto/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"
#include "tests/proto/spans.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

// What the sender of these bytes meant, by the generated code alone; nullopt: no BatchFrame.
std::optional<v1::BatchFrame> Generic(const std::string& bytes) {
  v1::BatchFrame message;
  if (!message.ParseFromString(bytes)) return std::nullopt;
  return message;
}

void ExpectSame(const absl::StatusOr<BatchFrame>& frame,
                const std::optional<v1::BatchFrame>& generic, const std::string& what) {
  ASSERT_EQ(frame.ok(), generic.has_value()) << what << ": " << frame.status();
  if (!generic) return;
  EXPECT_EQ(frame->batch_id, generic->batch_id()) << what;
  EXPECT_EQ(frame->frame_seq, generic->frame_seq()) << what;
  EXPECT_EQ(frame->offset, generic->offset()) << what;
  EXPECT_EQ(frame->last, generic->last()) << what;
  EXPECT_EQ(frame->cancel, generic->cancel()) << what;
  EXPECT_EQ(frame->crc32c.has_value(), generic->has_crc32c()) << what;
  EXPECT_EQ(frame->crc32c.value_or(0), generic->crc32c()) << what;
  EXPECT_EQ(frame->begin != nullptr, generic->has_begin()) << what;
  if (frame->begin) {
    EXPECT_EQ(frame->begin->SerializeAsString(), generic->begin().SerializeAsString()) << what;
  }
  EXPECT_EQ(TextOf(frame->body), generic->body()) << what;
  EXPECT_EQ(frame->body.size, static_cast<int64_t>(generic->body().size())) << what;
  for (Bytes piece : frame->body.pieces) EXPECT_FALSE(piece.empty()) << what;
}

void ExpectGeneric(const std::string& bytes) {
  ExpectSame(DecodeBatchFrame({AsBytes(bytes)}), Generic(bytes), absl::CHexEscape(bytes));
}

// About 300 bytes: every field is set.
v1::BatchFrame Example() {
  v1::BatchFrame message;
  message.set_batch_id(uint64_t{1} << 60);
  message.set_frame_seq(300);
  v1::Entry* entry = message.mutable_begin()->add_entries();
  entry->set_name(std::string(100, 'n'));
  entry->add_dims(1 << 20);
  message.mutable_begin()->mutable_options()->mutable_contiguous();
  message.mutable_begin()->set_total_bytes(1 << 23);
  message.set_offset(uint64_t{1} << 40);
  message.set_last(true);
  message.set_crc32c(0xdeadbeef);
  message.set_cancel(true);
  for (int i = 0; i < 150; ++i) message.mutable_body()->push_back(static_cast<char>(i));
  return message;
}

// A field that nobody knows, `size` bytes with its tag and length; size >= 6, not 132.
std::string UnknownField(int64_t size) {
  std::string field("\xa2\x06", 2);  // number 100, length-delimited
  int64_t rest = size - 2;
  const int64_t length_bytes = rest <= 128 ? 1 : rest <= (1 << 14) + 1 ? 2 : 3;
  for (int64_t i = 0, length = rest - length_bytes; i < length_bytes; ++i, length >>= 7) {
    field.push_back(static_cast<char>((length & 127) | (i + 1 < length_bytes ? 128 : 0)));
  }
  return field + std::string(rest - length_bytes, 'u');
}

TEST(Frames, TheGeneratedParserReadsWhatWeSend) {
  const v1::BatchFrame example = Example();
  BatchFrame frame;
  frame.batch_id = example.batch_id();
  frame.frame_seq = example.frame_seq();
  frame.offset = example.offset();
  frame.last = true;
  frame.crc32c = example.crc32c();
  frame.cancel = true;
  const std::string header =
      EncodeBatchFrame(frame, example.begin().SerializeAsString(), example.body().size());
  const auto generic = Generic(header + example.body());
  ASSERT_TRUE(generic);
  EXPECT_EQ(generic->SerializeAsString(), example.SerializeAsString());
  ExpectSame(DecodeBatchFrame({AsBytes(header), AsBytes(example.body())}), example, "ours");
}

TEST(Frames, AnEmptyMessageIsAFrameOfDefaults) {
  EXPECT_EQ(EncodeBatchFrame({}, "", 0), "");
  ExpectSame(DecodeBatchFrame({}), v1::BatchFrame(), "no spans");
  ExpectSame(DecodeBatchFrame({Bytes(), Bytes()}), v1::BatchFrame(), "empty spans");
}

TEST(Frames, WhereverAMessageIsCutTheFrameIsTheSame) {
  const v1::BatchFrame example = Example();
  const std::string bytes = example.SerializeAsString();
  ASSERT_GT(bytes.size(), 280u);
  for (size_t first = 0; first <= bytes.size(); ++first) {
    ExpectSame(DecodeBatchFrame(CutAt(bytes, {first})), example, absl::StrCat("cut at ", first));
    for (size_t second = first; second <= bytes.size(); ++second) {
      const auto frame = DecodeBatchFrame(CutAt(bytes, {first, second}));
      ASSERT_TRUE(frame.ok()) << frame.status();
      if (second % 17 == 0) {
        ExpectSame(frame, example, absl::StrCat("cut at ", first, ", ", second));
      } else {
        ASSERT_TRUE(frame->cancel && TextOf(frame->body) == example.body()) << first << second;
      }
    }
  }
}

TEST(Frames, OneByteAtATimeWithNothingBetweenThemIsTheSameFrame) {
  const v1::BatchFrame example = Example();
  const std::string bytes = example.SerializeAsString();
  std::vector<size_t> cuts;
  for (size_t i = 0; i <= bytes.size(); ++i) cuts.insert(cuts.end(), {i, i});  // empty ones too
  ExpectSame(DecodeBatchFrame(CutAt(bytes, cuts)), example, "single bytes");
}

TEST(Frames, TheBodyStaysWhereItIs) {
  const v1::BatchFrame example = Example();
  const std::string bytes = example.SerializeAsString();
  const size_t body_at = bytes.size() - example.body().size();
  const auto frame = DecodeBatchFrame(CutAt(bytes, {5, body_at - 1, body_at + 7, body_at + 64}));
  ASSERT_TRUE(frame.ok()) << frame.status();
  ASSERT_EQ(frame->body.pieces.size(), 3u);
  const std::byte* at = AsBytes(bytes).data() + body_at;
  for (Bytes piece : frame->body.pieces) {
    EXPECT_EQ(piece.data(), at);
    at += piece.size();
  }
  EXPECT_EQ(at, AsBytes(bytes).end());
}

TEST(Frames, TheBodyMayStandAnywhereAmongTheFields) {
  v1::BatchFrame head = Example();
  head.clear_body();
  v1::BatchFrame flags, body;
  flags.set_cancel(true);
  body.set_body(Example().body());
  const std::string a = head.SerializeAsString(), b = flags.SerializeAsString(),
                    c = body.SerializeAsString();
  for (const std::string& bytes : {a + c + b, c + a + b, b + c + a}) {
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      const auto frame = DecodeBatchFrame(CutAt(bytes, {cut}));
      ExpectSame(frame, Example(), absl::StrCat("cut at ", cut));
      for (Bytes piece : frame->body.pieces) {
        EXPECT_TRUE(piece.begin() >= AsBytes(bytes).begin() && piece.end() <= AsBytes(bytes).end());
      }
    }
  }
}

TEST(Frames, OfSeveralBodiesTheLastOneCounts) {
  const std::string id("\x08\x07", 2), one("\x7a\x03one", 5), two("\x7a\x02no", 4);
  const std::string none("\x7a\x00", 2);
  for (const std::string& bytes : {one + two, one + id + two + id, two + one + none, none + one}) {
    ExpectGeneric(bytes);
  }
  EXPECT_EQ(TextOf(DecodeBatchFrame({AsBytes(one + two)})->body), "no");
}

TEST(Frames, AHeaderMayHave64KibibytesAndTheBodyDoesNotCount) {
  const std::string body("\x7a\x80\x80\x08", 4);  // 128 KiB follow
  const std::string bytes(128 << 10, 'b');
  for (const std::string& tail : {std::string(), body + bytes}) {
    const std::string fits = UnknownField(65536) + tail, over = UnknownField(65537) + tail;
    ExpectGeneric(fits);
    const absl::Status status = DecodeBatchFrame({AsBytes(over)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("65537"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("65536"));
  }
  // Bodies that do not count are header.
  EXPECT_FALSE(DecodeBatchFrame({AsBytes(body + bytes + "\x7a\x01x")}).ok());
}

TEST(Frames, BytesThatAreNoMessageAreRefusedWithTheirNumber) {
  using std::string_literals::operator""s;
  const std::string cases[] = {
      "\x08"s,                                              // a field without its value
      "\x08\x80"s,                                          // half a varint
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,  // a varint of 11 bytes
      "\x00"s,                                              // field 0
      "\x00\x00"s,                                          //
      "\x02\x01x"s,                                         //
      "\x0b\x08\x01"s,                                      // a group that does not end
      "\x0b\x14"s,                                          // ... or ends as another
      "\x0c"s,                                              // ... or only ends
      "\x0e"s,
      "\x0f"s,  // wire types 6 and 7
      "\x7a"s,
      "\x7a\x80"s,
      "\x7a\x05xxxx"s,                                   // bodies that are cut off
      "\x7a\xff\xff\xff\xff\x07x"s,                      // 2 GiB less one
      "\x7a\xff\xff\xff\xff\x0fx"s,                      // -1
      "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"s,  // -1, in 64 bits
      "\x7a\x81\x80\x80\x80\x80\x00x"s,                  // a length of 6 bytes
      "\xfa\x80\x80\x80\x80\x00\x01x"s,                  // a tag of 6 bytes
      "\x1a\x01"s,
      "\x1a\x02\x08"s,           // begin is cut off
      "\x1a\x02\x28\x80"s,       // ... inside
      "\x7a\x01x\x3d\x01\x02"s,  // a checksum of 2 bytes
      "not a message at all"s,
  };
  for (const std::string& bytes : cases) {
    EXPECT_FALSE(Generic(bytes)) << absl::CHexEscape(bytes);
    const absl::Status status = DecodeBatchFrame({AsBytes(bytes)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << absl::CHexEscape(bytes);
    EXPECT_EQ(status.message(),
              absl::StrCat("a message of ", bytes.size(), " bytes is not a BatchFrame"));
  }
}

TEST(Frames, OddButLegalMessagesAreRead) {
  using std::string_literals::operator""s;
  const std::string cases[] = {
      "\x78\x05"s,                                      // field 15 as a number
      "\x7d\x01\x02\x03\x04"s,                          // ... as fixed32
      "\x79\x01\x02\x03\x04\x05\x06\x07\x08"s,          // ... as fixed64
      "\x7b\x7a\x01x\x7c"s,                             // ... as a group, around one
      "\x7a\x81\x80\x80\x80\x00x"s,                     // a length of 5 bytes
      "\xfa\x80\x80\x80\x00\x01x"s,                     // a tag of 5 bytes
      "\xfa\x80\x80\x80\x70\x01x"s,                     // ... with bits beyond 32
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"s,  // ... beyond 64
      "\x0a\x01x\x1d\x01\x02\x03\x04"s,                 // fields of other types
      "\x2a\x02\x08\x01"s,                              // a reserved field
      "\x1a\x02\x10\x01\x1a\x02\x18\x02"s,              // begin in two parts
      "\x08\x01\x08\x02"s,                              // a field twice
  };
  for (const std::string& bytes : cases) {
    EXPECT_TRUE(Generic(bytes)) << absl::CHexEscape(bytes);
    ExpectGeneric(bytes);
    ExpectGeneric(bytes + "\x7a\x02no");
    ExpectGeneric("\x7a\x02no" + bytes);
  }
}

TEST(Frames, GroupsNestAsDeepAsTheParserAllows) {
  for (int depth : {1, 99, 100, 101, 200, 20000}) {
    ExpectGeneric(std::string(depth, '\x0b') + std::string(depth, '\x0c') + "\x7a\x01x");
  }
}

TEST(Frames, EveryBeginningOfAMessageIsJudgedAsTheParserDoes) {
  const std::string bytes = Example().SerializeAsString();
  for (size_t size = 0; size <= bytes.size(); ++size) ExpectGeneric(bytes.substr(0, size));
}

}  // namespace
}  // namespace cpshard
