#include "core/oracle/restatement.h"

#include <algorithm>
#include <utility>

#include "core/oracle/row_maps.h"
#include "core/oracle/tensors.h"
#include "core/oracle/thd.h"
#include "core/oracle/values.h"

namespace cpshard::oracle {
namespace {

constexpr int64_t kIgnoreLabel = -100;

// One rank's shard in the making. Every step returns false where the contract refuses the batch.
struct Work {
  const Batch& batch;
  const Options& options;
  std::string primary;
  int64_t rows = 0;  // B
  Columns columns;
  Batch outputs;  // what no step has touched is passed on as sent

  bool Has(const std::string& name) const { return batch.contains(name); }
  bool Contiguous() const { return options.layout == "contiguous"; }

  // Cuts a stream as sent under `source` and returns it as `name`.
  bool Cut(const std::string& source, const std::string& name, int64_t axis, const Fill& fill) {
    std::optional<Tensor> cut = CutAxis(batch.at(source), axis, columns, fill);
    if (!cut) return false;
    outputs.erase(source);
    outputs[name] = *std::move(cut);
    return true;
  }

  // [B, S, ...], the shape of a token-aligned stream (D5).
  bool IsTokens(const Tensor& tensor) const {
    return tensor.dims.size() >= 2 && tensor.dims[0] == rows &&
           tensor.dims[1] == columns.source_len;
  }

  bool CutTokens(const std::string& source, const std::string& name, const Fill& fill) {
    return IsTokens(batch.at(source)) && Cut(source, name, 1, fill);
  }

