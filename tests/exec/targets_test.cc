// The option targets under every layout, rank by rank. Labels say where they come from, so the
// label in a slot tells which token lies there; what its target must be is worked out here from
// contract 4.19, token by token.
#include "core/plan/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/exec/bodies.h"

namespace cpshard {
namespace {

constexpr int64_t kIgnore = -100;
constexpr int64_t kUnused = -1000;
constexpr SharedOptions kPadId = {.padding_token_id = 77};

int64_t At(const Tensor& tensor, int64_t index) { return ViewValues(tensor)[index]; }

enum class Positions { kNone, kOneRow, kRows, kThreeAxes };

struct Sample {
  int64_t rows = 0, length = 0;
  std::vector<std::vector<int64_t>> ids;  // of the sequences, token by token; empty: none
  Positions positions = Positions::kNone;
  Batch batch;

  int64_t IdOf(int64_t row, int64_t column) const { return ids.empty() ? 0 : ids[row][column]; }
  // What position_ids must be once every row has its own.
  int64_t PositionOf(int64_t axis, int64_t row, int64_t column) const {
    switch (positions) {
      case Positions::kNone:
        return column;
      case Positions::kOneRow:
        return 500 + 3 * column;
      default:
        return 500 + 3 * column + 100 * row + 1000 * axis;
    }
  }
};

int64_t IdAt(int64_t row, int64_t column) { return 2000 + 100 * row + column; }
int64_t LabelAt(int64_t row, int64_t column) { return 5000 + 100 * row + column; }

Tensor Make(std::string name, DType dtype, std::vector<int64_t> dims, auto value) {
  std::vector<double> values;
  for (int64_t i = 0; i < Product(dims); ++i) values.push_back(static_cast<double>(value(i)));
  return TensorOf(std::move(name), dtype, std::move(dims), values);
}

Sample Rows(int64_t rows, int64_t length, Positions positions, DType dtype = DType::kI64) {
  Sample sample{rows, length, {}, positions};
  std::vector<Tensor>& tensors = sample.batch.tensors;
  const auto by_token = [&](auto value) {
    return [=](int64_t i) { return value(i / length % rows, i % length); };
  };
  tensors.push_back(Make("input_ids", dtype, {rows, length}, by_token(IdAt)));
  tensors.push_back(Make("labels", dtype, {rows, length}, by_token(LabelAt)));
  const std::vector<std::vector<int64_t>> dims = {
      {}, {1, length}, {rows, length}, {3, rows, length}};
  if (positions == Positions::kNone) return sample;
  const Sample& ref = sample;
  const auto value = [&](int64_t i) {
    return ref.PositionOf(i / (rows * length), i / length % rows, i % length);
  };
  tensors.push_back(Make("position_ids", dtype, dims[static_cast<int>(positions)], value));
  return sample;
}

// Sequences that come back after another one, as ids per token may.
Sample WithIds(Sample sample, const std::string& name) {
  for (int64_t row = 0; row < sample.rows; ++row) {
    std::vector<int64_t>& ids = sample.ids.emplace_back();
    for (int64_t s = 0; s < sample.length; ++s) {
      ids.push_back(s < 5 ? 1 : s % 3 == row % 3 ? 2 : 1 + s / 4);
    }
  }
  const int64_t length = sample.length;
  const auto ids = sample.ids;
  sample.batch.tensors.push_back(Make(name, DType::kI32, {sample.rows, length},
                                      [&](int64_t i) { return ids[i / length][i % length]; }));
  return sample;
}

using Documents = std::vector<std::vector<std::pair<int64_t, int64_t>>>;  // real, padded; per row

Tensor LengthsOf(std::string name, const Documents& documents, bool padded) {
  size_t width = 0;
  for (const auto& row : documents) width = std::max(width, row.size());
  std::vector<double> values;
  for (const auto& row : documents) {
    for (const auto& [real, wide] : row)
      values.push_back(static_cast<double>(padded ? wide : real));
    values.resize(values.size() + width - row.size(), kUnused);
  }
  return TensorOf(std::move(name), DType::kI64,
                  {static_cast<int64_t>(documents.size()), static_cast<int64_t>(width)}, values);
}

// The padded lengths make the sequences, where they are sent; what is left of a row is one more.
Sample Packed(Sample sample, const Documents& documents, bool send_padded = true) {
  for (const auto& row : documents) {
    std::vector<int64_t>& ids = sample.ids.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      const int64_t length = send_padded ? row[i].second : row[i].first;
      ids.insert(ids.end(), length, static_cast<int64_t>(i) + 1);
    }
    ids.resize(sample.length, 99);
  }
  sample.batch.tensors.push_back(LengthsOf("seq_lens", documents, false));
  if (send_padded) sample.batch.tensors.push_back(LengthsOf("seq_lens_padded", documents, true));
  return sample;
}

class Targets : public ShardBodyTest {
 protected:
  // The targets of every slot of every rank. `positions_kept`: the layout does not make its own.
  void Check(const std::string& what, const Sharder& inner, const Sample& sample,
             std::optional<int64_t> cp_size, bool positions_kept = true) {
    SCOPED_TRACE(what);
    constexpr int64_t kDepths = 4;
    const Sharder sharder = WithTargets(inner, {.num_depths = kDepths});
    absl::StatusOr<ShardResult> made =
        ShardBatch(sharder, sample.batch, cp_size, {}, Limits(), *executor_, pool_);
    ASSERT_TRUE(made.ok()) << made.status();
    int64_t tokens = 0;
    for (const RankShard& shard : made->shards) {
      for (int64_t depth = 1; depth <= kDepths; ++depth) CheckShard(shard.batch, sample, depth);
      if (positions_kept) CheckPositions(shard.batch, sample);
      const Tensor& labels = *shard.batch.FindTensor("labels");
      for (int64_t i = 0; i < NumElements(labels.spec); ++i) tokens += At(labels, i) != kIgnore;
    }
    EXPECT_GT(tokens, 0);
    ExpectRightBodies(PlanBatch(sharder, sample.batch, cp_size).value(), sample.batch);
  }

