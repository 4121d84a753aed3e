#include "core/oracle/row_maps.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/oracle/documents.h"
#include "core/oracle/tensors.h"
#include "core/oracle/values.h"

namespace cpshard::oracle {
namespace {

constexpr int64_t kIgnoreLabel = -100;

// One rank's shard in the making. Every step returns false where the contract refuses the batch.
struct Work {
  Batch batch;
  const Options& options;
  int64_t cp_size = 1;
  int64_t rank = 0;
  int64_t rows = 0;  // B
  Columns columns;
  Shard shard = {};

  bool Has(const std::string& name) const { return batch.contains(name); }
  int64_t start() const { return rank * static_cast<int64_t>(columns.local.size()); }
  bool Pads() const { return columns.padded_len > columns.source_len; }

  // [B, S, ...], the shape of a token-aligned stream (D5).
  bool IsTokens(const Tensor& tensor) const {
    return tensor.dims.size() >= 2 && tensor.dims[0] == rows &&
           tensor.dims[1] == columns.source_len;
  }

  bool CutAs(const std::string& name, const Tensor& tensor, int64_t axis, const Fill& fill) {
    std::optional<Tensor> cut = CutAxis(tensor, axis, columns, fill);
    if (cut) shard.outputs[name] = *std::move(cut);
    return cut.has_value();
  }

  // Nothing to do where it was not sent.
  bool CutTokens(const std::string& name, int64_t fill) {
    if (!Has(name)) return true;
    return IsTokens(batch.at(name)) && CutAs(name, batch.at(name), 1, Value(fill));
  }

  // All padded columns, on every rank.
  bool Whole(const std::string& name, const Tensor& tensor, int64_t fill) {
    Columns all = columns;
    all.local.clear();
    for (int64_t column = 0; column < columns.padded_len; ++column) all.local.push_back(column);
    std::optional<Tensor> padded = CutAxis(tensor, 1, all, Value(fill));
    if (padded) shard.outputs[name] = *std::move(padded);
    return padded.has_value();
  }
};

// Rows [B, S] of the primary, padded to a multiple of `divisor`, cut into consecutive slices.
bool PlaceColumns(const Tensor& primary, int64_t divisor, Work& work) {
  if (primary.dims.size() < 2) return false;
  work.rows = primary.dims[0];
  Columns& columns = work.columns;
  columns.source_len = columns.padded_len = primary.dims[1];
  while (columns.padded_len % divisor != 0) ++columns.padded_len;
  const int64_t local_len = columns.padded_len / work.cp_size;
  for (int64_t i = 0; i < local_len; ++i) columns.local.push_back(work.rank * local_len + i);
  work.shard.outputs = work.batch;
  work.shard.columns = columns.local;
  work.shard.original_seq_len = columns.source_len;
  work.shard.padded_seq_len = columns.padded_len;
  return true;
}

void Drop(const std::vector<std::string>& names, Work& work) {
  for (const std::string& name : names) work.shard.outputs.erase(name);
}

// input_ids need a pad id where they are padded (D5).
bool CutIds(Work& work) {
  const std::optional<int64_t> pad_id = work.options.padding_token_id;
  if (work.Pads() && !pad_id) return false;
  return work.CutTokens("input_ids", pad_id.value_or(0));
}

// --- document maps -------------------------------------------------------------------------------

Tensor Constant(int64_t rows, int64_t length, int64_t value) {
  return FromIntegers("i32", {rows, length}, std::vector<int64_t>(rows * length, value));
}

// A map given token by token, in the dtype of maps.
std::optional<Tensor> AsMap(const Tensor& tensor, const Work& work) {
  if (!work.IsTokens(tensor)) return std::nullopt;
  return FromIntegers("i32", tensor.dims, Integers(tensor));
}

// 1-based ids over the lengths of each row: unused places are taken out first, empty documents are
// counted, what passes the end is cut off, what is left is 0.
std::optional<Tensor> MapOfLengths(const Work& work) {
  const bool has_real = work.Has("seq_lens");
  const bool has_padded = work.Has("seq_lens_padded");
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    if (work.Has(name) && !AreLengths(work.batch.at(name), work.rows)) return std::nullopt;
  }
  const Tensor& reals = work.batch.at(has_real ? "seq_lens" : "seq_lens_padded");
  const Tensor& spans = work.batch.at(has_padded ? "seq_lens_padded" : "seq_lens");
  const int64_t length = work.columns.source_len;
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < work.rows; ++row) {
    const auto real = RowLengths(reals, row);
    const auto span = RowLengths(spans, row);
    if (!real || !span || real->size() != span->size()) return std::nullopt;  // D5
    std::vector<int64_t> of_row;
    for (size_t i = 0; i < span->size(); ++i) {
      if ((*real)[i] > (*span)[i]) return std::nullopt;  // D5
      for (int64_t k = 0; k < (*span)[i] && static_cast<int64_t>(of_row.size()) < length; ++k) {
        of_row.push_back(static_cast<int64_t>(i) + 1);
      }
    }
    of_row.resize(length, 0);
    ids.insert(ids.end(), of_row.begin(), of_row.end());
  }
  return FromIntegers("i32", {work.rows, length}, ids);
}

