// Qwen3.8-Flash-Next: contract 4.18. Refusals in that order.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/contiguous_rows.h"
#include "core/plan/layouts.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::string_view kUnsupported[] = {
    "cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_padded", "packed_seq_ids", "_packed_seq_ids",
    "indices",      "max_seqlen",    "max_seqlen_q",      "max_seqlen_kv"};
constexpr absl::string_view kDropped[] = {"cu_seqlens", "seq_lens", "seq_lens_padded",
                                          "qkv_format"};
constexpr absl::string_view kRecord = "_qwen3_8_flash_next_cp_context.";

using Boundaries = std::optional<std::vector<int64_t>>;

absl::Status Refuse(absl::string_view text) { return absl::InvalidArgumentError(text); }

// The values of a stream of integers that the batch has.
absl::StatusOr<const ValueView*> Integers(absl::string_view name, const BatchSpec& spec,
                                          const PlanValues& values) {
  const TensorSpec* tensor = spec.FindTensor(name);
  if (tensor == nullptr || !IsInteger(tensor->dtype)) {
    return Refuse(absl::StrCat("'", name, "' describes documents; send a tensor of integers"));
  }
  const ValueView& view = values.at(std::string(name));
  if (view.size() > kMaxDocumentsTimesRanks / spec.num_ranks()) {
    return Refuse(absl::StrCat("stream '", name, "' has ", view.size(), " entries for ",
                               spec.num_ranks(), " ranks; their product may be ",
                               kMaxDocumentsTimesRanks));
  }
  return &view;
}

// The real lengths side by side; what they leave of the row is a segment of its own (step 2).
absl::StatusOr<std::vector<int64_t>> FromLengths(const ValueView& lengths, int64_t length) {
  std::vector<int64_t> boundaries = {0};
  for (int64_t i = 0; i < lengths.size(); ++i) {
    const int64_t document = lengths[i];
    if (document == kNoDocument) continue;
    if (document <= 0 || document > length - boundaries.back()) {
      return Refuse(absl::StrCat("stream 'seq_lens': entry ", i, " is ", document, " with ",
                                 length - boundaries.back(), " of S = ", length,
                                 " columns left; documents are not empty and fit the row"));
    }
    boundaries.push_back(boundaries.back() + document);
  }
  if (boundaries.size() == 1) {
    return Refuse("stream 'seq_lens' has no document; leave it out of a batch that is not packed");
  }
  if (boundaries.back() < length) boundaries.push_back(length);
  return boundaries;
}

absl::StatusOr<Boundaries> ReadBoundaries(const BatchSpec& spec, const PlanValues& values) {
  if (spec.Has("cu_seqlens")) {
    CPSHARD_ASSIGN_OR_RETURN(const ValueView* view, Integers("cu_seqlens", spec, values));
    return Boundaries(view->ToVector());
  }
  if (!spec.Has("seq_lens")) return Boundaries();
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids == nullptr || ids->dims.size() < 2) {
    return Refuse("the batch has 'seq_lens' but no 'input_ids' [1, S] that they divide");
  }
  CPSHARD_ASSIGN_OR_RETURN(const ValueView* view, Integers("seq_lens", spec, values));
  CPSHARD_ASSIGN_OR_RETURN(std::vector<int64_t> boundaries, FromLengths(*view, ids->dims[1]));
  return Boundaries(std::move(boundaries));
}