 private:
  static std::optional<std::pair<int64_t, int64_t>> TokenIn(const Tensor& labels, int64_t slot) {
    const int64_t label = At(labels, slot);
    if (label == kIgnore) return std::nullopt;
    return std::pair((label - 5000) / 100, (label - 5000) % 100);
  }

  static const Tensor& Of(const Batch& shard, const std::string& name) {
    static const Tensor none;
    const Tensor* tensor = shard.FindTensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor == nullptr ? none : *tensor;
  }

  void CheckShard(const Batch& shard, const Sample& sample, int64_t depth) {
    const std::string number = std::to_string(depth - 1);
    const Tensor& labels = Of(shard, "labels");
    const Tensor& ids = Of(shard, "target_input_ids." + number);
    const Tensor& targets = Of(shard, "targets." + number);
    const Tensor& valid = Of(shard, "valid_masks." + number);
    const Tensor& positions = Of(shard, "target_position_ids." + number);
    ASSERT_EQ(ids.spec.dims, labels.spec.dims);
    ASSERT_EQ(targets.spec.dims, labels.spec.dims);
    ASSERT_EQ(valid.spec.dims, labels.spec.dims);
    ASSERT_EQ(valid.spec.dtype, DType::kBool);
    ASSERT_EQ(ids.spec.dtype, sample.batch.tensors[0].spec.dtype);
    const int64_t slots = NumElements(labels.spec);
    const int64_t axes = sample.positions == Positions::kThreeAxes ? 3 : 1;
    ASSERT_EQ(NumElements(positions.spec), axes * slots);
    for (int64_t slot = 0; slot < slots; ++slot) {
      const auto token = TokenIn(labels, slot);
      const bool has = token && HasTarget(sample, token->first, token->second, depth);
      const auto [row, column] = token.value_or(std::pair<int64_t, int64_t>(0, 0));
      const int64_t ahead = column + depth;
      SCOPED_TRACE("depth " + std::to_string(depth) + ", row " + std::to_string(row) + ", column " +
                   std::to_string(column));
      ASSERT_EQ(At(valid, slot), has);
      ASSERT_EQ(At(ids, slot), has ? IdAt(row, ahead) : 0);
      ASSERT_EQ(At(targets, slot), has ? LabelAt(row, ahead) : kIgnore);
      for (int64_t axis = 0; axis < axes; ++axis) {
        ASSERT_EQ(At(positions, axis * slots + slot),
                  has ? sample.PositionOf(axis, row, ahead) : 0);
      }
    }
  }

  static bool HasTarget(const Sample& sample, int64_t row, int64_t column, int64_t depth) {
    return column + depth < sample.length &&
           sample.IdOf(row, column) == sample.IdOf(row, column + depth);
  }

