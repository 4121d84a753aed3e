// The token verbs over bytes, contract 9, 4.9, 4.18: cases of the corpus in words (S..), by their
// ids, and what a plan cannot say. Every layout: tests/property/token_verbs_test.cc.
#include "core/exec/token_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/exec/batches.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ClosedForm = HeldColumns::ClosedForm;
using Values = std::vector<double>;

HeldColumns Over(ClosedForm closed_form, int64_t cp_size) { return {{}, closed_form, cp_size}; }

ShardLayout Says(std::optional<int64_t> original, std::optional<int64_t> padded) {
  ShardLayout layout;
  layout.original_seq_len = original;
  layout.padded_seq_len = padded;
  return layout;
}

class TokenVerbsTest : public ShardTest {
 protected:
  std::vector<Tensor> Cut(const ShardLayout& layout, const HeldColumns& map, const Tensor& tensor,
                          const ShardTokenOptions& options) {
    auto parts = ShardTokenTensor(layout, map, tensor, options, Limits{}, *executor_, pool_);
    EXPECT_TRUE(parts.ok()) << parts.status();
    return parts.ok() ? *std::move(parts) : std::vector<Tensor>(map.cp_size);
  }

  Tensor Joined(const ShardLayout& layout, const HeldColumns& map, const std::vector<Tensor>& parts,
                const GatherOptions& options) {
    auto full = GatherTokenTensor(layout, map, parts, options, Limits{}, *executor_, pool_);
    EXPECT_TRUE(full.ok()) << full.status();
    return full.ok() ? *std::move(full) : Tensor();
  }

  absl::Status Code(const ShardLayout& layout, const HeldColumns& map,
                    const std::vector<Tensor>& parts, const GatherOptions& options) {
    return GatherTokenTensor(layout, map, parts, options, Limits{}, *executor_, pool_).status();
  }
};

void ExpectParts(const std::vector<Tensor>& parts, DType dtype, const std::vector<int64_t>& dims,
                 const std::vector<Values>& ranks) {
  ASSERT_EQ(parts.size(), ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    SCOPED_TRACE(rank);
    ExpectTensor(&parts[rank], dtype, dims, ranks[rank]);
  }
}

// S1, S2, S4 but for their gradients.
TEST_F(TokenVerbsTest, CasesS1S2S4RoundRobinThereAndBack) {
  for (const int64_t cp_size : {2, 4}) {
    Values count;
    for (int64_t i = 0; i < 3 * cp_size; ++i) count.push_back(static_cast<double>(i));
    const Tensor tensor = TensorOf("t", DType::kF32, {1, 3 * cp_size}, count);
    const ShardLayout layout = Says(3 * cp_size, 4 * cp_size);
    const HeldColumns map = Over(ClosedForm::kRoundRobin, cp_size);
    const std::vector<Tensor> parts = Cut(layout, map, tensor, {.fill = -1.0});
    if (cp_size == 2) {
      ExpectParts(parts, DType::kF32, {1, 4}, {{0, 1, -1, -1}, {2, 3, 4, 5}});
    } else {
      ExpectParts(parts, DType::kF32, {1, 4},
                  {{0, 1, -1, -1}, {2, 3, -1, -1}, {4, 5, 10, 11}, {6, 7, 8, 9}});
    }
    const Tensor back = Joined(layout, map, parts, {.trim = true});
    ExpectTensor(&back, DType::kF32, {1, 3 * cp_size}, count);
    count.insert(count.end(), cp_size, -1);
    const Tensor full = Joined(layout, map, parts, {});
    ExpectTensor(&full, DType::kF32, {1, 4 * cp_size}, count);
  }
}

TEST_F(TokenVerbsTest, CaseS6IntegersPaddedForFourRanks) {
  const ShardLayout layout = Says(3, 8);
  const HeldColumns map = Over(ClosedForm::kContiguous, 4);
  const std::vector<Tensor> parts =
      Cut(layout, map, TensorOf("t", DType::kI64, {1, 3}, {10, 20, 30}), {.fill = int64_t{-7}});
  ExpectParts(parts, DType::kI64, {1, 2}, {{10, 20}, {30, -7}, {-7, -7}, {-7, -7}});
  const Tensor full = Joined(layout, map, parts, {});
  ExpectTensor(&full, DType::kI64, {1, 8}, {10, 20, 30, -7, -7, -7, -7, -7});
  const Tensor back = Joined(layout, map, parts, {.trim = true});
  ExpectTensor(&back, DType::kI64, {1, 3}, {10, 20, 30});
}

