// GLM DSA: the THD conversion, cut into consecutive slices. Contract 4.11, with 5.
#include <algorithm>
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

constexpr absl::string_view kRequired[] = {"input_ids", "labels", "seq_lens", "position_ids"};
constexpr absl::string_view kIndices = "glm_dsa_cp_query_indices";

absl::Status CheckPresent(const BatchSpec& spec) {
  for (absl::string_view name : kRequired) {
    if (spec.Has(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has no '", name, "', which layout glm_dsa needs"));
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const FlatRows& flat, int64_t cp_size) {
  if (flat.chunk_tokens() % cp_size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("stream 'input_ids': ", flat.rows_per_chunk(), " rows of ", flat.rows.length,
                   " are ", flat.chunk_tokens(), " tokens, not divisible by cp_size ", cp_size,
                   "; pad the rows to a multiple of it"));
}

// Everything at every size is int64, but for embeddings (D7).
absl::Status CutStreams(const FlatRows& flat, FlatStreams& streams) {
  std::optional<DType> ids = DType::kI64;
  if (IsFloating(flat.rows.primary->dtype)) ids.reset();
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", ids));
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", DType::kI64));
  return streams.CutPositions(DType::kI64, /*three_axes=*/false);
}

// Boundaries that came in and are not worked out anew stay, as int32 (contract 5.5).
void KeepIncomingBoundaries(const BatchSpec& spec, Outputs& outputs) {
  const TensorSpec* incoming = spec.FindTensor("cu_seqlens_padded");
  if (incoming == nullptr) return;
  StreamPlan stream{incoming->name, DType::kI32, incoming->dims};
  stream.value.from = ViewOf{incoming->name};
  stream.extent = Extent::kWhole;
  outputs.Add(std::move(stream));
}

// In chunks their slices would stand in for the boundaries of the chunks that emit none.
absl::Status CheckIncoming(const BatchSpec& spec, const std::vector<ConvertedChunk>& chunks) {
  const bool all_emitted =
      std::all_of(chunks.begin(), chunks.end(),
                  [](const ConvertedChunk& chunk) { return !chunk.lengths.padded.empty(); });
  if (chunks.size() == 1 || all_emitted || !spec.Has("cu_seqlens_padded")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("stream 'cu_seqlens_padded' would stand in for the boundaries of ",
                   chunks.size(), " chunks; leave it out"));
}

void Emit(const BatchSpec& spec, const std::vector<ConvertedChunk>& chunks, FlatStreams& streams) {
  Outputs& outputs = streams.outputs();
  if (chunks.size() == 1 && chunks[0].lengths.padded.empty()) KeepIncomingBoundaries(spec, outputs);
  streams.EmitLengths(chunks);
  streams.EmitPaddingMask(chunks);
  streams.EmitIndices(kIndices, DType::kI32);
  streams.EmitRanks();
  outputs.DropOthers();
}

absl::StatusOr<ShardPlan> Plan(const ThdOptions& options, const BatchSpec& spec,
                               const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckPresent(spec));
  CPSHARD_ASSIGN_OR_RETURN(const FlatRows flat, FlatRowsOf(spec, options.num_chunks));
  const int64_t cp_size = *spec.cp_size;
  CPSHARD_RETURN_IF_ERROR(CheckTokens(flat, cp_size));
  FlatStreams streams(spec, flat);
  CPSHARD_RETURN_IF_ERROR(CutStreams(flat, streams));
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, flat.rows));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<ConvertedChunk> chunks,
                           ConvertByLengths(lengths, flat, /*pieces=*/1));
  CPSHARD_RETURN_IF_ERROR(CheckIncoming(spec, chunks));
  Emit(spec, chunks, streams);

  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  for (int64_t c = 0; c < flat.num_chunks; ++c) {
    LayoutPlan layout = ChunkWindow(flat, c, chunks[c]);
    CPSHARD_ASSIGN_OR_RETURN(layout.partition, ContiguousPartition(flat.chunk_tokens(), cp_size));
    plan.chunks.push_back(std::move(layout));
  }
  if (flat.num_chunks == 1) {
    Report& report = plan.chunks.front().report;
    report.padded_seq_len = flat.tokens;
    report.input_row_shape = RowShape{flat.rows.rows, flat.rows.length};
  }
  streams.outputs().MoveInto(plan);
  return plan;
}

}  // namespace

Sharder GlmDsa(ThdOptions options, SharedOptions shared) {
  return Sharder(
      {.name = "glm_dsa",
       .needs_mesh = true,
       .loss_mask = false,
       .pad_rule = PadRows("cp_size", 1)},
      std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions&, const PlanValues& values) {
        return Plan(options, spec, values);
      },
      PackedLengths::Needs);
}

}  // namespace cpshard