absl::Status RefuseUnsupported(const Qwen38Options& options, const BatchSpec& spec, bool packed) {
  for (absl::string_view name : kUnsupported) {
    if (!spec.Has(name)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "the batch has '", name, "'; layout qwen3_8 takes documents by 'cu_seqlens' alone"));
  }
  const Scalar* format = spec.FindScalar("qkv_format");
  if (!packed && format != nullptr && *format == Scalar(std::string("thd"))) {
    return absl::UnimplementedError(
        "qkv_format = thd without 'cu_seqlens' or 'seq_lens', which layout qwen3_8 needs for it");
  }
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids == nullptr || spec.Has("inputs_embeds")) {
    return absl::UnimplementedError(
        "layout qwen3_8 needs 'input_ids' and no 'inputs_embeds': it hashes raw ids");
  }
  if (ids->dims.size() != 2 || (ids->dtype != DType::kI32 && ids->dtype != DType::kI64)) {
    return Refuse(absl::StrCat("stream 'input_ids' ", DTypeName(ids->dtype), DimsString(ids->dims),
                               " must be [B, S] of i32 or i64"));
  }
  if (ids->dims[1] == 0) return Refuse("stream 'input_ids' has no columns (S = 0)");
  if (options.pad_multiple <= 1) {
    return Refuse(
        absl::StrCat("pad_multiple ", options.pad_multiple, " must be 2 at least in qwen3_8"));
  }
  return absl::OkStatus();
}

absl::Status CheckPacked(const BatchSpec& spec, const std::vector<int64_t>& boundaries) {
  const std::vector<int64_t>& dims = spec.FindTensor("input_ids")->dims;
  if (dims[0] != 1) {
    return Refuse(absl::StrCat("stream 'input_ids' ", DimsString(dims), " has ", dims[0],
                               " rows; packed documents come in one"));
  }
  const bool ascend = std::adjacent_find(boundaries.begin(), boundaries.end(),
                                         std::greater_equal<>()) == boundaries.end();
  if (boundaries.size() < 2 || boundaries.front() != 0 || boundaries.back() != dims[1] || !ascend) {
    return Refuse(absl::StrCat("stream 'cu_seqlens' of ", boundaries.size(),
                               " boundaries must ascend from 0 to S = ", dims[1]));
  }
  for (absl::string_view mask : {"attention_mask", "padding_mask"}) {
    if (!spec.Has(mask)) continue;
    return Refuse(absl::StrCat("the batch is packed and has '", mask, "'; send one of the two"));
  }
  return absl::OkStatus();
}

// What a mask of [rows, columns] holds.
struct MaskScan {
  std::vector<int64_t> lengths;                        // per row: valid tokens from its start on
  std::optional<std::pair<int64_t, int64_t>> no_mask;  // the first value that is neither 0 nor 1
  std::optional<std::pair<int64_t, int64_t>> behind;   // the first valid token behind padding
};

// Adds the columns begin ... end-1 of a row. False: one of them is no mask.
bool ScanColumns(const double* numbers, int64_t row, int64_t begin, int64_t end, double valid,
                 MaskScan& scan) {
  int64_t& length = scan.lengths[row];
  for (int64_t s = begin; s < end; ++s) {
    const double number = numbers[s - begin];
    if (number != 0 && number != 1) {
      scan.no_mask = {row, s};
      return false;
    }
    if (number != valid) continue;
    if (s == length) {
      ++length;
    } else if (!scan.behind) {
      scan.behind = {row, s};
    }
  }
  return true;
}

// Most of the plan's time: blocks that are alike throughout, as nearly all are, are counted without
// a branch in them.
MaskScan ScanMask(const ValueView& mask, int64_t rows, int64_t columns, double valid) {
  constexpr int64_t kBlock = 256;
  double numbers[kBlock];
  MaskScan scan{std::vector<int64_t>(rows)};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < columns; begin += kBlock) {
      const int64_t end = std::min(columns, begin + kBlock);
      mask.ReadNumbers(row * columns + begin, end - begin, numbers);
      int64_t valids = 0, others = 0;
      for (int64_t i = 0; i < end - begin; ++i) {
        valids += numbers[i] == valid ? 1 : 0;
        others += numbers[i] == 1 - valid ? 1 : 0;
      }
      if (others == end - begin) continue;
      if (valids == end - begin && scan.lengths[row] == begin) {
        scan.lengths[row] = end;
      } else if (!ScanColumns(numbers, row, begin, end, valid, scan)) {
        return scan;
      }
    }
  }
  return scan;
}