  void CheckPositions(const Batch& shard, const Sample& sample) {
    const Tensor& labels = Of(shard, "labels");
    const Tensor& positions = Of(shard, "position_ids");
    const int64_t slots = NumElements(labels.spec);
    const int64_t axes = sample.positions == Positions::kThreeAxes ? 3 : 1;
    ASSERT_EQ(NumElements(positions.spec), axes * slots);
    for (int64_t i = 0; i < axes * slots; ++i) {
      const auto token = TokenIn(labels, i % slots);
      if (!token) continue;
      ASSERT_EQ(At(positions, i), sample.PositionOf(i / slots, token->first, token->second));
    }
  }
};

constexpr Positions kAllPositions[] = {Positions::kNone, Positions::kOneRow, Positions::kRows,
                                       Positions::kThreeAxes};

std::vector<std::pair<std::string, Sharder>> RowLayouts() {
  return {{"identity", Identity()},
          {"contiguous", Contiguous({}, kPadId)},
          {"contiguous, full", Contiguous({1, Primary::kLeaveFull}, kPadId)},
          {"round robin", RoundRobin({}, kPadId)},
          {"aux-only", RoundRobin({Primary::kLeaveFull}, kPadId)},
          {"deepseek_v4", DeepseekV4({}, kPadId)},
          {"deepseek_v41", DeepseekV41({}, kPadId)},
          {"gemma4", Gemma4(kPadId)}};
}

TEST_F(Targets, OfRowsFollowTheirTokensToEveryRank) {
  for (const Positions positions : kAllPositions) {
    for (const int64_t cp_size : {1, 2, 3}) {
      for (const auto& [name, sharder] : RowLayouts()) {
        Check(name, sharder, Rows(3, 13, positions), cp_size);
        Check(name + ", i32", sharder, Rows(2, 4, positions, DType::kI32), cp_size);
      }
    }
  }
}

TEST_F(Targets, OfRowsWithIdsStayInTheirSequence) {
  for (const Positions positions : kAllPositions) {
    for (const auto& [name, sharder] : RowLayouts()) {
      Check(name, sharder, WithIds(Rows(3, 13, positions), "seq_idx"), 2);
    }
    Check("gemma4", Gemma4(kPadId), WithIds(Rows(3, 13, positions), "_packed_seq_ids"), 2);
  }
}

TEST_F(Targets, OfLayoutsThatTakeTwoAxesOfPositions) {
  for (const Positions positions : {Positions::kNone, Positions::kOneRow, Positions::kRows}) {
    for (const int64_t cp_size : {1, 2}) {
      const Sample sample = WithIds(Rows(2, 13, positions), "_packed_seq_ids");
      Check("kimi", Kimi(KimiVariant::kLinear, kPadId), sample, cp_size);
      Check("kimi k3", Kimi(KimiVariant::kK3, kPadId), sample, cp_size);
      Check("glm5_next", Glm5Next(Primary::kLeaveFull, kPadId), sample, cp_size);
      Check("glm5_next, cut", Glm5Next(Primary::kCut, kPadId), sample, cp_size);
      Check("qwen3_8", Qwen38({}, kPadId), Rows(2, 13, positions), cp_size);
    }
  }
}

TEST_F(Targets, OfOneRow) {
  for (const Positions positions : {Positions::kNone, Positions::kRows, Positions::kThreeAxes}) {
    const Sample sample = WithIds(Rows(1, 13, positions), "_packed_seq_ids");
    Check("block_diagonal", BlockDiagonal(Primary::kCut, kPadId), sample, 2);
    Check("magi", Magi({.chunk_size = 2}, kPadId), sample, 2, /*positions_kept=*/false);
    Check("magi untouched", Magi({.variant = MagiVariant::kCustom}, kPadId), sample, 2);
    Check("explicit", Explicit({{{5, 9}, {0, 1}}, {{1, 4}}}, kPadId), sample, 2);
  }
}

// Two rows of 24 columns; padded lengths are multiples of 4.
const Documents kFull = {{{3, 4}, {8, 8}, {9, 12}}, {{16, 16}, {5, 8}}};

TEST_F(Targets, OfPackedDocumentsFollowTheirTokensToEveryRank) {
  for (const Positions positions : {Positions::kNone, Positions::kOneRow, Positions::kRows}) {
    const Sample sample = Packed(Rows(2, 24, positions), kFull);
    Check("identity", Identity(), sample, 2);
    Check("contiguous", Contiguous({}, kPadId), sample, 2);
    Check("thd", Thd({}), sample, 2);
    Check("thd, not cut", Thd({}), sample, std::nullopt);
    Check("thd, chunks", Thd({.num_chunks = 2}), sample, 2);
    Check("thd, chunks, not cut", Thd({.num_chunks = 2}), sample, 1);
    Check("glm_dsa", GlmDsa({}), sample, 4);
    Check("glm_dsa, chunks", GlmDsa({.num_chunks = 2}), sample, 2);
    Sample thd = sample;
    thd.batch.scalars.push_back({"qkv_format", std::string("thd")});
    Check("mimo", Mimo({}), thd, 2);
    Check("head and tail", DocumentHeadTail(), sample, 3);
    Check("kimi", Kimi(KimiVariant::kK3, kPadId), sample, 2);
    Check("glm5_next", Glm5Next(Primary::kCut, kPadId), sample, 2);
  }
}

TEST_F(Targets, OfThreeAxesOfPositionsOnAFlatStream) {
  const Sample sample = Packed(Rows(2, 24, Positions::kThreeAxes), kFull);
  Check("thd, not cut", Thd({}), sample, 1);
  Check("head and tail", DocumentHeadTail(), sample, 3);
}

TEST_F(Targets, OfRowsThatAreLaidOutAnewMoveWithTheirTokens) {
  for (const Positions positions : kAllPositions) {
    const Sample sample = Packed(Rows(2, 24, positions), kFull);
    Check("deepseek_v4", DeepseekV4({3}, kPadId), sample, 2, /*positions_kept=*/false);
    Check("deepseek_v4 at 1", DeepseekV4({3}, kPadId), sample, 1);
    Check("deepseek_v41", DeepseekV41({3, 5}, kPadId), sample, 2, /*positions_kept=*/false);
    Check("deepseek_v41, no mesh", DeepseekV41({3, 5}, kPadId), sample, std::nullopt, false);
  }
}

TEST_F(Targets, OfADispatchedStream) {
  for (const Positions positions : {Positions::kNone, Positions::kOneRow, Positions::kRows}) {
    Sample sample = Packed(Rows(2, 24, positions), kFull);
    sample.batch.scalars.push_back({"qkv_format", std::string("thd")});
    const MagiOptions options = {.variant = MagiVariant::kCustom, .chunk_size = 7};
    Check("magi", Magi(options, kPadId), sample, 2, /*positions_kept=*/false);
    Check("magi, not cut", Magi(options, kPadId), sample, 1);
  }
}

TEST_F(Targets, WhatIsLeftOfARowIsASequenceOfItsOwn) {
  const Documents kShort = {{{4, 4}, {9, 9}}, {}};
  for (const bool padded : {true, false}) {
    Check("contiguous", Contiguous({}, kPadId),
          Packed(Rows(2, 16, Positions::kNone), kShort, padded), 2);
  }
}

TEST_F(Targets, RealLengthsMakeTheSequencesWhereNoOthersAreSent) {
  const Documents real = {{{4, 4}, {9, 9}, {3, 3}}, {{16, 16}}};
  Check("deepseek_v4", DeepseekV4({}, kPadId),
        Packed(Rows(2, 16, Positions::kNone), real, /*send_padded=*/false), 2, false);
}

// --- by hand: a token at the edge of a shard has the one behind it as its target
// ------------------

class TargetEdges : public ShardTest {
 protected:
  // ids 0 ... 7 and labels 100 ... 107 in one row; targets of depth 1 per rank.
  void Expect(const Sharder& sharder, std::vector<double> lengths,
              const std::vector<std::vector<double>>& targets) {
    std::vector<double> ids, labels;
    for (int i = 0; i < 8; ++i) ids.push_back(i), labels.push_back(100 + i);
    Batch batch;
    batch.tensors = {TensorOf("input_ids", DType::kI64, {1, 8}, ids),
                     TensorOf("labels", DType::kI64, {1, 8}, labels)};
    if (!lengths.empty()) {
      const auto count = static_cast<int64_t>(lengths.size());
      batch.tensors.push_back(TensorOf("seq_lens", DType::kI64, {1, count}, lengths));
    }
    const std::vector<RankShard> shards = ShardsOf(WithTargets(sharder, {}), batch, 2);
    for (size_t rank = 0; rank < 2; ++rank) {
      std::vector<double> next;
      for (const double target : targets[rank]) next.push_back(target == -100 ? 0 : target - 100);
      const Tensor* made = shards[rank].batch.FindTensor("targets.0");
      ASSERT_NE(made, nullptr);
      ExpectTensor(made, DType::kI64, made->spec.dims, targets[rank]);
      ExpectTensor(shards[rank].batch.FindTensor("target_input_ids.0"), DType::kI64,
                   made->spec.dims, next);
    }
  }
};

TEST_F(TargetEdges, OfConsecutiveSlices) {
  Expect(Contiguous({}, kPadId), {}, {{101, 102, 103, 104}, {105, 106, 107, -100}});
}

TEST_F(TargetEdges, OfHeadAndTailSlices) {
  Expect(RoundRobin({}, kPadId), {}, {{101, 102, 107, -100}, {103, 104, 105, 106}});
}

TEST_F(TargetEdges, OfDocumentsThatAreCutOneByOne) {
  Expect(Thd({}), {4, 4}, {{101, -100, 105, -100}, {102, 103, 106, 107}});
}

// Documents of 3 and 5 tokens widen to 4 and 6 columns, the row to 12; rank 0 holds six of them.
TEST_F(TargetEdges, OfDocumentsThatAreLaidOutAnew) {
  Expect(DeepseekV4({}, kPadId), {3, 5},
         {{101, 102, -100, -100, 104, 105}, {106, 107, -100, -100, -100, -100}});
}

}  // namespace
}  // namespace cpshard
