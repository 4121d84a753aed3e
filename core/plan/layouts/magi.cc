// MagiAttention: contract 7.
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/flat_streams.h"
#include "core/plan/layouts.h"
#include "core/plan/magi_dispatch.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/status_macros.h"
#include "core/plan/thd_plan.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

constexpr int64_t kIgnoreLabel = -100;  // on both paths (D4)

bool IsThd(const BatchSpec& spec) {
  const Scalar* format = spec.FindScalar("qkv_format");
  return format != nullptr && *format == Scalar(std::string("thd"));
}

// Everything whole, no layout.
ShardPlan PlanUntouched(const BatchSpec& spec) {
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  Outputs outputs(spec);
  outputs.Drop("prefix_tree");
  outputs.MoveInto(plan);
  return plan;
}

// The one row [1, S] of input_ids.
absl::StatusOr<TokenRows> OneRow(const BatchSpec& spec) {
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids != nullptr && ids->dims.size() == 2 && ids->dims[0] == 1) return RowsOf(*ids);
  return absl::InvalidArgumentError(
      absl::StrCat("magi takes one row: 'input_ids' must be [1, S], it is ",
                   ids == nullptr ? std::string("not there") : DimsString(ids->dims)));
}

// Tokens behind `total` are padding; slots keep their true column (D3).
LayoutPlan LayoutOf(int64_t total, MagiDispatch dispatch) {
  LayoutPlan layout;
  layout.rows = 1;
  layout.source_len = total;
  layout.padded_len = total + dispatch.pad_size;
  IndexMap placement = IndexMap::Identity(total);
  placement.Append({kFill, dispatch.pad_size});
  layout.placement = {std::move(placement)};
  layout.partition = std::move(dispatch.partition);
  layout.report.padded_seq_len = layout.padded_len;
  layout.report.indices = Report::Indices::kI64;
  layout.padded_to = absl::StrCat("a multiple of cp_size * chunks of ", dispatch.chunk_size);
  return layout;
}

// The position of each slot in the stream; pads repeat the last (contract 7.4 step 8).
StreamPlan Positions(std::vector<int64_t> dims, int axis, const LayoutPlan& layout) {
  StreamPlan stream{"position_ids", DType::kI64, std::move(dims), axis};
  stream.batch_axis = -1;
  stream.value.from =
      Generated{{{{0, 1, layout.source_len},
                  {layout.source_len - 1, 0, layout.padded_len - layout.source_len}}},
                /*over_padded_columns=*/true};
  return stream;
}

absl::StatusOr<ShardPlan> PlanRow(const MagiOptions& options, const BatchSpec& spec) {
  if (!spec.cp_size) {
    return absl::InvalidArgumentError("magi needs a mesh: give cp_size (1 is a mesh of one rank)");
  }
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, OneRow(spec));
  CPSHARD_ASSIGN_OR_RETURN(MagiDispatch dispatch,
                           DispatchCausal({rows.length}, rows.length, *spec.cp_size,
                                          options.chunk_size, options.min_chunks_per_rank));
  LayoutPlan layout = LayoutOf(rows.length, std::move(dispatch));
  layout.report.indices_2d = true;
  ReportMagiRows({rows.rows, rows.length}, layout.padded_len, layout.report);
  RowStreams streams(spec, rows, layout);
  streams.Drop("attention_mask");
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", int64_t{0}));
  if (spec.Has("labels")) CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", kIgnoreLabel));
  streams.Add(Positions({1, rows.length}, 1, layout), int64_t{0});
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(streams.Finish(plan));
  plan.chunks.push_back(std::move(layout));
  return plan;
}

// A flat stream [T] of the batch, padded with `fill`. The lengths of documents count elements, so
// that a token is one (contract 7.3).
absl::Status CutFlat(absl::string_view name, Number fill, const LayoutPlan& layout,
                     FlatStreams& streams) {
  CPSHARD_ASSIGN_OR_RETURN(StreamPlan stream, streams.TokensOf(name, std::nullopt));
  if (stream.dims.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("stream '", name, "' has ", stream.dims[1],
                                                   " elements for each of its ", layout.source_len,
                                                   " tokens; magi takes packed streams of one"));
  }
  if (layout.padded_len > layout.source_len) {
    CPSHARD_ASSIGN_OR_RETURN(stream.fill.value, ConvertFill(fill, stream.dtype, name));
    stream.fill.kind = Fill::Kind::kConstant;
  }
  streams.outputs().Add(std::move(stream));
  return absl::OkStatus();
}

// Padding inside a document attends as the document does (contract 7.3).
absl::StatusOr<std::vector<DocumentSpan>> ReadDocuments(const BatchSpec& spec,
                                                        const PlanValues& values,
                                                        const FlatRows& flat) {
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, flat.rows));
  CPSHARD_ASSIGN_OR_RETURN(std::vector<ConvertedChunk> chunks,
                           ConvertByLengths(lengths, flat, /*pieces=*/1));
  return std::move(chunks.front().documents);
}

