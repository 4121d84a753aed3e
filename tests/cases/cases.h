// Failures that others met, as tests: each with its smallest input, then its kind on neighbouring
// dtypes, ranks and layouts; the id of the case stands above. Here: short forms for batches, and
// for what one rank must hold of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/exec/gather.h"
#include "tests/exec/batches.h"

namespace cpshard {

using Values = std::vector<double>;
using Rows = std::vector<Values>;

// first, first + 1, ...: `count` of them.
inline Values Count(int64_t first, int64_t count) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(first + i));
  return values;
}

// One row, [1, n].
inline Tensor Row(std::string name, const Values& values, DType dtype = DType::kI64) {
  return TensorOf(std::move(name), dtype, {1, static_cast<int64_t>(values.size())}, values);
}

// Rows of one length, [B, n].
inline Tensor RowsOf(std::string name, const Rows& rows, DType dtype = DType::kI64) {
  Values all;
  for (const Values& row : rows) all.insert(all.end(), row.begin(), row.end());
  return TensorOf(std::move(name), dtype,
                  {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows.front().size())},
                  all);
}

inline Batch With(Batch batch, Tensor tensor) {
  for (Tensor& old : batch.tensors) {
    if (old.spec.name == tensor.spec.name) {
      old = std::move(tensor);
      return batch;
    }
  }
  batch.tensors.push_back(std::move(tensor));
  return batch;
}

inline Batch Without(Batch batch, const std::string& name) {
  std::erase_if(batch.tensors, [&](const Tensor& tensor) { return tensor.spec.name == name; });
  return batch;
}

// One row of ids first, first + 1, ... and labels that are the next id, -100 at the end.
inline Batch RowBatch(int64_t length, int64_t first = 11) {
  Values labels = Count(first + 1, length);
  if (length > 0) labels.back() = -100;
  return {{Row("input_ids", Count(first, length)), Row("labels", labels)}, {}};
}

// Packed rows of `length` tokens: ids 0, 1, ... over all rows, labels 1000 more, positions 500
// more; the lengths of their documents. No padded lengths: none are sent.
inline Batch PackedBatch(int64_t length, const Rows& seq_lens, const Rows& seq_lens_padded) {
  const int64_t rows = static_cast<int64_t>(seq_lens.size());
  const std::vector<int64_t> dims = {rows, length};
  Batch batch{{TensorOf("input_ids", DType::kI64, dims, Count(0, rows * length)),
               TensorOf("labels", DType::kI64, dims, Count(1000, rows * length)),
               TensorOf("position_ids", DType::kI64, dims, Count(500, rows * length)),
               RowsOf("seq_lens", seq_lens)},
              {}};
  if (!seq_lens_padded.empty()) {
    batch.tensors.push_back(RowsOf("seq_lens_padded", seq_lens_padded));
  }
  return batch;
}

// A layout, and what to call it where a test fails.
struct NamedLayout {
  std::string name;
  Sharder sharder;
};

// Those that cut rows [B, S], with this padding id.
inline std::vector<NamedLayout> RowLayouts(int64_t padding_token_id = 0) {
  const SharedOptions shared{.padding_token_id = padding_token_id};
  return {{"contiguous", Contiguous({}, shared)}, {"round_robin", RoundRobin({}, shared)}};
}

// The same without their primary.
inline std::vector<NamedLayout> AuxLayouts() {
  return {{"contiguous aux", Contiguous({.primary = Primary::kLeaveFull})},
          {"round_robin aux", RoundRobin({.primary = Primary::kLeaveFull})}};
}

// All four.
inline std::vector<NamedLayout> AllRowLayouts(int64_t padding_token_id = 0) {
  std::vector<NamedLayout> layouts = RowLayouts(padding_token_id);
  for (NamedLayout& aux : AuxLayouts()) layouts.push_back(std::move(aux));
  return layouts;
}