std::vector<DocumentSpan> SpansBetween(const std::vector<int64_t>& boundaries) {
  std::vector<DocumentSpan> spans;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    const int64_t length = boundaries[i] - boundaries[i - 1];
    spans.push_back({boundaries[i - 1], length, length});
  }
  return spans;
}

// How many tokens of each row a mask lets through; `valid` is what stands for a valid token.
absl::StatusOr<std::vector<int64_t>> ValidTokens(absl::string_view name, int64_t valid,
                                                 const BatchSpec& spec, const PlanValues& values) {
  const TensorSpec* mask = spec.FindTensor(name);
  const std::vector<int64_t>& dims = spec.FindTensor("input_ids")->dims;
  if (mask == nullptr || mask->dims != dims) {
    return absl::UnimplementedError(absl::StrCat(
        "stream '", name, "' ",
        mask == nullptr ? std::string("(a scalar)") : DimsString(mask->dims),
        " has not the shape of 'input_ids' ", DimsString(dims), ", which qwen3_8 needs"));
  }
  const ValueView& view = values.at(std::string(name));
  const MaskScan scan = ScanMask(view, dims[0], dims[1], static_cast<double>(valid));
  if (scan.no_mask) {
    const auto [row, s] = *scan.no_mask;
    return Refuse(absl::StrCat("stream '", name, "' row ", row, " has ",
                               view.Number(row * dims[1] + s), " in column ", s,
                               "; only 0 and 1 are masks here"));
  }
  if (scan.behind) {
    const auto [row, s] = *scan.behind;
    return absl::UnimplementedError(
        absl::StrCat("stream '", name, "' row ", row, ": padding at column ", scan.lengths[row],
                     " is followed by a token at ", s, "; qwen3_8 takes padding on the right"));
  }
  return scan.lengths;
}

// padding_mask as bool, whatever came (step 7).
absl::StatusOr<Expression> Padding(const BatchSpec& spec, const PlanValues& values) {
  std::optional<std::vector<int64_t>> valid;
  Expression padding{Generated{{{{0, 0, spec.FindTensor("input_ids")->dims[1]}}}}};
  if (spec.Has("attention_mask")) {
    CPSHARD_ASSIGN_OR_RETURN(valid, ValidTokens("attention_mask", 1, spec, values));
    padding.from = ViewOf{"attention_mask"};
    padding.op = Op::kIsZero;
  }
  if (!spec.Has("padding_mask")) return padding;
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> other,
                           ValidTokens("padding_mask", 0, spec, values));
  if (valid && *valid != other) {
    const int64_t row =
        std::mismatch(valid->begin(), valid->end(), other.begin()).first - valid->begin();
    return Refuse(absl::StrCat("'attention_mask' has ", (*valid)[row], " tokens in row ", row,
                               ", 'padding_mask' ", other[row], "; they must agree"));
  }
  padding.from = ViewOf{"padding_mask"};
  const bool is_bool = spec.FindTensor("padding_mask")->dtype == DType::kBool;
  padding.op = is_bool ? Op::kNone : Op::kNotZero;
  return padding;
}