// T51
TEST_F(TokenVerbsTest, CaseS9ARowShapeWithoutPadding) {
  ShardLayout layout;
  layout.input_row_shape = IntArray{{2}, {1, 4}};
  CapturedMap captured{4, {IndexMap(), IndexMap()}};
  captured.maps[0].Append({0, 1});
  captured.maps[0].Append({3, 1});
  captured.maps[1].Append({1, 2});
  const HeldColumns map{captured, {}, 2};
  const Tensor tensor = TensorOf("t", DType::kF32, {1, 4}, {0, 1, 2, 3});
  ExpectParts(Cut(layout, map, tensor, {}), DType::kF32, {2}, {{0, 3}, {1, 2}});
  const Tensor back = Joined(
      layout, map,
      {TensorOf("t", DType::kF32, {1, 2}, {0, 3}), TensorOf("t", DType::kF32, {1, 2}, {1, 2})},
      {.trim = true});
  ExpectTensor(&back, DType::kF32, {1, 4}, {0, 1, 2, 3});
}

// S11, S12 but for its gradient.
TEST_F(TokenVerbsTest, CasesS11S12SequencesAreJoinedInRankOrder) {
  const auto joined = GatherSequence(
      {TensorOf("t", DType::kI64, {1, 2}, {0, 1}), TensorOf("t", DType::kI64, {1, 2}, {2, 3})}, 1,
      *executor_, pool_);
  ASSERT_TRUE(joined.ok()) << joined.status();
  ExpectTensor(&*joined, DType::kI64, {1, 4}, {0, 1, 2, 3});
  const auto last = GatherSequence(
      {TensorOf("t", DType::kF32, {1, 2}, {0, 1}), TensorOf("t", DType::kF32, {1, 2}, {10, 11})},
      -1, *executor_, pool_);
  ASSERT_TRUE(last.ok()) << last.status();
  ExpectTensor(&*last, DType::kF32, {1, 4}, {0, 1, 10, 11});
}

TEST_F(TokenVerbsTest, CaseS13PackedLabelsComeBackWithTheFillWhereTheyWereDropped) {
  const Batch batch{{TensorOf("input_ids", DType::kI64, {1, 6}, {1, 2, 3, 4, 5, 6}),
                     TensorOf("labels", DType::kI64, {1, 6}, {101, 102, 103, 104, 105, 106}),
                     TensorOf("seq_lens", DType::kI64, {1, 2}, {3, 2}),
                     TensorOf("seq_lens_padded", DType::kI64, {1, 2}, {3, 3})},
                    {}};
  const std::vector<RankShard> shards = ShardsOf(
      DeepseekV41({.pad_multiple = 4, .packed_alignment = 2}, {.padding_token_id = 99}), batch, 2);
  ExpectTensor(shards[0].batch.FindTensor("input_ids"), DType::kI64, {1, 4}, {1, 2, 3, 99});
  ExpectTensor(shards[1].batch.FindTensor("input_ids"), DType::kI64, {1, 4}, {4, 5, 99, 99});
  const auto back =
      GatherStream(shards, "labels", {.trim = true, .fill = int64_t{-100}}, *executor_, pool_);
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectTensor(&*back, DType::kI64, {1, 6}, {101, 102, 103, 104, 105, -100});
}

