// Head and tail of every document without padding, as WLB-LLM cuts them: a document of L tokens is
// cut into 2 * cp_size pieces of floor(L / (2 * cp_size)) tokens, in order; what is left over goes,
// a token each, to pieces in turn, and the turn goes on from document to document. Rank r holds
// piece r of every document, then piece 2 * cp_size - 1 - r of every document. Shards differ in
// length by a token at most. Streams are those of the THD conversion (contract 5).
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

absl::Status CheckPresent(const BatchSpec& spec) {
  for (absl::string_view name : kRequired) {
    if (spec.Has(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has no '", name, "', which layout document_head_tail needs"));
  }
  return absl::OkStatus();
}

// The pieces of all documents: pieces[p] holds a run of each, documents in order.
std::vector<IndexMap> Pieces(const std::vector<int64_t>& boundaries, int64_t num_pieces) {
  std::vector<IndexMap> pieces(num_pieces);
  int64_t turn = 0;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    const int64_t length = boundaries[i] - boundaries[i - 1];
    const int64_t left_over = length % num_pieces;
    int64_t at = boundaries[i - 1];
    for (int64_t p = 0; p < num_pieces; ++p) {
      const bool takes_one = (p - turn + num_pieces) % num_pieces < left_over;
      const int64_t take = length / num_pieces + (takes_one ? 1 : 0);
      pieces[p].Append({at, take});
      at += take;
    }
    turn = (turn + left_over) % num_pieces;
  }
  return pieces;
}

std::vector<IndexMap> Partition(const std::vector<int64_t>& boundaries, int64_t cp_size) {
  if (cp_size == 1) return WholePartition(boundaries.back(), 1);  // nothing to balance
  std::vector<IndexMap> pieces = Pieces(boundaries, 2 * cp_size);
  std::vector<IndexMap> partition;
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    IndexMap local = std::move(pieces[rank]);
    for (const Run& run : pieces[2 * cp_size - 1 - rank].runs()) local.Append(run);
    partition.push_back(std::move(local));
  }
  return partition;
}

// A last row that is short ends in a piece of padding, cut as a document of its own.
std::vector<int64_t> Boundaries(const ConvertedChunk& chunk, int64_t tokens) {
  std::vector<int64_t> boundaries = chunk.lengths.boundaries();
  if (boundaries.back() < tokens) boundaries.push_back(tokens);
  return boundaries;
}

absl::StatusOr<ShardPlan> Plan(const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckPresent(spec));
  CPSHARD_ASSIGN_OR_RETURN(const FlatRows flat, FlatRowsOf(spec, 1));
  FlatStreams streams(spec, flat);
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("input_ids", std::nullopt));
  CPSHARD_RETURN_IF_ERROR(streams.CutTokens("labels", std::nullopt));
  CPSHARD_RETURN_IF_ERROR(streams.CutPositions(std::nullopt, /*three_axes=*/true));
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, flat.rows));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<ConvertedChunk> chunks,
                           ConvertByLengths(lengths, flat, /*pieces=*/1));
  streams.EmitLengths(chunks);
  streams.EmitPaddingMask(chunks);
  Outputs& outputs = streams.outputs();
  // Boundaries that came in and are not made anew would contradict those that are.
  for (absl::string_view name :
       {"seq_lens", "seq_lens_padded", "attention_mask", "cu_seqlens_padded"}) {
    outputs.Drop(name);
  }
  streams.EmitRanks();

  LayoutPlan layout = ChunkWindow(flat, 0, chunks.front());
  layout.partition = Partition(Boundaries(chunks.front(), flat.tokens), spec.num_ranks());
  layout.report.padded_seq_len = flat.tokens;
  layout.report.input_row_shape = RowShape{flat.rows.rows, flat.rows.length};
  layout.report.indices = Report::Indices::kI64;
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  outputs.MoveInto(plan);
  plan.chunks.push_back(std::move(layout));
  return plan;
}

}  // namespace

Sharder DocumentHeadTail(SharedOptions shared) {
  return Sharder(
      {.name = "document_head_tail", .needs_mesh = true, .loss_mask = false}, std::move(shared),
      [](const BatchSpec& spec, const SharedOptions&, const PlanValues& values) {
        return Plan(spec, values);
      },
      PackedLengths::Needs);
}

}  // namespace cpshard
