// DeepSeek V4: contract 4.8.
#include <algorithm>
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

bool IsPacked(const BatchSpec& spec) {
  const Scalar* format = spec.FindScalar("qkv_format");
  return spec.Has("seq_lens") || spec.Has("cu_seqlens") ||
         (format != nullptr && *format == Scalar(std::string("thd")));
}

// At cp_size 1 nothing is cut and no layout reported.
ShardPlan PlanAlone(const BatchSpec& spec) {
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  Outputs outputs(spec);
  if (IsPacked(spec)) outputs.AddScalar("qkv_format", {std::string("thd")});
  const TensorSpec* loss_mask = spec.FindTensor("loss_mask");
  if (loss_mask != nullptr && !spec.Has("labels")) {
    StreamPlan labels{"labels", loss_mask->dtype, loss_mask->dims};
    labels.value.from = ViewOf{loss_mask->name};
    labels.extent = Extent::kWhole;
    outputs.Drop("loss_mask");
    outputs.Add(std::move(labels));
  }
  outputs.MoveInto(plan);
  return plan;
}

absl::Status CheckPacked(const BatchSpec& spec) {
  if (spec.Has("seq_lens")) return absl::OkStatus();
  if (spec.Has("cu_seqlens")) {
    return absl::UnimplementedError(
        "the batch has 'cu_seqlens' but no 'seq_lens', by which alone layout deepseek_v4 finds "
        "documents");
  }
  return absl::InvalidArgumentError(
      "qkv_format = thd without 'seq_lens', which layout deepseek_v4 needs for it");
}

// Documents in their order, each widened to a multiple of `multiple`; ids count all of them, empty
// ones too.
absl::StatusOr<PlacedRow> PlaceRow(const PackedRows& packed, int64_t row, int64_t length,
                                   int64_t multiple) {
  PlacedRow placed;
  const size_t begin = row == 0 ? 0 : packed.row_ends[row - 1];
  if (begin == packed.row_ends[row]) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream 'seq_lens' row ", row, " has no document, only unused places (",
                     kNoDocument, "); leave the row out of the batch"));
  }
  int64_t source = 0;
  for (size_t i = begin; i < packed.row_ends[row]; ++i) {
    const Document& document = packed.documents[i];
    if (document.real > length - source) {
      return absl::InvalidArgumentError(absl::StrCat(
          "row ", row, ": document ", i - begin, " of ", document.real, " tokens begins at column ",
          source, " and does not fit S = ", length, "; lengths and rows disagree"));
    }
    CPSHARD_RETURN_IF_ERROR(Place({static_cast<int64_t>(i - begin) + 1, source, document.real},
                                  multiple, "max(pad_multiple, 2)", placed));
    source += std::min(document.padded, length - source + 1);  // beyond the row is beyond enough
  }
  return placed;
}

StreamPlan LengthsOf(absl::string_view name, const std::vector<PlacedRow>& rows,
                     int64_t PlacedDocument::*length) {
  size_t widest = 0;
  for (const PlacedRow& row : rows) widest = std::max(widest, row.size());
  Literal literal;
  for (const PlacedRow& row : rows) {
    for (const PlacedDocument& document : row) literal.values.push_back(document.*length);
    literal.values.resize(literal.values.size() + widest - row.size(), kNoDocument);
  }
  StreamPlan stream{std::string(name),
                    DType::kI64,
                    {static_cast<int64_t>(rows.size()), static_cast<int64_t>(widest)}};
  stream.value.from = std::move(literal);
  stream.extent = Extent::kWhole;
  return stream;
}

absl::Status CutRepacked(const BatchSpec& spec, const SharedOptions& shared, const TokenRows& rows,
                         const RepackedRows& repacked, RowStreams& streams) {
  const bool is_ids = rows.primary->name == "input_ids";
  CPSHARD_RETURN_IF_ERROR(streams.CheckAttentionMask());
  streams.Drop("attention_mask");
  const int64_t pad_id = is_ids ? shared.padding_token_id.value_or(0) : 0;
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens(rows.primary->name, pad_id));
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", int64_t{-100}));
  if (spec.Has("loss_mask")) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("loss_mask", int64_t{0}));
  streams.Add(repacked.Positions(rows), int64_t{0});
  streams.Add(repacked.Mask("padding_mask", /*on_padding=*/true, rows), int64_t{1});
  streams.Add(repacked.Ids(rows), int64_t{0});
  if (!is_ids || !streams.has_fill() || shared.padding_token_id) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "'input_ids' of packed rows need padding, but padding_token_id was not given");
}