// Elements of an integer or bool stream of a shard; fails where there is none.
inline std::vector<int64_t> IntsOf(const RankShard& shard, const std::string& name) {
  const Tensor* tensor = shard.batch.FindTensor(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << "rank " << shard.layout.cp_rank << " has no '" << name << "'";
    return {};
  }
  return ViewValues(*tensor).ToVector();
}

// The shard has one row [1, n], or one flat stream [n], of these values.
inline void ExpectRow(const RankShard& shard, const std::string& name, const Values& values,
                      DType dtype = DType::kI64) {
  SCOPED_TRACE(testing::Message() << "rank " << shard.layout.cp_rank);
  ExpectTensor(shard.batch.FindTensor(name), dtype, {1, static_cast<int64_t>(values.size())},
               values);
}

inline void ExpectRows(const RankShard& shard, const std::string& name, const Rows& rows,
                       DType dtype = DType::kI64) {
  SCOPED_TRACE(testing::Message() << "rank " << shard.layout.cp_rank);
  const Tensor want = RowsOf(name, rows, dtype);
  const Tensor* got = shard.batch.FindTensor(name);
  ASSERT_NE(got, nullptr) << name;
  EXPECT_EQ(got->spec, want.spec) << name;
  EXPECT_EQ(BytesOf(*got), BytesOf(want)) << name;
}

inline void ExpectFlat(const RankShard& shard, const std::string& name, const Values& values,
                       DType dtype = DType::kI64) {
  SCOPED_TRACE(testing::Message() << "rank " << shard.layout.cp_rank);
  ExpectTensor(shard.batch.FindTensor(name), dtype, {static_cast<int64_t>(values.size())}, values);
}

// Documents as a packed shard describes them: boundaries i32 [n], the longest one a 0-d i32.
inline void ExpectDocuments(const RankShard& shard, const Values& cu_seqlens) {
  ExpectFlat(shard, "cu_seqlens", cu_seqlens, DType::kI32);
  double longest = 0;
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    longest = std::max(longest, cu_seqlens[i] - cu_seqlens[i - 1]);
  }
  ExpectTensor(shard.batch.FindTensor("max_seqlen"), DType::kI32, {}, {longest});
}

inline void ExpectMask(const RankShard& shard, const Values& values) {
  ExpectRow(shard, "padding_mask", values, DType::kBool);
}

inline void ExpectFlatMask(const RankShard& shard, const Values& values) {
  ExpectFlat(shard, "padding_mask", values, DType::kBool);
}

// Which columns of the padded row, or of the flat stream, the rank holds, slot by slot.
inline std::vector<int64_t> IndicesOf(const RankShard& shard) {
  std::vector<int64_t> indices;
  for (const cpshard::Run& run : shard.layout.runs) {
    for (int64_t i = 0; i < run.length; ++i) indices.push_back(run.source + i);
  }
  return indices;
}

class CaseTest : public ShardTest {
 protected:
  // Refused with INVALID_ARGUMENT, in words that name all of `parts`, whatever ranks are asked for.
  void ExpectRefused(const Sharder& sharder, const Batch& batch, int64_t cp_size,
                     const std::vector<std::string>& parts) {
    for (std::vector<int64_t> ranks : {std::vector<int64_t>{}, std::vector<int64_t>{cp_size - 1}}) {
      const absl::StatusOr<ShardResult> result = Shard(sharder, batch, cp_size, ranks);
      ExpectStatus(result.status(), absl::StatusCode::kInvalidArgument, parts);
    }
  }

  void ExpectStatus(const absl::Status& status, absl::StatusCode code,
                    const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
    }
  }

  // What the trainer gets back.
  Tensor Gathered(const std::vector<RankShard>& shards, const std::string& name,
                  const GatherOptions& options = {}) {
    absl::StatusOr<Tensor> full = GatherStream(shards, name, options, *executor_, pool_);
    EXPECT_TRUE(full.ok()) << full.status();
    return full.ok() ? *std::move(full) : Tensor();
  }
};

}  // namespace cpshard