  // 4.3 step 5: round robin fills by dtype first, every floating stream with 0; 4.2 step 6 does
  // not.
  Value FillFor(const std::string& source, int64_t value) const {
    const bool by_dtype = !Contiguous() && IsFloat(batch.at(source).dtype);
    return by_dtype ? int64_t{0} : value;
  }
};

// Exactly one primary (4.2 step 2), of at least [B, S] (4.2 step 3).
bool FindPrimary(Work& work) {
  if (work.Has("input_ids") == work.Has("inputs_embeds")) return false;
  work.primary = work.Has("input_ids") ? "input_ids" : "inputs_embeds";
  const Tensor& primary = work.batch.at(work.primary);
  if (primary.dims.size() < 2) return false;
  work.rows = primary.dims[0];
  work.columns.source_len = primary.dims[1];
  return true;
}

// 2.7 over the length of 4.2 step 5 or 4.3 step 5.
void PlaceColumns(Work& work, int64_t cp_size, int64_t rank) {
  const bool contiguous = work.Contiguous();
  const int64_t multiple = contiguous ? std::max<int64_t>(work.options.pad_multiple, 2) : 2;
  const int64_t divisor = cp_size * multiple;
  Columns& columns = work.columns;
  columns.padded_len = columns.source_len;
  while (columns.padded_len % divisor != 0) ++columns.padded_len;
  const int64_t local_len = columns.padded_len / cp_size;
  if (contiguous) {
    for (int64_t i = 0; i < local_len; ++i) columns.local.push_back(rank * local_len + i);
    return;
  }
  const int64_t chunk = local_len / 2;
  for (int64_t i = 0; i < chunk; ++i) columns.local.push_back(rank * chunk + i);
  for (int64_t i = 0; i < chunk; ++i) {
    columns.local.push_back((2 * cp_size - 1 - rank) * chunk + i);
  }
}

// 4.2 step 6: ids pad with the pad id, which must be there if it is needed (D5); embeddings with 0.
// 4.3 step 5: always 0, whatever the pad id (T22). 4.4 and shard_primary = false: left as sent.
bool CutPrimary(Work& work) {
  if (work.options.keep_primary_full) return true;
  int64_t fill = 0;
  if (work.Contiguous() && work.primary == "input_ids") {
    const bool needed = work.columns.padded_len > work.columns.source_len;
    if (needed && !work.options.padding_token_id) return false;
    fill = work.options.padding_token_id.value_or(0);
  }
  return work.CutTokens(work.primary, work.primary, Value(fill));
}

// 4.2 step 4: a loss mask takes the place of missing labels, -100 included (T5). 4.3 step 3: it
// does not. Otherwise it is cut and returned (D2, D17).
bool CutLabelsAndLossMask(Work& work) {
  const bool has_loss_mask = work.Has("loss_mask");
  if (!work.Has("labels")) {
    if (!work.Contiguous() || !has_loss_mask) return false;
    return work.CutTokens("loss_mask", "labels", Value(kIgnoreLabel));
  }
  if (!work.CutTokens("labels", "labels", work.FillFor("labels", kIgnoreLabel))) return false;
  return !has_loss_mask || work.CutTokens("loss_mask", "loss_mask", Value(int64_t{0}));
}

// The sequence axis of position ids (2.4 step 3) whose shape D5 accepts; nullopt otherwise.
std::optional<int64_t> PositionAxis(const Work& work, const Tensor& positions) {
  const std::vector<int64_t>& dims = positions.dims;
  const int64_t rows = work.rows;
  if (dims.size() < 2) return std::nullopt;  // T11
  const int64_t axis = dims.size() == 3 ? 2 : 1;
  bool rows_fit = dims[0] == rows;
  if (dims.size() == 2) rows_fit = rows_fit || dims[0] == 1;
  if (dims.size() == 3) rows_fit = rows_fit || dims[1] == rows || dims[1] == 1;
  if (!rows_fit || dims[axis] != work.columns.source_len) return std::nullopt;
  return axis;
}

// 2.4, then continued (4.2) or padded with 0 (4.3, T10).
bool CutPositions(Work& work) {
  const int64_t rows = work.rows;
  Tensor positions = work.Has("position_ids") ? work.batch.at("position_ids")
                                              : CountingRows(rows, work.columns.source_len);
  const std::optional<int64_t> axis = PositionAxis(work, positions);
  if (!axis) return false;
  if (positions.dims.size() == 2 && positions.dims[0] == 1 && rows > 1) {
    positions = RepeatedRow(positions, rows);
  }
  const Fill fill = work.Contiguous() ? Fill(Continued{}) : Fill(Value(int64_t{0}));
  std::optional<Tensor> cut = CutAxis(positions, *axis, work.columns, fill);
  if (!cut) return false;
  work.outputs["position_ids"] = *std::move(cut);
  return true;
}

// attention_mask always goes (2.5, 4.3 step 1). Contiguous derives padding_mask from it unless
// there is one (then the mask is not even looked at, D6). Padding columns are padding: True, or 1.
bool CutPaddingMask(Work& work) {
  work.outputs.erase("attention_mask");
  if (work.Has("padding_mask")) {
    return work.CutTokens("padding_mask", "padding_mask", work.FillFor("padding_mask", 1));
  }
  if (!work.Contiguous() || !work.Has("attention_mask")) return true;
  const std::optional<Tensor> mask = PaddingMaskOf(work.batch.at("attention_mask"));
  if (!mask || !work.IsTokens(*mask)) return false;
  work.outputs["padding_mask"] = *CutAxis(*mask, 1, work.columns, Value(int64_t{1}));
  return true;
}

// Names that the layout handles without being told (C21, D13). Contiguous knows both primaries by
// name (4.2 step 6); round robin handles the one that was sent, and misses the other (4.3 step 4).
bool IsHandled(const Work& work, const std::string& name) {
  for (const char* known : {"labels", "position_ids", "loss_mask", "padding_mask"}) {
    if (name == known) return true;
  }
  if (work.options.keep_primary_full) return false;
  const bool is_primary = name == "input_ids" || name == "inputs_embeds";
  return name == work.primary || (work.Contiguous() && is_primary);
}

// 4.2 step 6 and 4.3 step 4; refusals of D5 (absent, length) and D13 (a pad in round robin).
bool CutExtras(Work& work) {
  for (const Extra& extra : work.options.extras) {
    if (!work.Contiguous() && extra.pad) return false;
    if (IsHandled(work, extra.name)) continue;
    // attention_mask is gone by then (2.5, 4.3 step 1): declared and absent.
    if (extra.name == "attention_mask" || !work.Has(extra.name)) return false;
    const std::vector<int64_t>& dims = work.batch.at(extra.name).dims;
    const auto rank = static_cast<int64_t>(dims.size());
    const int64_t axis = extra.seq_axis < 0 ? extra.seq_axis + rank : extra.seq_axis;
    if (axis < 0 || axis >= rank || dims[axis] != work.columns.source_len) return false;
    if (!work.Cut(extra.name, extra.name, axis, Value(extra.pad.value_or(0)))) return false;
  }
  return true;
}

// D18: round robin cannot keep documents apart.
bool IsPacked(const Batch& batch, const Options& options) {
  for (const char* name :
       {"seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded", "_packed_seq_ids"}) {
    if (batch.contains(name)) return true;
  }
  return options.qkv_format == "thd";
}

// 4.2, 4.3 and 4.4.
std::optional<Shard> RestateRows(const Batch& batch, const Options& options, int64_t cp_size,
                                 int64_t rank) {
  Work work{.batch = batch, .options = options, .outputs = batch};
  if (!work.Contiguous() && IsPacked(batch, options)) return std::nullopt;
  if (!FindPrimary(work)) return std::nullopt;
  PlaceColumns(work, cp_size, rank);
  if (!CutPrimary(work) || !CutLabelsAndLossMask(work) || !CutPositions(work) ||
      !CutPaddingMask(work) || !CutExtras(work)) {
    return std::nullopt;
  }
  return Shard{.outputs = std::move(work.outputs),
               .original_seq_len = work.columns.source_len,
               .padded_seq_len = work.columns.padded_len,
               .columns = std::move(work.columns.local)};
}

// 4.10: contiguous around a whole primary, with a document map that is made of the padding mask
// where none was sent.
std::optional<Shard> RestateGemma4(const Batch& sent, const Options& given, int64_t cp_size,
                                   int64_t rank) {
  constexpr const char* kMap = "_packed_seq_ids";
  Options options = given;
  options.layout = "contiguous";
  options.keep_primary_full = true;
  options.pad_multiple = 1;
  Batch batch = sent;
  Work work{.batch = sent, .options = options, .outputs = {}};
  if (!FindPrimary(work)) return std::nullopt;
  batch.erase("attention_mask");
  if (work.Has("attention_mask") && !work.Has("padding_mask")) {
    const std::optional<Tensor> mask = PaddingMaskOf(sent.at("attention_mask"));
    if (!mask || !work.IsTokens(*mask)) return std::nullopt;
    batch["padding_mask"] = *mask;
  }
  if (!batch.contains(kMap)) {
    Tensor ones = CountingRows(work.rows, work.columns.source_len);
    ones = FromIntegers("i64", ones.dims, std::vector<int64_t>(Integers(ones).size(), 1));
    const auto padding = batch.find("padding_mask");
    batch[kMap] = padding == batch.end()
                      ? ones
                      : FromIntegers("i64", padding->second.dims, ZeroFlags(padding->second));
  }
  const bool named = std::any_of(options.extras.begin(), options.extras.end(),
                                 [&](const Extra& extra) { return extra.name == kMap; });
  if (!named) options.extras.push_back({.name = kMap, .seq_axis = 1, .pad = 0});
  return RestateRows(batch, options, cp_size, rank);
}

// 4.1: everything as sent, loss_mask too (D17); the layout is that of the primary's axis 1.
std::optional<Shard> RestateIdentity(const Batch& batch, const Options& options) {
  if (!options.extras.empty()) return std::nullopt;  // D13
  Shard shard{.outputs = batch};
  auto primary = batch.find("inputs_embeds");
  if (primary == batch.end()) primary = batch.find("input_ids");
  if (primary == batch.end() || primary->second.dims.size() < 2) return shard;
  const int64_t length = primary->second.dims[1];
  shard.original_seq_len = shard.padded_seq_len = length;
  for (int64_t column = 0; column < length; ++column) shard.columns.push_back(column);
  return shard;
}

std::optional<Shard> RestateLayout(const Batch& batch, const Options& options,
                                   std::optional<int64_t> cp_size, int64_t rank) {
  if (options.layout == "identity") return RestateIdentity(batch, options);
  if (options.layout == "thd") return RestateThd(batch, options, cp_size.value_or(1), rank);
  const int64_t ranks = cp_size.value_or(1);
  if (options.layout.starts_with("kimi_")) return RestateKimi(batch, options, ranks, rank);
  if (options.layout == "glm5_next") return RestateGlm5Next(batch, options, ranks, rank);
  if (!cp_size) return std::nullopt;  // 4.2, 4.3, 4.10, section 12: a mesh is required
  if (options.layout == "block_diagonal") {
    return ranks == 1 ? RestateIdentity(batch, options)
                      : RestateBlockDiagonal(batch, options, ranks, rank);
  }
  if (options.layout == "gemma4") return RestateGemma4(batch, options, *cp_size, rank);
  if (options.layout != "contiguous" && options.layout != "round_robin") return std::nullopt;
  return RestateRows(batch, options, *cp_size, rank);
}

}  // namespace

namespace {

// 4.12 step 2, 4.16 step 4.
bool DropsTheFormat(const Options& options) {
  return options.layout.starts_with("kimi_") || options.layout == "glm5_next";
}

}  // namespace

std::optional<Shard> Restate(const Batch& batch, const Options& options,
                             std::optional<int64_t> cp_size, int64_t rank) {
  if (cp_size && *cp_size < 1) return std::nullopt;
  if (rank < 0 || rank >= cp_size.value_or(1)) return std::nullopt;
  std::optional<Shard> shard = RestateLayout(batch, options, cp_size, rank);
  // Non-tensors pass through every layout; one that the layout emits stands.
  if (shard && options.qkv_format && !DropsTheFormat(options))
    shard->scalars.try_emplace("qkv_format", *options.qkv_format);
  return shard;
}

}  // namespace cpshard::oracle
