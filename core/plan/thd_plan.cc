#include "core/plan/thd_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/plan/flat_streams.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

bool IsCut(const BatchSpec& spec) { return spec.num_ranks() > 1; }

absl::Status CheckPresent(const ThdRules& rules, const BatchSpec& spec) {
  for (absl::string_view name : {"input_ids", "labels"}) {
    if (!spec.Has(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the batch has no '", name, "', which layout ", rules.layout, " needs"));
    }
  }
  if (!IsCut(spec)) return absl::OkStatus();
  for (absl::string_view name : {"seq_lens", "position_ids"}) {
    if (!spec.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat("the batch has no '", name, "', which layout ",
                                                     rules.layout, " needs at cp_size ",
                                                     *spec.cp_size));
    }
  }
  return absl::OkStatus();
}

// Boundaries may come in beside the lengths. Where the stream is cut, or in chunks, they would take
// the place of those that are worked out and then not emitted (T30).
absl::Status CheckIncoming(const BatchSpec& spec, const PlanValues& values,
                           const std::vector<ConvertedChunk>& chunks) {
  const bool matter = IsCut(spec) || chunks.size() > 1;
  const bool all_emitted =
      std::all_of(chunks.begin(), chunks.end(),
                  [](const ConvertedChunk& chunk) { return !chunk.lengths.padded.empty(); });
  if (!spec.Has("cu_seqlens_padded") || !matter || all_emitted) return absl::OkStatus();
  const auto incoming = values.find("cu_seqlens_padded");
  const std::vector<int64_t>& real = chunks.front().lengths.real;
  bool equal = chunks.size() == 1 && incoming != values.end() &&
               incoming->second.size() == static_cast<int64_t>(real.size());
  for (size_t i = 0; equal && i < real.size(); ++i) equal = incoming->second[i] == real[i];
  if (equal) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "stream 'cu_seqlens_padded' is not what the ", real.empty() ? 0 : real.size() - 1,
      " documents of 'seq_lens' add up to, and would be taken for it at cp_size ", spec.num_ranks(),
      " in ", chunks.size(), " chunks; leave it out"));
}

absl::Status CheckTokens(const FlatRows& flat, int64_t ranks) {
  if (ranks == 1 || flat.chunk_tokens() % (2 * ranks) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "stream 'input_ids': ", flat.rows_per_chunk(), " rows of ", flat.rows.length, " are ",
      flat.chunk_tokens(), " tokens, not divisible by 2 * cp_size = ", 2 * ranks,
      "; pad every document to a multiple of it before packing"));
}

bool IsKept(const ThdRules& rules, absl::string_view name) {
  return !rules.kept.empty() &&
         (name == rules.kept || absl::StartsWith(name, absl::StrCat(rules.kept, ".")));
}

// Chunks drop tensors that are no streams of tokens (contract 5.6), unless there are ranks to serve
// (D16); one without axes has no rows to split.
absl::Status PassOn(const ThdRules& rules, const BatchSpec& spec, const FlatRows& flat,
                    Outputs& outputs) {
  if (flat.num_chunks == 1) return absl::OkStatus();
  for (const TensorSpec& tensor : spec.tensors) {
    if (!tensor.dims.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", tensor.name, "' has no axes, so its rows cannot be split into ",
                     flat.num_chunks, " chunks; send it as a scalar"));
  }
  if (IsCut(spec)) return absl::OkStatus();
  for (const TensorSpec& tensor : spec.tensors) {
    if (!IsKept(rules, tensor.name)) outputs.Drop(tensor.name);
  }
  return absl::OkStatus();
}

absl::Status CutStreams(const BatchSpec& spec, const FlatRows& flat, FlatStreams& streams) {
  // Where it cuts, the reference makes int64 of them (contract 4.7 step 4); embeddings stay (D7).
  const std::optional<DType> cast = IsCut(spec) ? std::optional<DType>(DType::kI64) : std::nullopt;
  const bool floating = IsFloating(flat.rows.primary->dtype);
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", floating ? std::nullopt : cast));
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", cast));
  if (!spec.Has("position_ids")) return absl::OkStatus();
  return streams.CutPositions(cast, !IsCut(spec) && flat.num_chunks == 1);
}

DType IndicesDType(const ThdRules& rules, const BatchSpec& spec) {
  return rules.indices_dtype.value_or(IsCut(spec) ? DType::kI32 : DType::kI64);
}

