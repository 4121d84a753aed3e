#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/memcpy_anchor.h"
#include "client/cli/bench/row.h"
#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

// Streams that every rank holds whole are windows on one buffer.
int64_t BytesOf(const ShardResult& result) {
  std::set<const std::byte*> seen;
  int64_t bytes = 0;
  for (const RankShard& shard : result.shards) {
    for (const Tensor& tensor : shard.batch.tensors) {
      if (seen.insert(tensor.buffer.data()).second) {
        bytes += static_cast<int64_t>(tensor.buffer.size());
      }
    }
  }
  return bytes;
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

std::string DifferenceOfShard(const RankShard& got, const RankShard& want) {
  if (got.layout != want.layout) return "the layout";
  if (got.batch.tensors.size() != want.batch.tensors.size()) return "the number of streams";
  for (const Tensor& tensor : want.batch.tensors) {
    const Tensor* found = got.batch.FindTensor(tensor.spec.name);
    if (found == nullptr || found->spec != tensor.spec || !SameBytes(*found, tensor)) {
      return absl::StrCat("stream '", tensor.spec.name, "'");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<Work> MakeWork(double bytes, const Options& options, int64_t cp_size,
                              BufferPool& pool) {
  Work work{.shape = TokenShape::For(bytes, cp_size), .options = options, .cp_size = cp_size};
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  CPSHARD_ASSIGN_OR_RETURN(work.memcpy_bytes_per_second, MemcpyBytesPerSecond(work.shape.bytes()));
  CPSHARD_ASSIGN_OR_RETURN(work.batches, TokenBatches::Make(work.shape, kColdBytes, pool));
  const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  CPSHARD_ASSIGN_OR_RETURN(work.expected, ShardBatch(sharder, work.batches.At(0), cp_size, {},
                                                     Limits(), *executor, pool));
  work.answer_bytes = BytesOf(work.expected);
  return work;
}

std::string DifferenceOf(const ShardResult& got, const ShardResult& want) {
  if (got.shards.size() != want.shards.size()) {
    return absl::StrCat(got.shards.size(), " shards, expected ", want.shards.size());
  }
  for (size_t i = 0; i < want.shards.size(); ++i) {
    const std::string text = DifferenceOfShard(got.shards[i], want.shards[i]);
    if (!text.empty()) return absl::StrCat(text, " of rank ", want.shards[i].layout.cp_rank);
  }
  return "";
}

}  // namespace cpshard::bench