// The whole ids and mask, and where the rank's slice lies (step 8).
void EmitRecord(const BatchSpec& spec, const SharedOptions& shared, const Expression& padding,
                const Boundaries& boundaries, ContiguousRows& rows) {
  const TensorSpec& ids = *spec.FindTensor("input_ids");
  StreamPlan whole_ids{absl::StrCat(kRecord, "global_input_ids"), ids.dtype, ids.dims};
  whole_ids.value.from = ViewOf{ids.name};
  whole_ids.extent = Extent::kPadded;
  StreamPlan whole_mask{absl::StrCat(kRecord, "global_padding_mask"), DType::kBool, ids.dims};
  whole_mask.value = padding;
  whole_mask.extent = Extent::kPadded;
  rows.streams().Add(std::move(whole_ids), shared.padding_token_id.value_or(0));
  rows.streams().Add(std::move(whole_mask), int64_t{1});
  Outputs& outputs = rows.streams().outputs();
  if (boundaries) {
    StreamPlan stream{absl::StrCat(kRecord, "global_cu_seqlens"),
                      DType::kI64,
                      {static_cast<int64_t>(boundaries->size())},
                      0};
    stream.value.from = Literal{*boundaries};
    stream.extent = Extent::kWhole;
    outputs.Add(std::move(stream));
  }
  const int64_t local_len = rows.padded_len() / spec.num_ranks();
  std::vector<Scalar> ranks, starts;
  for (int64_t rank = 0; rank < spec.num_ranks(); ++rank) {
    ranks.emplace_back(rank);
    starts.emplace_back(rank * local_len);
  }
  outputs.AddScalar(absl::StrCat(kRecord, "rank"), std::move(ranks));
  outputs.AddScalar(absl::StrCat(kRecord, "size"), {spec.num_ranks()});
  outputs.AddScalar(absl::StrCat(kRecord, "local_sequence_start"), std::move(starts));
  outputs.AddScalar(absl::StrCat(kRecord, "local_sequence_length"), {local_len});
}

absl::StatusOr<ShardPlan> Plan(const Qwen38Options& options, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  if (options.tp_size > 1) {
    return absl::UnimplementedError(absl::StrCat("tp_size ", options.tp_size,
                                                 ": layout qwen3_8 does not go with a tensor-"
                                                 "parallel mesh; leave it out"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const Boundaries boundaries, ReadBoundaries(spec, values));
  CPSHARD_RETURN_IF_ERROR(RefuseUnsupported(options, spec, boundaries.has_value()));
  if (boundaries) CPSHARD_RETURN_IF_ERROR(CheckPacked(spec, *boundaries));
  CPSHARD_ASSIGN_OR_RETURN(const Expression padding, Padding(spec, values));
  CPSHARD_ASSIGN_OR_RETURN(
      ContiguousRows rows,
      ContiguousRows::Begin(spec, shared, {.pad_multiple = options.pad_multiple}));
  CPSHARD_RETURN_IF_ERROR(rows.CutAllButPaddingMask());
  RowStreams& streams = rows.streams();
  streams.Drop("attention_mask");
  for (absl::string_view name : kDropped) streams.Drop(name);
  StreamPlan mask{"padding_mask", DType::kBool, spec.FindTensor("input_ids")->dims};
  mask.value = padding;
  streams.Add(std::move(mask), int64_t{1});
  EmitRecord(spec, shared, padding, boundaries, rows);
  if (boundaries) rows.SetDocuments({SpansBetween(*boundaries)});
  ShardPlan plan;
  CPSHARD_RETURN_IF_ERROR(rows.Finish(plan));
  return plan;
}

std::vector<std::string> Needs(const BatchSpec& spec) {
  std::vector<std::string> needs;
  for (absl::string_view name : {"cu_seqlens", "seq_lens"}) {
    const TensorSpec* tensor = spec.FindTensor(name);
    if (tensor != nullptr && IsInteger(tensor->dtype)) needs.emplace_back(name);
  }
  for (absl::string_view name : {"attention_mask", "padding_mask"}) {
    if (spec.FindTensor(name) != nullptr) needs.emplace_back(name);
  }
  return needs;
}

}  // namespace

Sharder Qwen38(Qwen38Options options, SharedOptions shared) {
  return Sharder(
      {.name = "qwen3_8",
       .needs_mesh = true,
       .pad_rule = ContiguousRows::Padding(options.pad_multiple)},
      std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(options, shared, spec, values);
      },
      Needs);
}

}  // namespace cpshard
