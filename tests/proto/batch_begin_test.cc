#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "tests/proto/spans.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

v1::Entry* AddTensor(v1::BatchBegin& begin, const std::string& name, int64_t columns,
                     uint64_t offset) {
  v1::Entry* entry = begin.add_entries();
  entry->set_name(name);
  entry->set_dtype(v1::DTYPE_I32);
  entry->add_dims(1);
  entry->add_dims(columns);
  entry->set_offset(offset);
  entry->set_nbytes(4 * columns);
  return entry;
}

// ids: bytes 128 ... 187; labels: bytes 0 ... 99.
v1::BatchBegin Example() {
  v1::BatchBegin begin;
  begin.mutable_options()->mutable_contiguous();
  begin.set_cp_size(4);
  begin.add_ranks(2);
  AddTensor(begin, "ids", 15, 128);
  AddTensor(begin, "labels", 25, 0);
  v1::Entry* scalar = begin.add_entries();
  scalar->set_name("note");
  scalar->mutable_scalar()->set_string_value("text");
  begin.set_total_bytes(188);
  return begin;
}

TEST(BatchBegin, ItsHeadIsReadWithThePlacesOfItsTensors) {
  const auto begin = DecodeBatchBegin(Example(), Limits());
  ASSERT_TRUE(begin.ok()) << begin.status();
  EXPECT_EQ(begin->cp_size, 4);
  EXPECT_EQ(begin->spec.cp_size, 4);
  EXPECT_EQ(begin->ranks, std::vector<int64_t>{2});
  EXPECT_TRUE(begin->options.message().has_contiguous());
  EXPECT_EQ(begin->spec.tensors, (std::vector<TensorSpec>{{"ids", DType::kI32, {1, 15}},
                                                          {"labels", DType::kI32, {1, 25}}}));
  EXPECT_EQ(begin->spec.scalars, (std::vector<ScalarEntry>{{"note", "text"}}));
  ASSERT_EQ(begin->places.size(), 2u);
  EXPECT_EQ(begin->places[0].offset, 128);
  EXPECT_EQ(begin->places[0].nbytes, 60);
  EXPECT_EQ(begin->places[1].offset, 0);
  EXPECT_EQ(begin->places[1].nbytes, 100);
  EXPECT_EQ(begin->total_bytes, 188);
}

TEST(BatchBegin, WhatIsEncodedIsTheMessageThatSaysIt) {
  const auto begin = DecodeBatchBegin(Example(), Limits());
  const auto encoded = EncodeBatchBegin(*begin);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(*encoded, Example().SerializeAsString());
}

TEST(BatchBegin, ItsExecutorSurvivesTheWireAndOneThatIsNoneIsRefused) {
  v1::BatchBegin message = Example();
  EXPECT_EQ(DecodeBatchBegin(message, Limits())->executor, ExecutorKind::kAuto);
  message.set_executor(v1::EXECUTOR_CUDA);
  const auto begin = DecodeBatchBegin(message, Limits());
  ASSERT_TRUE(begin.ok()) << begin.status();
  EXPECT_EQ(begin->executor, ExecutorKind::kCuda);
  EXPECT_EQ(*EncodeBatchBegin(*begin), message.SerializeAsString());
  message.set_executor(static_cast<v1::Executor>(7));
  const absl::Status status = DecodeBatchBegin(message, Limits()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("executor 7 is"));
}

TEST(BatchBegin, NoMeshAndAMeshOfOneStayApartAndNoRankMeansAll) {
  v1::BatchBegin message = Example();
  message.clear_ranks();
  EXPECT_EQ(DecodeBatchBegin(message, Limits())->ranks, (std::vector<int64_t>{0, 1, 2, 3}));
  message.set_cp_size(1);
  EXPECT_EQ(DecodeBatchBegin(message, Limits())->cp_size, 1);
  message.clear_cp_size();
  const auto begin = DecodeBatchBegin(message, Limits());
  EXPECT_EQ(begin->cp_size, std::nullopt);
  EXPECT_EQ(begin->ranks, std::vector<int64_t>{0});
  EXPECT_FALSE(DecodeBatchBegin(message, Limits())->spec.cp_size.has_value());
}

TEST(BatchBegin, TotalBytesEndWithTheLastTensorOrAtTheNextMultipleOf64) {
  v1::BatchBegin message = Example();
  for (uint64_t total : {188, 192}) {
    message.set_total_bytes(total);
    EXPECT_TRUE(DecodeBatchBegin(message, Limits()).ok()) << total;
  }
  for (uint64_t total : {189, 191, 193, 256, 1 << 30}) {
    message.set_total_bytes(total);
    const absl::Status status = DecodeBatchBegin(message, Limits()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << total;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(total)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("188"));
  }
}

TEST(BatchBegin, TensorsWithoutBytesLieNowhere) {
  v1::BatchBegin message;
  AddTensor(message, "none", 0, 12345);
  const auto begin = DecodeBatchBegin(message, Limits());
  ASSERT_TRUE(begin.ok()) << begin.status();
  EXPECT_EQ(begin->places[0].offset, 0);
  EXPECT_EQ(begin->total_bytes, 0);
  message.set_total_bytes(64);
  EXPECT_FALSE(DecodeBatchBegin(message, Limits()).ok());
}