// What a batch holds beside its cut streams (contract 4.7, 5.5).
void Emit(const ThdRules& rules, const BatchSpec& spec, const std::vector<ConvertedChunk>& chunks,
          FlatStreams& streams) {
  streams.EmitPaddingMask(chunks);
  if (chunks.size() == 1 || rules.indices_of_chunks) {
    streams.EmitIndices(rules.indices, IndicesDType(rules, spec));
  } else {
    streams.outputs().Drop(rules.indices);
  }
  if (!IsCut(spec)) return streams.EmitLengths(chunks);
  streams.EmitBoundaries(chunks);  // ranks know the documents by their padded lengths alone (T28)
  streams.outputs().Drop("attention_mask");
  streams.EmitRanks();
}

absl::StatusOr<std::vector<ConvertedChunk>> Convert(const SharedOptions& shared,
                                                    const BatchSpec& spec, const PlanValues& values,
                                                    const FlatRows& flat) {
  // Without real lengths padded ones are not looked at (contract 5.3).
  if (!spec.Has("seq_lens")) return ConvertByValue(values, shared.padding_token_id, flat);
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, flat.rows));
  return ConvertByLengths(lengths, flat, IsCut(spec) ? 2 * spec.num_ranks() : 1);
}

absl::Status AddLayouts(const ThdRules& rules, const BatchSpec& spec, const FlatRows& flat,
                        const std::vector<ConvertedChunk>& chunks, ShardPlan& plan) {
  for (int64_t c = 0; c < flat.num_chunks; ++c) {
    LayoutPlan layout = ChunkWindow(flat, c, chunks[c]);
    if (IsCut(spec)) {
      CPSHARD_ASSIGN_OR_RETURN(
          layout.partition,
          TePartition(chunks[c].lengths.boundaries(), flat.chunk_tokens(), spec.num_ranks()));
    } else {
      layout.partition = WholePartition(flat.chunk_tokens(), 1);
    }
    plan.chunks.push_back(std::move(layout));
  }
  if (flat.num_chunks > 1) return absl::OkStatus();  // no layout is reported
  Report& report = plan.chunks.front().report;
  report.padded_seq_len = flat.tokens;
  report.input_row_shape = RowShape{flat.rows.rows, flat.rows.length};
  report.indices =
      IndicesDType(rules, spec) == DType::kI32 ? Report::Indices::kI32 : Report::Indices::kI64;
  return absl::OkStatus();
}

}  // namespace

// Lengths; without them, where nothing is cut, the ids that tell the padding.
std::vector<std::string> ThdNeeds(const BatchSpec& spec) {
  std::vector<std::string> needs;
  if (spec.Has("seq_lens")) {
    needs = PackedLengths::Needs(spec);
  } else if (!IsCut(spec) && spec.FindTensor("input_ids") != nullptr) {
    needs.push_back("input_ids");
  }
  const TensorSpec* boundaries = spec.FindTensor("cu_seqlens_padded");
  if (IsCut(spec) && boundaries != nullptr && IsInteger(boundaries->dtype)) {
    needs.push_back(boundaries->name);
  }
  return needs;
}

absl::StatusOr<ShardPlan> PlanThd(const ThdRules& rules, const SharedOptions& shared,
                                  const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckPresent(rules, spec));
  CPSHARD_ASSIGN_OR_RETURN(const FlatRows flat, FlatRowsOf(spec, rules.num_chunks));
  CPSHARD_RETURN_IF_ERROR(CheckTokens(flat, spec.num_ranks()));
  FlatStreams streams(spec, flat);
  CPSHARD_RETURN_IF_ERROR(CutStreams(spec, flat, streams));
  CPSHARD_RETURN_IF_ERROR(PassOn(rules, spec, flat, streams.outputs()));
  streams.outputs().Drop("seq_lens");
  streams.outputs().Drop("seq_lens_padded");
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<ConvertedChunk> chunks,
                           Convert(shared, spec, values, flat));
  CPSHARD_RETURN_IF_ERROR(CheckIncoming(spec, values, chunks));
  Emit(rules, spec, chunks, streams);

  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(AddLayouts(rules, spec, flat, chunks, plan));
  streams.outputs().MoveInto(plan);
  return plan;
}

}  // namespace cpshard