absl::StatusOr<ShardPlan> PlanPacked(int64_t multiple, const SharedOptions& shared,
                                     const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckPacked(spec));
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* primary, FindPrimary(spec));
  if (!spec.Has("labels")) {
    return absl::InvalidArgumentError(
        "the batch is packed and has no 'labels'; a loss_mask does not stand in here");
  }
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, RowsOf(*primary));
  CPSHARD_RETURN_IF_ERROR(CheckPlacedRows(rows));
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, rows));
  CPSHARD_ASSIGN_OR_RETURN(const PackedRows packed, lengths.Rows(0, rows.rows));
  std::vector<PlacedRow> placed;
  int64_t longest = 0;
  for (int64_t row = 0; row < rows.rows; ++row) {
    CPSHARD_ASSIGN_OR_RETURN(PlacedRow one, PlaceRow(packed, row, rows.length, multiple));
    longest = std::max(longest, WidthOf(one));
    placed.push_back(std::move(one));
  }
  CPSHARD_ASSIGN_OR_RETURN(
      const int64_t divisor,
      CheckedMultiply(*spec.cp_size, multiple, "the divisor cp_size * pad_multiple"));
  CPSHARD_ASSIGN_OR_RETURN(const int64_t own, RoundUp(longest, divisor, "cp_size * pad_multiple"));
  const int64_t row_len = std::max(own, shared.min_padded_len.value_or(0));
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded,
                           RoundUp(row_len, divisor, "cp_size * pad_multiple"));
  StreamPlan real = LengthsOf("seq_lens", placed, &PlacedDocument::real);
  StreamPlan wide = LengthsOf("seq_lens_padded", placed, &PlacedDocument::width);
  const RepackedRows repacked(std::move(placed), InnerPadding::kOfTheDocument, row_len, padded);

  LayoutPlan layout = repacked.Layout(rows);
  CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(padded, *spec.cp_size));
  layout.report.padded_seq_len = padded;
  layout.report.stream_positions = true;
  layout.padded_to = absl::StrCat("documents to multiples of max(pad_multiple, 2) = ", multiple,
                                  ", rows of cp_size times that");
  RowStreams streams(spec, rows, layout);
  CPSHARD_RETURN_IF_ERROR(CutRepacked(spec, shared, rows, repacked, streams));
  streams.Add(std::move(real), int64_t{0});
  streams.Add(std::move(wide), int64_t{0});
  streams.outputs().AddScalar("qkv_format", {std::string("thd")});
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  plan.row_need = own;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  plan.chunks.push_back(std::move(layout));
  return plan;
}

absl::StatusOr<ShardPlan> Plan(const DeepseekV4Options& options, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  if (*spec.cp_size == 1) return PlanAlone(spec);
  const int64_t multiple = std::max<int64_t>(options.pad_multiple, 2);
  if (IsPacked(spec)) return PlanPacked(multiple, shared, spec, values);
  CPSHARD_ASSIGN_OR_RETURN(ContiguousRows rows,
                           ContiguousRows::Begin(spec, shared, {.pad_multiple = multiple}));
  return rows.Plan();
}

// Of packed documents; one rank gets the batch as it is.
absl::StatusOr<PadRule> Padding(int64_t multiple, const BatchSpec& spec) {
  PadRule rule;
  if (spec.num_ranks() == 1) return rule;
  rule.document_multiple = multiple;
  rule.document_term = PadTerm("max(pad_multiple, 2)", multiple);
  CPSHARD_ASSIGN_OR_RETURN(
      rule.row_multiple,
      CheckedMultiply(spec.num_ranks(), multiple, "the divisor cp_size * pad_multiple"));
  rule.row_term = PadTerm("cp_size * max(pad_multiple, 2)", rule.row_multiple);
  return rule;
}

}  // namespace

Sharder DeepseekV4(DeepseekV4Options options, SharedOptions shared) {
  return Sharder(
      {.name = "deepseek_v4",
       .needs_mesh = true,
       .min_padded_len = true,
       .pad_rule = [multiple = std::max<int64_t>(options.pad_multiple, 2)](
                       const BatchSpec& spec, int64_t) { return Padding(multiple, spec); }},
      std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(options, shared, spec, values);
      },
      [](const BatchSpec& spec) {
        return spec.num_ranks() > 1 && spec.Has("seq_lens") ? PackedLengths::Needs(spec)
                                                            : std::vector<std::string>();
      });
}

}  // namespace cpshard
