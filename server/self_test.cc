#include "server/self_test.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/shard.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"

namespace cpshard {
namespace {

constexpr int64_t kRows = 2, kColumns = 92, kRanks = 4;  // padded by each layout

struct Case {
  const char* options;
  bool has_lengths;
};

// Long runs and short ones, fills, generated and converted streams.
constexpr Case kCases[] = {
    {R"({"round_robin": {}, "padding_token_id": 7})", false},
    {R"({"contiguous": {}, "padding_token_id": 7})", false},
    {R"({"thd": {}})", true},
};

template <typename Value>
absl::StatusOr<Tensor> TensorOf(TensorSpec spec, const std::vector<Value>& values,
                                BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(NumBytes(spec)));
  std::memcpy(buffer.data(), values.data(), buffer.size());
  return Tensor{std::move(spec), std::move(buffer)};
}

// Values that are all different, and lengths of documents where the layout reads them.
absl::StatusOr<Batch> MakeBatch(bool has_lengths, BufferPool& pool) {
  // Every document a multiple of what thd pads to.
  const std::vector<int32_t> real = {5, 16, 40, 21, 32, 30}, padded = {8, 16, 64, 24, 32, 32};
  const int64_t columns = has_lengths ? 88 : kColumns;
  Batch batch;
  for (const char* name : {"input_ids", "labels", "position_ids"}) {
    std::vector<int64_t> values(kRows * columns);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0x0102030405 * static_cast<int64_t>(i + 1) + name[0];
    }
    CPSHARD_ASSIGN_OR_RETURN(Tensor tensor,
                             TensorOf({name, DType::kI64, {kRows, columns}}, values, pool));
    batch.tensors.push_back(std::move(tensor));
  }
  if (!has_lengths) return batch;
  for (const auto& [name, lengths] : {std::pair("seq_lens", real), {"seq_lens_padded", padded}}) {
    CPSHARD_ASSIGN_OR_RETURN(Tensor tensor,
                             TensorOf({name, DType::kI32, {kRows, 3}}, lengths, pool));
    batch.tensors.push_back(std::move(tensor));
  }
  return batch;
}

absl::Status Compare(const ShardResult& made, const ShardResult& expected,
                     absl::string_view options) {
  for (size_t r = 0; r < expected.shards.size(); ++r) {
    const std::vector<Tensor>& theirs = expected.shards[r].batch.tensors;
    for (size_t t = 0; t < theirs.size(); ++t) {
      const auto is = made.shards[r].batch.tensors[t].bytes(), should_be = theirs[t].bytes();
      const auto differ = std::mismatch(is.begin(), is.end(), should_be.begin(), should_be.end());
      if (differ.first == is.end()) continue;
      return absl::InternalError(absl::StrCat(
          "self-test: ", made.executor, " computes wrongly: of ", options, ", rank ", r,
          ", stream '", theirs[t].spec.name, "' byte ", differ.first - is.begin(), " is ",
          static_cast<int>(*differ.first), " and must be ", static_cast<int>(*differ.second),
          "; do not use this device: executor = cpu shards without it"));
    }
  }
  return absl::OkStatus();
}

absl::Status TestOne(const Case& one, Executor& executor, BufferPool& batches, BufferPool& shards) {
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(one.options));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, MakeBatch(one.has_lengths, batches));
  const auto shard = [&](Executor& by, BufferPool& pool) {
    return ShardBatch(sharder, batch, kRanks, {}, Limits(), by, pool);
  };
  BufferPool plain;
  CPSHARD_ASSIGN_OR_RETURN(const ShardResult expected, shard(*MakeCpuExecutor(), plain));
  CPSHARD_ASSIGN_OR_RETURN(const ShardResult made, shard(executor, shards));
  return Compare(made, expected, one.options);
}

}  // namespace

absl::Status TestExecutor(Executor& executor, const std::shared_ptr<BlockSource>& blocks) {
  BufferPool plain, own({.blocks = blocks});
  for (const Case& one : kCases) {
    CPSHARD_RETURN_IF_ERROR(TestOne(one, executor, plain, plain));
    if (blocks != nullptr) CPSHARD_RETURN_IF_ERROR(TestOne(one, executor, own, own));
  }
  return absl::OkStatus();
}

}  // namespace cpshard