absl::StatusOr<ShardPlan> PlanStream(const MagiOptions& options, const BatchSpec& spec,
                                     const PlanValues& values) {
  for (absl::string_view name : {"input_ids", "labels", "seq_lens"}) {
    if (spec.Has(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has no '", name,
                     "', which magi needs for a packed batch at cp_size ", *spec.cp_size));
  }
  CPSHARD_ASSIGN_OR_RETURN(const FlatRows flat, FlatRowsOf(spec, 1));
  FlatStreams streams(spec, flat);
  if (spec.Has("position_ids")) {  // replaced, but converted first
    CPSHARD_RETURN_IF_ERROR(streams.CutPositions(std::nullopt, /*three_axes=*/false));
  }
  CPSHARD_ASSIGN_OR_RETURN(std::vector<DocumentSpan> documents, ReadDocuments(spec, values, flat));
  std::vector<int64_t> lengths;
  for (const DocumentSpan& document : documents) lengths.push_back(document.length);
  CPSHARD_ASSIGN_OR_RETURN(MagiDispatch dispatch,
                           DispatchCausal(lengths, flat.tokens, *spec.cp_size, options.chunk_size,
                                          options.min_chunks_per_rank));
  LayoutPlan layout = LayoutOf(flat.tokens, std::move(dispatch));
  layout.documents = {std::move(documents)};
  layout.flattened_from = RowShape{flat.rows.rows, flat.rows.length};
  ReportMagiRows(*layout.flattened_from, layout.padded_len, layout.report);
  FlatStreams outputs(spec, flat);
  CPSHARD_RETURN_IF_ERROR(CutFlat("input_ids", int64_t{0}, layout, outputs));
  CPSHARD_RETURN_IF_ERROR(CutFlat("labels", kIgnoreLabel, layout, outputs));
  outputs.outputs().Add(Positions({flat.tokens}, 0, layout));
  outputs.outputs().AddScalar("qkv_format", {std::string("thd")});
  outputs.outputs().DropOthers();
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  outputs.outputs().MoveInto(plan);
  plan.chunks.push_back(std::move(layout));
  return plan;
}

// Converted, not cut, and no layout reported (contract 7.1).
absl::StatusOr<ShardPlan> PlanConverted(const MagiOptions& options, const SharedOptions& shared,
                                        const BatchSpec& spec, const PlanValues& values) {
  const ThdRules rules{
      .layout = "magi", .num_chunks = options.num_chunks, .indices = "_thd_local_indices"};
  CPSHARD_ASSIGN_OR_RETURN(ShardPlan plan, PlanThd(rules, shared, spec, values));
  std::erase_if(plan.streams,
                [](const StreamPlan& stream) { return stream.name == "prefix_tree"; });
  std::erase_if(plan.scalars,
                [](const ScalarPlan& scalar) { return scalar.name == "prefix_tree"; });
  for (LayoutPlan& layout : plan.chunks) layout.report = {};
  return plan;
}

absl::StatusOr<ShardPlan> Plan(const MagiOptions& options, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  if (options.variant == MagiVariant::kHf && spec.Has("prefix_tree")) {
    return absl::UnimplementedError(
        "the batch has 'prefix_tree', which magi takes in the CUSTOM variant alone");
  }
  if (options.domain == MagiDomain::kVlm) {
    if (options.variant == MagiVariant::kHf) {
      CPSHARD_RETURN_IF_ERROR(OneRow(spec).status());
      if (spec.num_ranks() > 1) {
        return absl::UnimplementedError(absl::StrCat(
            "magi in the VLM domain works at cp_size 1 alone, not at ", spec.num_ranks()));
      }
    }
    return PlanUntouched(spec);
  }
  if (options.variant == MagiVariant::kHf) return PlanRow(options, spec);
  if (!IsThd(spec)) return PlanUntouched(spec);
  return spec.num_ranks() > 1 ? PlanStream(options, spec, values)
                              : PlanConverted(options, shared, spec, values);
}

// Only language models are cut. A stream of documents is, by itself, a THD batch.
absl::StatusOr<PadRule> Padding(const MagiOptions& options, const BatchSpec& spec, int64_t tokens) {
  PadRule rule;
  const bool is_cut = options.domain == MagiDomain::kLlm &&
                      (options.variant == MagiVariant::kHf || spec.num_ranks() > 1);
  if (!is_cut) return rule;
  CPSHARD_ASSIGN_OR_RETURN(const MagiDispatch dispatch,
                           DispatchCausal({tokens}, tokens, spec.num_ranks(), options.chunk_size,
                                          options.min_chunks_per_rank));
  rule.row_multiple = dispatch.chunk_size * spec.num_ranks();
  rule.row_term =
      PadTerm(absl::StrCat("cp_size * chunks of ", dispatch.chunk_size), rule.row_multiple);
  return rule;
}

std::vector<std::string> Needs(const MagiOptions& options, const BatchSpec& spec) {
  const bool converts =
      options.variant == MagiVariant::kCustom && options.domain == MagiDomain::kLlm && IsThd(spec);
  if (!converts) return {};
  return spec.num_ranks() > 1 ? PackedLengths::Needs(spec) : ThdNeeds(spec);
}

}  // namespace

Sharder Magi(MagiOptions options, SharedOptions shared) {
  return Sharder(
      {.name = "magi",
       .loss_mask = false,
       .pad_rule = [options](const BatchSpec& spec,
                             int64_t tokens) { return Padding(options, spec, tokens); }},
      std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(options, shared, spec, values);
      },
      [options](const BatchSpec& spec) { return Needs(options, spec); });
}

}  // namespace cpshard
