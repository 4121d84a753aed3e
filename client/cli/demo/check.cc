#include "client/cli/demo/check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <variant>

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

std::optional<std::vector<int64_t>> ValuesOf(const std::optional<IntArray>& array) {
  if (!array) return std::nullopt;
  return array->values;
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
  if (map.Expand() != want.columns) return "layout: the runs are not the expected columns";
  if (ValuesOf(got.local_token_global_indices) != want.local_token_global_indices) {
    return "layout: the indices are not the expected columns";
  }
  if (ValuesOf(got.input_row_shape) != want.input_row_shape) {
    return "layout: the row shape is not the expected one";
  }
  return "";
}

std::string CompareScalars(const std::vector<ScalarEntry>& got,
                           const std::map<std::string, oracle::Scalar>& want) {
  for (const auto& [name, value] : want) {
    const Scalar expected = std::visit([](const auto& v) { return Scalar(v); }, value);
    const ScalarEntry entry{name, expected};
    if (std::find(got.begin(), got.end(), entry) == got.end()) {
      return absl::StrCat("scalar '", name, "' is not what is expected");
    }
  }
  if (got.size() == want.size()) return "";
  return absl::StrCat(got.size(), " scalars came back, expected ", want.size());
}

std::string CompareShard(const RankShard& got, const oracle::Shard& want) {
  if (std::string text = CompareLayout(got.layout, want); !text.empty()) return text;
  for (const auto& [name, tensor] : want.outputs) {
    const Tensor* found = got.batch.FindTensor(name);
    if (found == nullptr) return absl::StrCat("stream '", name, "' is missing");
    if (std::string text = CompareTensor(*found, tensor); !text.empty()) return text;
  }
  if (got.batch.tensors.size() == want.outputs.size()) {
    return CompareScalars(got.batch.scalars, want.scalars);
  }
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

std::string DifferenceOfShard(const Batch& batch, const oracle::Options& options, int64_t cp_size,
                              int64_t rank, const RankShard& shard) {
  const std::optional<oracle::Shard> want =
      oracle::Restate(ToOracle(batch), options, cp_size, rank);
  if (!want) return "the contract refuses this batch, but it was sharded";
  return CompareShard(shard, *want);
}

std::string DifferenceAfterGather(const Tensor& expected, const std::vector<RankShard>& shards,
                                  Executor& executor, BufferPool& pool) {
  const std::string& name = expected.spec.name;
  const absl::StatusOr<Tensor> back = GatherStream(shards, name, {.trim = true}, executor, pool);
  if (!back.ok()) return absl::StrCat("gather: ", back.status().message());
  if (back->spec != expected.spec) {
    return absl::StrCat("stream '", name, "' comes back as ", DTypeName(back->spec.dtype),
                        DimsString(back->spec.dims), ", expected ", DTypeName(expected.spec.dtype),
                        DimsString(expected.spec.dims));
  }
  const auto* want = reinterpret_cast<const uint8_t*>(expected.buffer.data());
  const std::string text = FirstElement(*back, want);
  return text.empty() ? "" : absl::StrCat("after gather: ", text);
}

}  // namespace cpshard::demo