TEST(BatchBegin, WhatCannotBeIsRefusedByNameAndNumbers) {
  struct Case {
    std::vector<std::string> texts;
    std::function<void(v1::BatchBegin&)> spoil;
  };
  const Case cases[] = {
      {{"ids", "nbytes 64", "60"}, [](auto& m) { m.mutable_entries(0)->set_nbytes(64); }},
      {{"ids", "4611686018427387904"},
       [](auto& m) { m.mutable_entries(0)->set_dims(1, int64_t{1} << 62); }},
      {{"ids", "negative", "-2"}, [](auto& m) { m.mutable_entries(0)->set_dims(0, -2); }},
      {{"258", "256"},
       [](auto& m) {
         for (int i = 0; i < 255; ++i) AddTensor(m, absl::StrCat("t", i), 0, 0);
       }},
      {{"200", "128"}, [](auto& m) { m.mutable_entries(0)->set_name(std::string(200, 'x')); }},
      {{"9 axes", "8"}, [](auto& m) { m.mutable_entries(0)->mutable_dims()->Resize(9, 1); }},
      {{"two entries", "ids"}, [](auto& m) { m.mutable_entries(1)->set_name("ids"); }},
      {{"_layout.x"}, [](auto& m) { m.mutable_entries(1)->set_name("_layout.x"); }},
      {{"labels", "ids", "overlap", "64"}, [](auto& m) { m.mutable_entries(0)->set_offset(64); }},
      {{"ids", "offset 132", "64"}, [](auto& m) { m.mutable_entries(0)->set_offset(132); }},
      {{"ids", "192", "188"}, [](auto& m) { m.mutable_entries(0)->set_offset(192); }},
      {{"ids", "18446744073709551552"},
       [](auto& m) { m.mutable_entries(0)->set_offset(~uint64_t{63}); }},
      {{"9223372036854775808", "2147483648"},
       [](auto& m) { m.set_total_bytes(uint64_t{1} << 63); }},
      {{"2147483649", "2147483648"}, [](auto& m) { m.set_total_bytes((uint64_t{2} << 30) + 1); }},
      {{"ids", "dtype"}, [](auto& m) { m.mutable_entries(0)->clear_dtype(); }},
      {{"note", "no value"}, [](auto& m) { m.mutable_entries(2)->mutable_scalar()->Clear(); }},
      {{"cp_size is 0"}, [](auto& m) { m.set_cp_size(0); }},
      {{"4097", "4096"}, [](auto& m) { m.set_cp_size(4097); }},
      {{"4"}, [](auto& m) { m.add_ranks(4); }},
      {{"2"}, [](auto& m) { m.add_ranks(2); }},
  };
  for (const Case& c : cases) {
    v1::BatchBegin message = Example();
    c.spoil(message);
    const absl::Status status = DecodeBatchBegin(message, Limits()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.texts[0];
    for (const std::string& text : c.texts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }
}

TEST(BatchBegin, WhatHasNoPlaceOnTheWireIsNotEncoded) {
  const BatchBegin good = *DecodeBatchBegin(Example(), Limits());
  const auto refuses = [&](absl::StatusCode code, const std::string& text, auto spoil) {
    BatchBegin begin = good;
    spoil(begin);
    const absl::Status status = EncodeBatchBegin(begin).status();
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  refuses(kInvalid, "-1", [](auto& b) { b.cp_size = -1; });
  refuses(kInvalid, "4294967296", [](auto& b) { b.cp_size = int64_t{1} << 32; });
  refuses(kInvalid, "rank -1", [](auto& b) { b.ranks = {-1}; });
  refuses(kInvalid, "UTF-8", [](auto& b) { b.spec.tensors[1].name = "b\xff"; });
  refuses(kInvalid, "UTF-8", [](auto& b) { b.spec.scalars[0].value = "\xc3"; });
  refuses(absl::StatusCode::kResourceExhausted, "65280",
          [](auto& b) { b.spec.scalars[0].value = std::string(65280, 'x'); });
}

TEST(BatchBegin, TheLargestHeadLeavesRoomForTheOtherFieldsOfAFrame) {
  BatchBegin begin = *DecodeBatchBegin(Example(), Limits());
  std::string encoded;
  for (size_t size = 65000;; ++size) {
    begin.spec.scalars[0].value = std::string(size, 'x');
    const auto next = EncodeBatchBegin(begin);
    if (!next.ok()) break;
    encoded = *next;
  }
  EXPECT_EQ(encoded.size(), 65280u);
  BatchFrame frame;
  frame.batch_id = frame.offset = ~uint64_t{0};
  frame.frame_seq = ~uint32_t{0};
  frame.crc32c = 1;
  frame.last = frame.cancel = true;
  const std::string message = EncodeBatchFrame(frame, encoded, 0);
  EXPECT_TRUE(DecodeBatchFrame({AsBytes(message)}).ok());
}

TEST(BatchBegin, StreamsThatThePlanReadsComeFirst) {
  const BatchSpec spec = {{{"labels", DType::kI64, {1, 9}},
                           {"seq_lens", DType::kI32, {3}},
                           {"ids", DType::kI64, {1, 8}},
                           {"empty", DType::kI64, {0}},
                           {"documents", DType::kU8, {65}}},
                          {},
                          std::nullopt};
  const auto offsets = [&](std::vector<std::string> first) {
    std::vector<int64_t> offsets;
    for (const TensorPlace& place : PlaceTensors(spec, first)) offsets.push_back(place.offset);
    return offsets;
  };
  // documents 0 ... 64, empty at 128, ids 128 ... 191, labels 192 ... 263, seq_lens 320 ...
  EXPECT_EQ(offsets({}), (std::vector<int64_t>{192, 320, 128, 128, 0}));
  // documents, seq_lens 128 ... 139, then empty, ids, labels.
  EXPECT_EQ(offsets({"seq_lens", "absent", "documents"}),
            (std::vector<int64_t>{256, 128, 192, 192, 0}));
  EXPECT_EQ(PlaceTensors(spec, {})[0].nbytes, 72);
}

}  // namespace
}  // namespace cpshard
