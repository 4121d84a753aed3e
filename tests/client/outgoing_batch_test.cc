#include "client/outgoing_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "tests/batch/tensors.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

Options RoundRobin() { return Options::FromJson(R"({"round_robin": {}})").value(); }

Tensor Bytes8(std::string name, size_t size, uint8_t first) {
  std::vector<uint8_t> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<uint8_t>(first + i);
  return TensorOf(std::move(name), DType::kU8, {static_cast<int64_t>(size)}, values);
}

// Sizes around the alignment, one empty tensor, not in the order of names.
Batch OddSizes() {
  return {{Bytes8("d", 65, 1), Bytes8("a", 64, 70), Bytes8("c", 0, 0), Bytes8("b", 1, 140),
           Bytes8("e", 200, 7)},
          {}};
}

std::vector<std::byte> Joined(const std::vector<Buffer>& pieces) {
  std::vector<std::byte> bytes;
  for (const Buffer& piece : pieces) {
    EXPECT_GT(piece.size(), 0u);
    bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
  }
  return bytes;
}

TEST(OutgoingBatch, EveryTensorLiesWhereTheHeadSays) {
  const Batch batch = OddSizes();
  const absl::StatusOr<OutgoingBatch> out = LayOutBatch(batch, RoundRobin(), 2, {});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->total_bytes % 64, 0);
  const std::vector<std::byte> all = Joined(BodyOf(*out, 0, out->total_bytes));
  ASSERT_EQ(static_cast<int64_t>(all.size()), out->total_bytes);

  v1::BatchBegin head;
  ASSERT_TRUE(head.ParseFromString(out->begin));
  EXPECT_EQ(static_cast<int64_t>(head.total_bytes()), out->total_bytes);
  EXPECT_EQ(head.cp_size(), 2u);
  ASSERT_EQ(head.entries_size(), 5);
  std::vector<bool> taken(all.size());
  for (int i = 0; i < 5; ++i) {
    const Tensor& tensor = batch.tensors[i];
    EXPECT_EQ(head.entries(i).name(), tensor.spec.name);
    const size_t offset = head.entries(i).offset();
    ASSERT_LE(offset + tensor.buffer.size(), all.size());
    EXPECT_TRUE(std::equal(tensor.bytes().begin(), tensor.bytes().end(), all.begin() + offset));
    std::fill_n(taken.begin() + offset, tensor.buffer.size(), true);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(taken[i] || all[i] == std::byte{0}) << "byte " << i << " between tensors";
  }
}

TEST(OutgoingBatch, ItsHeadAsksForTheExecutorAndTheAnswerIsHeldAgainstIt) {
  const OutgoingBatch out =
      LayOutBatch(OddSizes(), RoundRobin(), 2, {}, ExecutorKind::kCuda).value();
  v1::BatchBegin head;
  ASSERT_TRUE(head.ParseFromString(out.begin));
  EXPECT_EQ(head.executor(), v1::EXECUTOR_CUDA);
  EXPECT_EQ(out.expected.executor, ExecutorKind::kCuda);
}

TEST(OutgoingBatch, ABodyCutAnywhereIsThatPartOfTheBuffer) {
  const OutgoingBatch out = LayOutBatch(OddSizes(), RoundRobin(), 2, {}).value();
  const std::vector<std::byte> all = Joined(BodyOf(out, 0, out.total_bytes));
  for (int64_t from = 0; from <= out.total_bytes; from += 64) {
    for (int64_t to = from; to <= out.total_bytes; to += 64) {
      const std::vector<std::byte> part(all.begin() + from, all.begin() + to);
      ASSERT_EQ(Joined(BodyOf(out, from, to - from)), part) << from << " " << to;
    }
  }
}

TEST(OutgoingBatch, TensorsAreWindowsNotCopies) {
  const Batch batch = OddSizes();
  const OutgoingBatch out = LayOutBatch(batch, RoundRobin(), 2, {}).value();
  for (const OutgoingBatch::Piece& piece : out.pieces) {
    EXPECT_TRUE(std::any_of(batch.tensors.begin(), batch.tensors.end(), [&](const Tensor& tensor) {
      return tensor.buffer.data() == piece.bytes.data();
    }));
  }
}

TEST(OutgoingBatch, NoTensorsMakeAnEmptyBody) {
  const absl::StatusOr<OutgoingBatch> out = LayOutBatch({}, RoundRobin(), 2, {});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->total_bytes, 0);
  EXPECT_TRUE(BodyOf(*out, 0, 0).empty());
}

TEST(OutgoingBatch, OptionsThatCannotBeMadeAreLeftToTheServer) {
  EXPECT_TRUE(LayOutBatch(OddSizes(), Options(), 2, {}).ok());
}

TEST(OutgoingBatch, AShapeThatDoesNotFitItsBytesIsRefusedWithBoth) {
  Batch batch = OddSizes();
  batch.tensors[0].spec.dims = {66};
  const absl::Status refused = LayOutBatch(batch, RoundRobin(), 2, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "stream 'd': [66] of u8 takes 66 bytes; its buffer has 65");
}

TEST(OutgoingBatch, WhatNoServerTakesIsRefusedHere) {
  Batch twice = OddSizes();
  twice.tensors[1].spec.name = "d";
  EXPECT_EQ(LayOutBatch(twice, RoundRobin(), 2, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  Batch negative = OddSizes();
  negative.tensors[0].spec.dims = {-1};
  EXPECT_EQ(LayOutBatch(negative, RoundRobin(), 2, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LayOutBatch(OddSizes(), RoundRobin(), 2, {-1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  Batch long_name = OddSizes();
  long_name.tensors[0].spec.name = std::string(70'000, 'n');
  const absl::Status refused = LayOutBatch(long_name, RoundRobin(), 2, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("5 entries"));
}

}  // namespace
}  // namespace cpshard
