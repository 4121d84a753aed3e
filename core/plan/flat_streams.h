// What the layouts over one flat stream share (contract 5): rows [B, S, ...] become [T, ...],
// T = B * S, in one window or in several chunks. Used by layouts/*.cc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/outputs.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/plan.h"
#include "core/plan/token_rows.h"

namespace cpshard {

// The flat stream of a batch, cut into chunks of as many rows each.
struct FlatRows {
  TokenRows rows;
  int64_t num_chunks = 1;
  int64_t tokens = 0;  // T

  int64_t rows_per_chunk() const { return rows.rows / num_chunks; }
  int64_t chunk_tokens() const { return tokens / num_chunks; }  // T_c
};

// Micro-batches of a batch: each has a layout of its own.
inline constexpr int64_t kMaxChunks = 4096;

// InvalidArgument: the batch has no input_ids [B, S, ...]; T is 0 or beyond int64; B is not
// divisible by num_chunks (below 2 acts as 1), or that is over kMaxChunks.
absl::StatusOr<FlatRows> FlatRowsOf(const BatchSpec& spec, int64_t num_chunks);

// One chunk's part of what a conversion makes (contract 5.3, 5.4).
struct ConvertedChunk {
  CumulativeLengths lengths;            // nothing where no lengths were sent
  std::vector<DocumentSpan> documents;  // likewise; what absorption adds to the last is its padding
  std::vector<Segment> padding;         // padding_mask over the chunk's T_c columns, 1 = padding
};

// The layout of chunk `chunk`, which was converted to `converted`, without partition and report.
LayoutPlan ChunkWindow(const FlatRows& flat, int64_t chunk, const ConvertedChunk& converted);

// padding_mask by lengths: all columns of a document behind its real ones, and behind the last
// document up to `tokens`. Precondition: the documents of every row but the last fill it.
std::vector<Segment> PaddingByLengths(const PackedRows& rows, int64_t tokens);

// Converts every chunk by its lengths. Each document is going to be cut into `pieces` equal pieces;
// 1 = documents are not cut, and then the last row of a chunk may be short.
// Errors: those of PackedLengths::Rows and Accumulate; InvalidArgument: a document does not divide
// into pieces; the lengths add up beyond int32.
absl::StatusOr<std::vector<ConvertedChunk>> ConvertByLengths(const PackedLengths& lengths,
                                                             const FlatRows& flat, int64_t pieces);

// ... where none were sent, by value: padding is what equals the pad id, and must be all of a
// chunk's tail and nothing else. InvalidArgument: it is not, the pad id was not given or is none of
// the dtype's, or input_ids are not of [B, S].
absl::StatusOr<std::vector<ConvertedChunk>> ConvertByValue(const PlanValues& values,
                                                           std::optional<int64_t> padding_token_id,
                                                           const FlatRows& flat);

// Collects the outputs of a layout over a flat stream.
class FlatStreams {
 public:
  FlatStreams(const BatchSpec& spec, const FlatRows& flat)
      : spec_(spec), flat_(flat), outputs_(spec) {}

  // Cuts a stream [B, S, ...] as [T], or [T, n] with the n > 1 elements of a token on one axis,
  // converted to `cast` where given. InvalidArgument: it is not there, or of another shape.
  absl::Status CutTokens(absl::string_view name, std::optional<DType> cast);

  // That stream, not added.
  absl::StatusOr<StreamPlan> TokensOf(absl::string_view name, std::optional<DType> cast) const;

  // The same for position_ids; three axes [n, B, S] become [n, 1, T] where `three_axes` allows it.
  absl::Status CutPositions(std::optional<DType> cast, bool three_axes);

  // padding_mask, bool [T], and cu_seqlens, cu_seqlens_padded, max_seqlen as the chunks have them,
  // i32 [documents + 1], [documents + 1] and 0-d; stacked and filled up with -1000 where there are
  // several chunks. A length stream that is not emitted is not touched, but for cu_seqlens.
  void EmitPaddingMask(const std::vector<ConvertedChunk>& chunks);
  void EmitLengths(const std::vector<ConvertedChunk>& chunks);

  // The same where the padded lengths are all that ranks are told (contract 4.7 step 4): the
  // boundaries of each chunk as its cu_seqlens, and no cu_seqlens_padded.
  void EmitBoundaries(const std::vector<ConvertedChunk>& chunks);

  // The index of every local slot, [T] before the cut.
  void EmitIndices(absl::string_view name, DType dtype);

  // qkv_format = thd, cp_size and cp_rank.
  void EmitRanks();

  Outputs& outputs() { return outputs_; }

 private:
  void EmitCumulative(absl::string_view name, const std::vector<const std::vector<int64_t>*>& rows);
  void EmitMaxSeqlen(const std::vector<const std::vector<int64_t>*>& rows);
  void EmitLiteral(absl::string_view name, std::vector<int64_t> dims, std::vector<int64_t> values);

  const BatchSpec& spec_;
  const FlatRows flat_;
  Outputs outputs_;
};

}  // namespace cpshard