// 4.16 step 3d: of one row, whatever the batch has.
std::optional<Tensor> MapOfBoundaries(const Work& work) {
  const Tensor& tensor = work.batch.at("cu_seqlens");
  if (IsFloat(tensor.dtype) || tensor.dtype == "bool") return std::nullopt;
  std::vector<int64_t> boundaries;
  for (const int64_t boundary : Integers(tensor)) {
    if (boundary >= 0) boundaries.push_back(boundary);
  }
  const int64_t length = work.columns.source_len;
  if (boundaries.size() < 2) return Constant(1, length, 1);
  if (!std::is_sorted(boundaries.begin(), boundaries.end())) return std::nullopt;
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < length; ++t) {
    int64_t id = 1;
    for (size_t i = 1; i < boundaries.size(); ++i) id += boundaries[i] <= t ? 1 : 0;
    ids.push_back(t < boundaries.back() ? id : 0);
  }
  return FromIntegers("i32", {1, length}, ids);
}

// Ones, and 0 where padding_mask.
std::optional<Tensor> MapOfPaddingMask(const Work& work) {
  if (!work.Has("padding_mask")) return Constant(work.rows, work.columns.source_len, 1);
  const Tensor& mask = work.batch.at("padding_mask");
  if (!work.IsTokens(mask)) return std::nullopt;
  return FromIntegers("i32", mask.dims, ZeroFlags(mask));
}

// 4.12 step 1, 4.16 step 3.
std::optional<Tensor> MapOf(const Work& work, bool by_boundaries) {
  if (work.Has("_packed_seq_ids")) return AsMap(work.batch.at("_packed_seq_ids"), work);
  const auto mask = work.batch.find("attention_mask");
  if (mask != work.batch.end() && mask->second.dims.size() == 2) return AsMap(mask->second, work);
  if (work.Has("seq_lens") || work.Has("seq_lens_padded")) return MapOfLengths(work);
  if (by_boundaries && work.Has("cu_seqlens")) return MapOfBoundaries(work);
  return MapOfPaddingMask(work);
}

// The whole map, where the rank's slice begins, and a padding mask where there is none.
bool EmitMap(const Tensor& map, const std::string& prefix, Work& work) {
  if (!work.Whole(prefix + "doc_ids", map, 0)) return false;
  work.shard.scalars[prefix + "seq_start"] = work.start();
  work.shard.scalars[prefix + "cp_size"] = work.cp_size;
  if (work.Has("padding_mask")) return work.CutTokens("padding_mask", 1);
  std::vector<int64_t> padding;
  for (const int64_t id : Integers(map)) padding.push_back(id <= 0);
  return work.CutAs("padding_mask", FromIntegers("bool", map.dims, padding), 1, Value(int64_t{1}));
}

// --- position ids --------------------------------------------------------------------------------

// 2.4 rules 1 and 2, continued on axis 1; no three axes (D5).
bool CutKimiPositions(Work& work) {
  const int64_t length = work.columns.source_len;
  Tensor positions =
      work.Has("position_ids") ? work.batch.at("position_ids") : CountingRows(work.rows, length);
  const std::vector<int64_t>& dims = positions.dims;
  const bool one_row = dims.size() == 2 && dims[0] == 1 && dims[1] == length;
  if (dims.size() == 3 || (!one_row && !work.IsTokens(positions))) return false;
  if (one_row && work.rows > 1) positions = RepeatedRow(positions, work.rows);
  return work.CutAs("position_ids", positions, 1, Continued{});
}

