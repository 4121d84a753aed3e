#include "client/cli/demo/check.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/exec/gather.h"

namespace cpshard::demo {
namespace {

oracle::Batch ToOracle(const Batch& batch) {
  oracle::Batch copy;
  for (const Tensor& tensor : batch.tensors) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(tensor.buffer.data());
    copy[tensor.spec.name] = {std::string(DTypeName(tensor.spec.dtype)),
                              tensor.spec.dims,
                              {bytes, bytes + tensor.buffer.size()}};
  }
  return copy;
}

// `got` and `want` have the same shape and dtype.
std::string FirstElement(const Tensor& got, const uint8_t* want) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(got.buffer.data());
  const size_t size = got.buffer.size();
  const size_t at = std::mismatch(bytes, bytes + size, want).first - bytes;
  if (at == size) return "";
  return absl::StrCat("stream '", got.spec.name, "' ", DimsString(got.spec.dims), ": element ",
                      at / ItemSize(got.spec.dtype), " differs");
}

std::string CompareTensor(const Tensor& got, const oracle::Tensor& want) {
  if (DTypeName(got.spec.dtype) != want.dtype || got.spec.dims != want.dims) {
    return absl::StrCat("stream '", got.spec.name, "' is ", DTypeName(got.spec.dtype),
                        DimsString(got.spec.dims), ", expected ", want.dtype,
                        DimsString(want.dims));
  }
  return FirstElement(got, want.bytes.data());
}

std::string CompareLayout(const ShardLayout& got, const oracle::Shard& want) {
  IndexMap map;
  for (const Run& run : got.runs) map.Append(run);
  if (got.original_seq_len != want.original_seq_len || got.padded_seq_len != want.padded_seq_len) {
    return absl::StrCat("layout: lengths ", got.original_seq_len.value_or(-1), " -> ",
                        got.padded_seq_len.value_or(-1), ", expected ",
                        want.original_seq_len.value_or(-1), " -> ",
                        want.padded_seq_len.value_or(-1));
  }
  return map.Expand() == want.columns ? "" : "layout: the runs are not the expected columns";
}

std::string CompareShard(const RankShard& got, const oracle::Shard& want) {
  if (std::string text = CompareLayout(got.layout, want); !text.empty()) return text;
  for (const auto& [name, tensor] : want.outputs) {
    const Tensor* found = got.batch.FindTensor(name);
    if (found == nullptr) return absl::StrCat("stream '", name, "' is missing");
    if (std::string text = CompareTensor(*found, tensor); !text.empty()) return text;
  }
  if (got.batch.tensors.size() == want.outputs.size()) return "";
  return absl::StrCat(got.batch.tensors.size(), " streams came back, expected ",
                      want.outputs.size());
}

}  // namespace

std::string DifferenceFromContract(const Batch& batch, const oracle::Options& options,
                                   int64_t cp_size, const std::vector<RankShard>& shards) {
  if (static_cast<int64_t>(shards.size()) != cp_size) {
    return absl::StrCat(shards.size(), " shards came back, expected ", cp_size);
  }
  const oracle::Batch input = ToOracle(batch);
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    const std::optional<oracle::Shard> want = oracle::Restate(input, options, cp_size, rank);
    if (!want) return "the contract refuses this batch, but it was sharded";
    const std::string text = CompareShard(shards[rank], *want);
    if (!text.empty()) return absl::StrCat("rank ", rank, ": ", text);
  }
  return "";
}

std::string DifferenceAfterGather(const Batch& batch, const std::vector<RankShard>& shards,
                                  Executor& executor, BufferPool& pool) {
  for (const Tensor& sent : batch.tensors) {
    const absl::StatusOr<Tensor> back =
        GatherStream(shards, sent.spec.name, {.trim = true}, executor, pool);
    if (!back.ok()) return absl::StrCat("gather: ", back.status().message());
    if (back->spec != sent.spec) {
      return absl::StrCat("stream '", sent.spec.name, "' comes back as ",
                          DimsString(back->spec.dims));
    }
    const auto* want = reinterpret_cast<const uint8_t*>(sent.buffer.data());
    const std::string text = FirstElement(*back, want);
    if (!text.empty()) return absl::StrCat("after gather: ", text);
  }
  return "";
}

}  // namespace cpshard::demo
