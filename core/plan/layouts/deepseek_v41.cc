// DeepSeek V4.1: contract 4.9.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/contiguous_rows.h"
#include "core/plan/layouts.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/partition.h"
#include "core/plan/repacked_rows.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kIgnoreLabel = -100;

absl::Status Refuse(absl::string_view text) { return absl::InvalidArgumentError(text); }

absl::Status CheckStreams(const BatchSpec& spec) {
  for (absl::string_view name : {"pixel_values", "inputs_embeds"}) {
    if (!spec.Has(name)) continue;
    return Refuse(absl::StrCat("the batch has '", name, "'; layout deepseek_v41 takes text alone"));
  }
  if (spec.Has("seq_lens")) return absl::OkStatus();
  if (spec.Has("cu_seqlens")) {
    return Refuse(
        "the batch has 'cu_seqlens' but no 'seq_lens', by which layout deepseek_v41 "
        "finds documents");
  }
  const Scalar* format = spec.FindScalar("qkv_format");
  if (format != nullptr && *format == Scalar(std::string("thd"))) {
    return Refuse("qkv_format = thd without 'seq_lens', which layout deepseek_v41 needs for it");
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenRows> Rows(const BatchSpec& spec) {
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids == nullptr) return Refuse("layout deepseek_v41 needs 'input_ids' as a tensor");
  return RowsOf(*ids);
}

// --- packed rows ---------------------------------------------------------------------------------

// Lengths and spans as they stand, entry by entry: unused places count (contract 4.9).
struct Entries {
  const ValueView* lengths = nullptr;
  const ValueView* spans = nullptr;
  int64_t width = 0;  // entries of a row
};

absl::StatusOr<Entries> ReadEntries(const BatchSpec& spec, const PlanValues& values,
                                    const TokenRows& rows) {
  CPSHARD_RETURN_IF_ERROR(PackedLengths::Of(spec, values, rows).status());  // shapes, sizes
  Entries entries;
  for (absl::string_view name : {"seq_lens", "seq_lens_padded"}) {
    if (!spec.Has(name)) continue;
    const TensorSpec& tensor = *spec.FindTensor(name);
    if (tensor.dtype != DType::kI32 && tensor.dtype != DType::kI64) {
      return Refuse(absl::StrCat("stream '", name, "' of dtype ", DTypeName(tensor.dtype),
                                 " must be of i32 or i64 in deepseek_v41"));
    }
    (name == "seq_lens" ? entries.lengths : entries.spans) = &values.at(tensor.name);
  }
  if (entries.spans == nullptr) entries.spans = entries.lengths;
  entries.width = entries.lengths->dims().back();
  if (entries.width != entries.spans->dims().back()) {  // of one row one of them may be [n]
    return Refuse(absl::StrCat("stream 'seq_lens' ", DimsString(entries.lengths->dims()),
                               " and 'seq_lens_padded' ", DimsString(entries.spans->dims()),
                               " must have the same shape"));
  }
  return entries;
}

absl::Status WrongSpan(int64_t row, int64_t entry, int64_t length, int64_t span,
                       absl::string_view rule) {
  return Refuse(absl::StrCat("row ", row, ": entry ", entry, " has length ", length,
                             " in 'seq_lens' and span ", span, " in 'seq_lens_padded'; ", rule));
}

absl::StatusOr<PlacedRow> PlaceRow(const Entries& entries, int64_t row, int64_t length,
                                   int64_t alignment) {
  PlacedRow placed;
  int64_t source = 0;
  for (int64_t i = 0; i < entries.width; ++i) {
    const int64_t real = (*entries.lengths)[row * entries.width + i];
    const int64_t span = (*entries.spans)[row * entries.width + i];
    if (real == 0 || real == kNoDocument) {
      if (span == 0 || span == kNoDocument) continue;
      return WrongSpan(row, i, real, span, "a document that is absent has no span");
    }
    if (real < 0) return WrongSpan(row, i, real, span, "a length is >= 0, an unused place -1000");
    if (span < real) return WrongSpan(row, i, real, span, "a span holds the whole document");
    if (span > length - source) {
      return WrongSpan(row, i, real, span,
                       absl::StrCat("it begins at column ", source, " and passes S = ", length));
    }
    CPSHARD_RETURN_IF_ERROR(Place({i + 1, source, real}, alignment, "packed_alignment", placed));
    source += span;
  }
  return placed;
}

absl::StatusOr<std::vector<PlacedRow>> PlaceRows(const Entries& entries, const TokenRows& rows,
                                                 int64_t alignment) {
  CPSHARD_RETURN_IF_ERROR(CheckPlacedRows(rows));
  if (alignment < 1) {
    return Refuse(absl::StrCat("packed_alignment ", alignment, " must be 1 at least"));
  }
  std::vector<PlacedRow> placed;
  for (int64_t row = 0; row < rows.rows; ++row) {
    CPSHARD_ASSIGN_OR_RETURN(PlacedRow one, PlaceRow(entries, row, rows.length, alignment));
    placed.push_back(std::move(one));
  }
  return placed;
}

// Under a mesh the loss mask stands in for missing labels (contract 4.2 step 4), but is laid out
// before it does: the padding of that is 0, and -100 alone what 4.2 appends.
absl::Status CutLabels(const BatchSpec& spec, const RepackedRows& repacked, RowStreams& streams) {
  const bool has_labels = spec.Has("labels");
  if (has_labels) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", kIgnoreLabel));
  if (!spec.Has("loss_mask")) return absl::OkStatus();
  if (has_labels || !spec.cp_size) return streams.CutTokens("loss_mask", int64_t{0});
  std::optional<Fill::Tail> appended;
  if (repacked.padded_len() > repacked.row_len()) {
    appended = Fill::Tail{repacked.row_len(), kIgnoreLabel};
  }
  return streams.CutTokensAs("loss_mask", "labels", int64_t{0}, appended);
}

absl::Status CutPacked(const BatchSpec& spec, const SharedOptions& shared, const TokenRows& rows,
                       const RepackedRows& repacked, RowStreams& streams) {
  for (absl::string_view name :
       {"seq_lens", "seq_lens_padded", "qkv_format", "attention_mask", "padding_mask"}) {
    streams.Drop(name);
  }
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", shared.padding_token_id.value_or(0)));
  CPSHARD_RETURN_IF_ERROR(CutLabels(spec, repacked, streams));
  streams.Add(repacked.Positions(rows), int64_t{0});
  streams.Add(repacked.Ids(rows), int64_t{0});
  streams.Add(repacked.Mask("attention_mask", /*on_padding=*/false, rows), int64_t{0});
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> PlanPacked(const DeepseekV41Options& options, const SharedOptions& shared,
                                     const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, Rows(spec));
  if (spec.cp_size && !spec.Has("labels") && !spec.Has("loss_mask")) {
    return Refuse("the batch has neither 'labels' nor a 'loss_mask' that could stand in for them");
  }
  CPSHARD_ASSIGN_OR_RETURN(const Entries entries, ReadEntries(spec, values, rows));
  CPSHARD_ASSIGN_OR_RETURN(std::vector<PlacedRow> placed,
                           PlaceRows(entries, rows, options.packed_alignment));
  int64_t need = rows.length;  // V4.1 never shrinks a row (T45)
  for (const PlacedRow& row : placed) need = std::max(need, WidthOf(row));
  const int64_t longest = std::max({need, int64_t{1}, shared.min_padded_len.value_or(0)});
  CPSHARD_ASSIGN_OR_RETURN(const int64_t row_len,
                           RoundUp(longest, options.packed_alignment, "packed_alignment"));
  int64_t divisor = 1;
  if (spec.cp_size) {
    CPSHARD_ASSIGN_OR_RETURN(
        divisor, CheckedMultiply(*spec.cp_size, std::max<int64_t>(options.pad_multiple, 2),
                                 "the divisor cp_size * pad_multiple"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded,
                           RoundUp(row_len, divisor, "cp_size * max(pad_multiple, 2)"));
  const RepackedRows repacked(std::move(placed), InnerPadding::kOfNobody, row_len, padded);

  LayoutPlan layout = repacked.Layout(rows);
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(padded, spec.num_ranks()));
  layout.report.padded_seq_len = padded;
  layout.report.stream_positions = true;
  if (!spec.cp_size) layout.report.indices = Report::Indices::kI64;
  layout.padded_to = absl::StrCat("documents to multiples of packed_alignment ",
                                  options.packed_alignment, ", rows to multiples of ", divisor);
  RowStreams streams(spec, rows, layout);
  CPSHARD_RETURN_IF_ERROR(CutPacked(spec, shared, rows, repacked, streams));
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  if (spec.cp_size && !spec.Has("labels") && streams.has_fill()) {
    plan.notices.push_back(
        {"loss_mask_as_labels_of_padding",
         "the loss mask stands in for labels, and is 0 on the padding that packed "
         "rows are laid out with, where a loss counts it as a label; send labels"});
  }
  plan.row_need = need;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  plan.chunks.push_back(std::move(layout));
  return plan;
}

// --- rows that are not packed --------------------------------------------------------------------

// What padding_mask would be, turned round (step 7; T16: bit by bit). Padding columns are padding.
absl::Status EmitAttentionMask(const BatchSpec& spec, const TokenRows& rows, RowStreams& streams) {
  streams.Drop("padding_mask");
  StreamPlan mask{"attention_mask", DType::kBool, {rows.rows, rows.length}};
  Number fill = int64_t{0};
  if (spec.FindScalar("padding_mask") != nullptr) {
    return Refuse("'padding_mask' is a scalar; send a tensor of bool");
  }
  if (const TensorSpec* padding = spec.FindTensor("padding_mask")) {
    CPSHARD_RETURN_IF_ERROR(streams.CheckTokens(*padding));
    if (IsFloating(padding->dtype)) {
      return Refuse(absl::StrCat("stream 'padding_mask' of dtype ", DTypeName(padding->dtype),
                                 " cannot be inverted; send bool"));
    }
    mask.dtype = padding->dtype;
    mask.dims = padding->dims;
    mask.value.from = ViewOf{padding->name};
    mask.value.op = Op::kBitwiseNot;
    if (IsInteger(padding->dtype)) fill = padding->dtype == DType::kU8 ? 254 : int64_t{-2};
  } else if (spec.Has("attention_mask")) {
    CPSHARD_ASSIGN_OR_RETURN(const StreamPlan derived, streams.PaddingOfAttention());
    mask.dims = derived.dims;
    mask.value = derived.value;
    mask.value.op = derived.value.op == Op::kIsZero ? Op::kNotZero : Op::kIsZero;
  } else {
    mask.value.from = Generated{{{{1, 0, rows.length}}}};
  }
  streams.Add(std::move(mask), fill);
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> PlanRows(const DeepseekV41Options& options, const SharedOptions& given,
                                   const BatchSpec& spec) {
  SharedOptions shared = given;
  shared.padding_token_id = given.padding_token_id.value_or(0);  // T23
  CPSHARD_ASSIGN_OR_RETURN(
      ContiguousRows rows,
      ContiguousRows::Begin(spec, shared, {.pad_multiple = options.pad_multiple}));
  CPSHARD_RETURN_IF_ERROR(rows.CutAllButPaddingMask());
  CPSHARD_RETURN_IF_ERROR(EmitAttentionMask(spec, rows.rows(), rows.streams()));
  ShardPlan plan;
  CPSHARD_RETURN_IF_ERROR(rows.Finish(plan));
  return plan;
}

// Without a mesh nothing is padded or cut; all that is made is attention_mask.
absl::StatusOr<ShardPlan> PlanAlone(const BatchSpec& spec) {
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, Rows(spec));
  LayoutPlan layout = TailPadded(rows, rows.length);
  layout.partition = WholePartition(rows.length, 1);
  layout.report.padded_seq_len = rows.length;
  layout.report.indices = Report::Indices::kI64;
  RowStreams streams(spec, rows, layout);
  CPSHARD_RETURN_IF_ERROR(EmitAttentionMask(spec, rows, streams));
  ShardPlan plan;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  plan.chunks.push_back(std::move(layout));
  return plan;
}

absl::StatusOr<ShardPlan> Plan(const DeepseekV41Options& options, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckStreams(spec));
  if (spec.Has("seq_lens")) return PlanPacked(options, shared, spec, values);
  return spec.cp_size ? PlanRows(options, shared, spec) : PlanAlone(spec);
}

// Of packed documents. Rows hold whole documents, so they are multiples of the alignment as they
// are; without a mesh that is all.
absl::StatusOr<PadRule> Padding(const DeepseekV41Options& options, const BatchSpec& spec,
                                int64_t tokens) {
  if (options.packed_alignment < 1) {
    return Refuse(
        absl::StrCat("packed_alignment ", options.packed_alignment, " must be 1 at least"));
  }
  PadRule rule;
  if (spec.cp_size) {
    CPSHARD_ASSIGN_OR_RETURN(rule, ContiguousRows::Padding(options.pad_multiple)(spec, tokens));
  }
  if (options.packed_alignment == 1) return rule;
  rule.document_multiple = options.packed_alignment;
  rule.document_term = PadTerm("packed_alignment", rule.document_multiple);
  return rule;
}

}  // namespace

Sharder DeepseekV41(DeepseekV41Options options, SharedOptions shared) {
  return Sharder(
      {.name = "deepseek_v41",
       .min_padded_len = true,
       .pad_rule = [options](const BatchSpec& spec,
                             int64_t tokens) { return Padding(options, spec, tokens); }},
      std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(options, shared, spec, values);
      },
      [](const BatchSpec& spec) {
        return spec.Has("seq_lens") ? PackedLengths::Needs(spec) : std::vector<std::string>();
      });
}

}  // namespace cpshard