// 4.16 steps 5 and 6: [B, S] or [1, S], one row stays one row, pads are 0; no three axes (D5).
bool CutGlmPositions(Work& work) {
  const int64_t length = work.columns.source_len;
  const Tensor positions =
      work.Has("position_ids") ? work.batch.at("position_ids") : CountingRows(work.rows, length);
  const std::vector<int64_t>& dims = positions.dims;
  const bool two = dims.size() == 2 && (dims[0] == work.rows || dims[0] == 1) && dims[1] == length;
  const bool more = dims.size() > 3 && work.IsTokens(positions);
  return (two || more) && work.CutAs("position_ids", positions, 1, Value(int64_t{0}));
}

// Axis 2 of three, as it is otherwise; pads are 0.
bool CutBlockDiagonalPositions(Work& work) {
  if (!work.Has("position_ids")) return true;
  const Tensor& positions = work.batch.at("position_ids");
  const std::vector<int64_t>& dims = positions.dims;
  if (dims.size() != 3) {
    return work.IsTokens(positions) && work.CutAs("position_ids", positions, 1, Value(int64_t{0}));
  }
  const bool fits = (dims[0] == 1 || dims[1] == 1) && dims[2] == work.columns.source_len;
  return fits && work.CutAs("position_ids", positions, 2, Value(int64_t{0}));
}

// --- block-diagonal ------------------------------------------------------------------------------

// 4.13: floating streams are filled with 0 whatever their name (T8).
bool CutByDType(const std::string& name, int64_t fill, Work& work) {
  if (!work.Has(name)) return true;
  return work.CutTokens(name, IsFloat(work.batch.at(name).dtype) ? 0 : fill);
}

// Ids of the documents; only whether they are 0 shows in the shard.
std::optional<Tensor> BlockDiagonalIds(const Work& work) {
  if (work.Has("_packed_seq_ids")) {
    const Tensor& ids = work.batch.at("_packed_seq_ids");
    return work.IsTokens(ids) ? std::optional(ids) : std::nullopt;
  }
  const auto mask = work.batch.find("attention_mask");
  const size_t axes = mask == work.batch.end() ? 0 : mask->second.dims.size();
  if (axes == 2) return work.IsTokens(mask->second) ? std::optional(mask->second) : std::nullopt;
  if (axes != 4) return Constant(1, work.columns.source_len, 1);
  if (IsFloat(mask->second.dtype)) return std::nullopt;  // D6
  std::optional<Tensor> ids = HeadZeroDiagonal(mask->second);
  return ids && work.IsTokens(*ids) ? ids : std::nullopt;
}

bool EmitBlockDiagonalMask(Work& work) {
  const std::optional<Tensor> ids = BlockDiagonalIds(work);
  if (!ids) return false;
  std::vector<int64_t> padding;
  for (const int64_t id : Integers(*ids)) padding.push_back(id == 0);
  return work.CutAs("padding_mask", FromIntegers("bool", ids->dims, padding), 1, Value(int64_t{1}));
}

// The rows of the visual tokens in this rank's slice.
bool CutDeepStack(Work& work) {
  if (!work.Has("visual_pos_masks")) return true;
  const Tensor& visual = work.batch.at("visual_pos_masks");
  const std::string prefix = "_deepstack_visual_embeds.";
  int64_t all = 0, before = 0, own = 0;
  const std::vector<int64_t> zero = ZeroFlags(visual);
  const auto local_len = static_cast<int64_t>(work.columns.local.size());
  for (int64_t t = 0; t < work.columns.source_len; ++t) {
    if (zero[t] != 0) continue;
    ++all;
    before += t < work.start() ? 1 : 0;
    own += t >= work.start() && t < work.start() + local_len ? 1 : 0;
  }
  for (const auto& [name, tensor] : work.batch) {
    if (!name.starts_with(prefix)) continue;
    if (visual.dims.size() != 2 || IsFloat(visual.dtype)) return false;
    if (tensor.dims.empty() || tensor.dims[0] != all) return false;
    work.shard.outputs[name] = TakeRows(tensor, before, own);
  }
  return true;
}

}  // namespace

