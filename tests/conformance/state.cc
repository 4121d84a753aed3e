#include "tests/conformance/state.h"

#include <algorithm>
#include <utility>

#include "core/plan/magi_dispatch.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

std::vector<int64_t> ValuesOf(const Tensor& tensor) {
  const ValueView view = ViewValues(tensor);
  std::vector<int64_t> values(view.size());
  for (int64_t i = 0; i < view.size(); ++i) {
    values[i] = IsFloating(tensor.spec.dtype) ? static_cast<int64_t>(view.Number(i)) : view[i];
  }
  return values;
}

// The ids that all ranks got, one after the other.
std::vector<int64_t> GatheredIds(const std::vector<RankAnswer>& ranks) {
  std::vector<int64_t> ids;
  for (const RankAnswer& rank : ranks) {
    const Tensor* local = rank.batch.FindTensor("_packed_seq_ids");
    if (local == nullptr) return {};
    const std::vector<int64_t> values = ValuesOf(*local);
    ids.insert(ids.end(), values.begin(), values.end());
  }
  return ids;
}

// The ids that a mask [1, S] or [1, H, Q, K] stands for; without one all is one document.
std::vector<int64_t> IdsOfMask(const Tensor* mask, int64_t length) {
  if (mask == nullptr) return std::vector<int64_t>(length, 1);
  std::vector<int64_t> values = ValuesOf(*mask);
  const std::vector<int64_t>& dims = mask->spec.dims;
  if (dims.size() != 4) return values;
  std::vector<int64_t> diagonal;  // of head 0
  for (int64_t i = 0; i < std::min(dims[2], dims[3]); ++i) {
    diagonal.push_back(values[i * dims[3] + i]);
  }
  return diagonal;
}

std::vector<int64_t> Changes(const std::vector<int64_t>& ids) {
  std::vector<int64_t> boundaries = {0};
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] != ids[i - 1]) boundaries.push_back(static_cast<int64_t>(i));
  }
  boundaries.push_back(static_cast<int64_t>(ids.size()));
  return boundaries;
}

}  // namespace

void AddBlockDiagonalState(const ShardCall& call, std::vector<RankAnswer>& ranks) {
  if (call.cp_size.value_or(1) <= 1) return;
  const ShardLayout& layout = ranks.front().layout;
  if (!layout.original_seq_len || !layout.padded_seq_len) return;
  std::vector<int64_t> ids = GatheredIds(ranks);
  if (ids.empty()) {
    ids = IdsOfMask(call.batch.FindTensor("attention_mask"), *layout.original_seq_len);
    ids.resize(std::max<size_t>(ids.size(), *layout.padded_seq_len), 0);
  }
  const std::vector<int64_t> boundaries = Changes(ids);
  for (RankAnswer& rank : ranks) {
    rank.state.tensors = {
        IntTensor("doc_ids", DType::kI64, {1, static_cast<int64_t>(ids.size())}, ids),
        IntTensor("packed_cu_seqlens", DType::kI64, {static_cast<int64_t>(boundaries.size())},
                  boundaries)};
    const std::vector<Run>& runs = rank.layout.runs;
    rank.state.scalars = {{"row_offset", runs.empty() ? int64_t{0} : runs.front().source}};
  }
}

void AddMagiState(const ShardCall& call, std::vector<RankAnswer>& ranks) {
  const Tensor* tokens = call.batch.FindTensor("input_ids");
  if (tokens == nullptr) return;
  const int64_t total = NumElements(tokens->spec);
  // The chunks' size depends on no document (contract 7.4 step 1).
  const auto dispatch = DispatchCausal({total}, total, call.cp_size.value_or(1), 512, 8);
  for (RankAnswer& rank : ranks) {
    const std::optional<IntArray>& slots = rank.layout.local_token_global_indices;
    if (!slots || !rank.layout.padded_seq_len || !dispatch.ok()) continue;
    rank.state.tensors = {IntTensor("slot_indices(true)", DType::kI64,
                                    {static_cast<int64_t>(slots->values.size())}, slots->values)};
    rank.state.scalars = {{"total_tokens", total},
                          {"pad_size", *rank.layout.padded_seq_len - total},
                          {"chunk_size", dispatch->chunk_size}};
  }
}

}  // namespace cpshard::conformance
