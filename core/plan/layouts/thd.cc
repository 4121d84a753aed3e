// Packed documents as one flat stream, cut per document: contract 4.7, with 5 and 6.
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/flat_streams.h"
#include "core/plan/layouts.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::string_view kIndices = "_thd_local_indices";

bool IsCut(const BatchSpec& spec) { return spec.num_ranks() > 1; }

// Lengths; without them, where nothing is cut, the ids that tell the padding.
std::vector<std::string> Needs(const BatchSpec& spec) {
  std::vector<std::string> needs = PackedLengths::Needs(spec);
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (!spec.Has("seq_lens") && !IsCut(spec) && ids != nullptr && !IsFloating(ids->dtype)) {
    needs.push_back("input_ids");
  }
  return needs;
}

absl::Status CheckPresent(const BatchSpec& spec) {
  for (absl::string_view name : {"input_ids", "labels"}) {
    if (!spec.Has(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the batch has no '", name, "', which layout thd needs"));
    }
  }
  if (!IsCut(spec)) return absl::OkStatus();
  for (absl::string_view name : {"seq_lens", "position_ids"}) {
    if (!spec.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the batch has no '", name, "', which layout thd needs at cp_size ", *spec.cp_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const FlatRows& flat, int64_t ranks) {
  if (ranks == 1 || flat.chunk_tokens() % (2 * ranks) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "stream 'input_ids': ", flat.rows_per_chunk(), " rows of ", flat.rows.length, " are ",
      flat.chunk_tokens(), " tokens, not divisible by 2 * cp_size = ", 2 * ranks,
      "; pad every document to a multiple of it before packing"));
}

// Chunks drop tensors that are no streams of tokens (contract 5.6), unless there are ranks to serve
// (D16); one without axes has no rows to split.
absl::Status PassOn(const BatchSpec& spec, const FlatRows& flat, Outputs& outputs) {
  if (flat.num_chunks == 1) return absl::OkStatus();
  for (const TensorSpec& tensor : spec.tensors) {
    if (!tensor.dims.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", tensor.name, "' has no axes, so its rows cannot be split into ",
                     flat.num_chunks, " chunks; send it as a scalar"));
  }
  if (!IsCut(spec)) outputs.DropOtherTensors();
  return absl::OkStatus();
}

absl::Status CutStreams(const BatchSpec& spec, const FlatRows& flat, FlatStreams& streams) {
  // Where the reference cuts it makes int64 of all but embeddings (contract 4.7 step 4, D7).
  const std::optional<DType> cast = IsCut(spec) ? std::optional<DType>(DType::kI64) : std::nullopt;
  const bool floating = IsFloating(flat.rows.primary->dtype);
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", floating ? std::nullopt : cast));
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", cast));
  if (!spec.Has("position_ids")) return absl::OkStatus();
  return streams.CutPositions(cast, !IsCut(spec) && flat.num_chunks == 1);
}

// What a batch holds beside its cut streams (contract 4.7, 5.5).
void Emit(const BatchSpec& spec, const std::vector<ConvertedChunk>& chunks, FlatStreams& streams) {
  streams.EmitPaddingMask(chunks);
  if (chunks.size() == 1) streams.EmitIndices(kIndices, IsCut(spec) ? DType::kI32 : DType::kI64);
  if (!IsCut(spec)) return streams.EmitLengths(chunks);
  // Ranks know the documents by their padded lengths alone (T28).
  std::vector<ConvertedChunk> padded = chunks;
  for (ConvertedChunk& chunk : padded) chunk.lengths = {chunk.lengths.boundaries(), {}};
  streams.EmitLengths(padded);
  Outputs& outputs = streams.outputs();
  outputs.Drop("attention_mask");
  outputs.Drop("cu_seqlens_padded");
  std::vector<Scalar> ranks;
  for (int64_t rank = 0; rank < spec.num_ranks(); ++rank) ranks.emplace_back(rank);
  outputs.AddScalar("qkv_format", {std::string("thd")});
  outputs.AddScalar("cp_size", {spec.num_ranks()});
  outputs.AddScalar("cp_rank", std::move(ranks));
}

absl::StatusOr<std::vector<ConvertedChunk>> Convert(const SharedOptions& shared,
                                                    const BatchSpec& spec, const PlanValues& values,
                                                    const FlatRows& flat) {
  // Without real lengths padded ones are not looked at (contract 5.3).
  if (!spec.Has("seq_lens")) return ConvertByValue(values, shared.padding_token_id, flat);
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, flat.rows));
  return ConvertByLengths(lengths, flat, IsCut(spec) ? 2 * spec.num_ranks() : 1);
}

absl::Status AddLayouts(const BatchSpec& spec, const FlatRows& flat,
                        const std::vector<ConvertedChunk>& chunks, ShardPlan& plan) {
  for (int64_t c = 0; c < flat.num_chunks; ++c) {
    LayoutPlan layout = ChunkWindow(flat, c);
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
  report.indices = IsCut(spec) ? Report::Indices::kI32 : Report::Indices::kI64;
  return absl::OkStatus();
}

absl::StatusOr<ShardPlan> Plan(const ThdOptions& options, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckPresent(spec));
  CPSHARD_ASSIGN_OR_RETURN(const FlatRows flat, FlatRowsOf(spec, options.num_chunks));
  CPSHARD_RETURN_IF_ERROR(CheckTokens(flat, spec.num_ranks()));
  FlatStreams streams(spec, flat);
  CPSHARD_RETURN_IF_ERROR(CutStreams(spec, flat, streams));
  CPSHARD_RETURN_IF_ERROR(PassOn(spec, flat, streams.outputs()));
  streams.outputs().Drop("seq_lens");
  streams.outputs().Drop("seq_lens_padded");
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<ConvertedChunk> chunks,
                           Convert(shared, spec, values, flat));
  Emit(spec, chunks, streams);

  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(AddLayouts(spec, flat, chunks, plan));
  streams.outputs().MoveInto(plan);
  return plan;
}

}  // namespace

Sharder Thd(ThdOptions options, SharedOptions shared) {
  return Sharder(
      {.name = "thd", .loss_mask = false}, std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(options, shared, spec, values);
      },
      Needs);
}

}  // namespace cpshard