TEST_F(TokenVerbsTest, WithoutATrimTheLayoutsLengthDoesNotMatter) {
  const std::vector<Tensor> parts = {TensorOf("t", DType::kI32, {1, 3}, {0, 1, 2}),
                                     TensorOf("t", DType::kI32, {1, 3}, {3, 4, 5})};
  const HeldColumns map = Over(ClosedForm::kContiguous, 2);
  const Tensor full = Joined(Says(7, 8), map, parts, {});
  ExpectTensor(&full, DType::kI32, {1, 6}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(Code(Says(7, 8), map, parts, {.trim = true}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenVerbsTest, NothingIsGatheredToNothing) {
  for (const int64_t cp_size : {1, 2, 3}) {
    const std::vector<Tensor> parts(cp_size, TensorOf("t", DType::kF64, {2, 0, 3}, {}));
    for (const ClosedForm form : {ClosedForm::kContiguous, ClosedForm::kRoundRobin}) {
      const Tensor full = Joined({}, Over(form, cp_size), parts, {});
      ExpectTensor(&full, DType::kF64, {2, 0, 3}, {});
      const Tensor back = Joined(Says(0, 0), Over(form, cp_size), parts, {.trim = true});
      ExpectTensor(&back, DType::kF64, {2, 0, 3}, {});
    }
    const std::vector<Tensor> empty(cp_size, TensorOf("t", DType::kF64, {0, 4}, {}));
    const Tensor full = Joined({}, Over(ClosedForm::kContiguous, cp_size), empty, {});
    ExpectTensor(&full, DType::kF64, {0, 4 * cp_size}, {});
  }
}

TEST_F(TokenVerbsTest, PartsThatDoNotGoTogetherAreNotGathered) {
  const Tensor good = TensorOf("t", DType::kI32, {1, 2}, {0, 1});
  const HeldColumns map = Over(ClosedForm::kContiguous, 2);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Code({}, map, {}, {}).code(), invalid);
  EXPECT_EQ(Code({}, map, {good, TensorOf("t", DType::kI64, {1, 2}, {0, 1})}, {}).code(), invalid);
  EXPECT_EQ(Code({}, map, {good, TensorOf("t", DType::kI32, {2}, {0, 1})}, {}).code(), invalid);
  EXPECT_EQ(Code({}, map, {good, good}, {.seq_axis = 2}).code(), invalid);
  // One part short of the map's ranks.
  CapturedMap captured{4, {IndexMap(), IndexMap()}};
  captured.maps[0].Append({0, 2});
  captured.maps[1].Append({2, 2});
  EXPECT_EQ(Code({}, {captured, {}, 2}, {good}, {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenVerbsTest, SequencesThatDoNotGoTogetherAreNotJoined) {
  const Tensor good = TensorOf("t", DType::kI32, {1, 2}, {0, 1});
  const auto refusal = [&](const std::vector<Tensor>& parts, int64_t axis) {
    return GatherSequence(parts, axis, *executor_, pool_).status();
  };
  const std::vector<std::pair<absl::Status, std::string>> refusals = {
      {refusal({}, 1), "no parts"},
      {refusal({good, TensorOf("t", DType::kF32, {1, 2}, {0, 1})}, 1), "f32"},
      {refusal({good, TensorOf("t", DType::kI32, {1, 3}, {0, 1, 2})}, 1), "[1, 3]"},
      {refusal({good, good}, 2), "axis 2"},
      {refusal({good}, -3), "axis -3"},
  };
  for (const auto& [status, part] : refusals) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

// Contract 4.18, rank by rank: what the ranks before contribute, zeros before the beginning.
TEST_F(TokenVerbsTest, ALeftHaloIsTheEndOfWhatStandsBefore) {
  for (const int64_t ranks : {1, 2, 3, 5}) {
    for (const int64_t length : {1, 2, 3}) {
      std::vector<Tensor> parts;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        Values values;
        for (int64_t row = 0; row < 2; ++row) {
          for (int64_t i = 0; i < length; ++i) {
            values.push_back(static_cast<double>(1000 * row + rank * length + i + 1));
          }
        }
        parts.push_back(TensorOf("x", DType::kF64, {2, length, 1}, values));
      }
      for (int64_t history = 0; history <= 7; ++history) {
        const auto halos = LeftHalos(parts, history, Limits{}, *executor_, pool_);
        ASSERT_TRUE(halos.ok()) << halos.status();
        for (int64_t rank = 0; rank < ranks; ++rank) {
          Values want;
          for (int64_t row = 0; row < 2; ++row) {
            for (int64_t column = rank * length - history; column < rank * length; ++column) {
              want.push_back(column < 0 ? 0 : static_cast<double>(1000 * row + column + 1));
            }
          }
          ExpectTensor(&(*halos)[rank], DType::kF64, {2, history, 1}, want);
        }
      }
    }
  }
}

// A length that the options or a record make up is refused before anything is allocated.
TEST_F(TokenVerbsTest, OutputsBeyondTheLimitAreRefused) {
  const Tensor tensor = TensorOf("t", DType::kI64, {1, 3}, {0, 1, 2});
  const auto parts = ShardTokenTensor(Says(3, int64_t{1} << 60), Over(ClosedForm::kContiguous, 2),
                                      tensor, {.fill = int64_t{0}}, Limits{}, *executor_, pool_);
  EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument) << parts.status();
  EXPECT_THAT(std::string(parts.status().message()), HasSubstr("padded_seq_len"));
  const auto halos = LeftHalos({TensorOf("x", DType::kI64, {1, 1, 1}, {0})}, int64_t{1} << 60,
                               Limits{}, *executor_, pool_);
  EXPECT_EQ(halos.status().code(), absl::StatusCode::kInvalidArgument) << halos.status();
}

}  // namespace
}  // namespace cpshard