std::optional<Shard> RestateKimi(const Batch& batch, const Options& options, int64_t cp_size,
                                 int64_t rank) {
  if (!options.extras.empty() || !batch.contains("input_ids")) return std::nullopt;
  Work work{.batch = batch, .options = options, .cp_size = cp_size, .rank = rank};
  if (!PlaceColumns(batch.at("input_ids"), cp_size, work)) return std::nullopt;
  const bool lengths_decide =
      !work.Has("_packed_seq_ids") &&
      !(work.Has("attention_mask") && batch.at("attention_mask").dims.size() == 2);
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    if (lengths_decide && work.Has(name) && batch.at(name).dims.size() == 1) return std::nullopt;
  }
  const std::optional<Tensor> map = MapOf(work, /*by_boundaries=*/false);
  Drop({"attention_mask", "_packed_seq_ids", "packed_token_indices", "seq_lens", "seq_lens_padded",
        "cu_seqlens", "cu_seqlens_padded", "max_seqlen"},
       work);
  const std::string prefix = options.layout == "kimi_k3" ? "kimi_packed_" : "kimi_packed_context.";
  if (!map || !CutIds(work) || !CutKimiPositions(work) || !work.CutTokens("labels", kIgnoreLabel) ||
      !work.CutTokens("loss_mask", 0) || !EmitMap(*map, prefix, work)) {
    return std::nullopt;
  }
  return std::move(work.shard);
}

std::optional<Shard> RestateGlm5Next(const Batch& batch, const Options& options, int64_t cp_size,
                                     int64_t rank) {
  if (!options.extras.empty() || !batch.contains("input_ids")) return std::nullopt;
  Work work{.batch = batch, .options = options, .cp_size = cp_size, .rank = rank};
  const std::vector<int64_t> ids = batch.at("input_ids").dims;
  if (ids.size() == 1) {  // step 1
    for (const char* name : {"input_ids", "labels", "position_ids", "attention_mask",
                             "padding_mask", "_packed_seq_ids"}) {
      if (!work.Has(name)) continue;
      std::vector<int64_t>& dims = work.batch.at(name).dims;
      if (!dims.empty() && dims[0] == ids[0]) dims.insert(dims.begin(), 1);
    }
  }
  if (work.Has("_packed_seq_ids")) {  // step 3a
    std::vector<int64_t>& dims = work.batch.at("_packed_seq_ids").dims;
    if (dims.size() != 2) dims.insert(dims.begin(), 1);
  }
  if (!PlaceColumns(work.batch.at("input_ids"), cp_size, work)) return std::nullopt;
  const std::optional<Tensor> map = MapOf(work, /*by_boundaries=*/true);
  Drop({"attention_mask", "_packed_seq_ids", "seq_lens", "seq_lens_padded", "cu_seqlens",
        "cu_seqlens_padded", "max_seqlen"},
       work);
  const std::string prefix = "glm5_next_packed_context.";
  if (!map || (!options.keep_primary_full && !CutIds(work)) || !CutGlmPositions(work) ||
      !work.CutTokens("labels", kIgnoreLabel) || !work.CutTokens("loss_mask", 0) ||
      !EmitMap(*map, prefix, work)) {
    return std::nullopt;
  }
  work.shard.scalars[prefix + "original_seq_len"] = work.columns.source_len;
  return std::move(work.shard);
}

std::optional<Shard> RestateBlockDiagonal(const Batch& batch, const Options& options,
                                          int64_t cp_size, int64_t rank) {
  if (!options.extras.empty()) return std::nullopt;
  if (batch.contains("input_ids") == batch.contains("inputs_embeds")) return std::nullopt;
  const std::string primary = batch.contains("input_ids") ? "input_ids" : "inputs_embeds";
  Work work{.batch = batch, .options = options, .cp_size = cp_size, .rank = rank};
  if (!PlaceColumns(batch.at(primary), 2 * cp_size, work) || work.rows != 1) return std::nullopt;
  Drop({"attention_mask", "packed_token_indices", "cu_seqlens", "max_seqlen"}, work);
  if (!options.keep_primary_full) {
    const bool pads_ids =
        work.Pads() && primary == "input_ids" && !IsFloat(batch.at(primary).dtype);
    if (pads_ids && !options.padding_token_id) return std::nullopt;
    const int64_t fill = primary == "input_ids" ? options.padding_token_id.value_or(0) : 0;
    if (!CutByDType(primary, fill, work)) return std::nullopt;
  }
  if (!CutByDType("labels", kIgnoreLabel, work) || !CutByDType("_packed_seq_ids", 0, work) ||
      !CutByDType("loss_mask", 0, work) || !CutByDType("visual_pos_masks", 0, work) ||
      !CutBlockDiagonalPositions(work) || !EmitBlockDiagonalMask(work) || !CutDeepStack(work)) {
    return std::nullopt;
  }
  return std::move(work.shard);
}

}  // namespace cpshard::oracle
