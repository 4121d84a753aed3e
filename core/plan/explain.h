// Where every token of a batch went, and where every slot of a shard came from. Three coordinate
// systems meet here (plan.h draws them): the caller's (row, token), the padded columns, and the
// slots of the ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/plan/documents.h"
#include "core/plan/index_map.h"
#include "core/plan/plan.h"
#include "core/plan/shard_layout.h"

namespace cpshard {

// The caller's coordinates, [B, S] as sent; of rows that were flattened too.
struct SourceToken {
  int64_t row = 0, token = 0;
  friend bool operator==(const SourceToken&, const SourceToken&) = default;
};

// A column before the cut. `row` is 0 where rows were flattened into one stream; `chunk` is 0 but
// where a batch was split into several.
struct PaddedColumn {
  int64_t chunk = 0, row = 0, column = 0;
  friend bool operator==(const PaddedColumn&, const PaddedColumn&) = default;
};

// A slot of a rank, the same in every row of its shard. Several chunks: counted over [C * L], as in
// ShardLayout::runs; slot c * L + i is element [c, i] of a stacked stream.
struct RankSlot {
  int64_t rank = 0, slot = 0;
  friend bool operator==(const RankSlot&, const RankSlot&) = default;
};

// One token, or one column of padding, in all coordinates.
struct TokenPlace {
  std::optional<SourceToken> source;   // absent: padding that the layout added
  std::optional<PaddedColumn> padded;  // absent: the layout dropped the token
  // By ascending rank: one rank; all ranks where each holds everything; none where the token was
  // dropped, or where the record of its rank is not at hand (then `padded` is there).
  std::vector<RankSlot> held;
  friend bool operator==(const TokenPlace&, const TokenPlace&) = default;
};

// A layout as a map between the coordinates, made once. Cost of making it: runs, and the positions
// if the records have them; of a question: the runs of one row and log(runs) for every rank.
// Immutable, so const methods are safe from several threads at once. Keeps nothing of what it was
// made of.
class LayoutTrace {
 public:
  // Of a plan: all ranks. FailedPrecondition: the plan reports no layout.
  static absl::StatusOr<LayoutTrace> Of(const ShardPlan& plan);

  // What records leave out and their shards' streams tell.
  struct StreamShape {
    int64_t rows = 1;    // of the shards' streams; 1 where rows were flattened
    int64_t chunks = 1;  // C of stacked streams, [C, L, ...]
  };

  // Of the records of some or all ranks, in any order.
  // FailedPrecondition, naming both ranks and the numbers: records of different batches (digest),
  // groups or lengths; a rank twice; nothing that was cut; a shape that does not fit the records;
  // a column in two of them; records of all ranks with a column in none of them.
  // InvalidArgument: runs outside the padded columns, a column twice in one rank, or in the slots
  // of another chunk.
  static absl::StatusOr<LayoutTrace> Of(absl::Span<const ShardLayout> records, StreamShape shape);

  // Of (row, token): 0 <= row < source().rows, 0 <= token < source().columns.
  // InvalidArgument, with the range, outside of it.
  absl::StatusOr<TokenPlace> OfToken(SourceToken token) const;

  // Of a slot, in row `row` of the shard's streams. InvalidArgument, with the range: rank, slot or
  // row outside of it. NotFound: the record of that rank is not at hand.
  absl::StatusOr<TokenPlace> OfSlot(RankSlot slot, int64_t row) const;

  // InvalidArgument, with the range.
  absl::StatusOr<TokenPlace> OfColumn(PaddedColumn column) const;

  // [B, S] of the caller. Records do not always tell how it looked before padding and flattening:
  // of stacked chunks, and of some padded ones. Then tokens are those of the flattened stream (row
  // 0) or the padded columns, and knows_source() is false.
  RowShape source() const { return source_; }
  bool knows_source() const { return knows_source_; }

  int64_t cp_size() const { return cp_size_; }
  int64_t chunks() const { return chunks_; }
  int64_t rows() const { return rows_; }              // of a chunk's streams; 1: flattened
  int64_t padded_len() const { return padded_len_; }  // of a row of a chunk
  bool flattened() const { return flattened_; }       // rows() do not count the caller's rows

  std::vector<int64_t> ranks() const;  // whose records are at hand, ascending
  bool complete() const { return static_cast<int64_t>(ranks_.size()) == cp_size_; }
  // Slots of a rank, over all chunks. Precondition: the rank is one of ranks().
  int64_t NumSlots(int64_t rank) const { return ranks_.at(rank).columns.size(); }
  // Slot <- column, over all chunks: chunk c's columns are offset by c * padded_len().
  const IndexMap& ColumnsOf(int64_t rank) const { return ranks_.at(rank).columns; }

  // Padded column <- source column of a row of a chunk; fill where the layout added padding.
  // Flattened rows count as one: source().columns columns each, one after the other.
  const IndexMap& PlacementOf(int64_t chunk, int64_t row) const;

 private:
  struct RankMaps {
    IndexMap columns;  // slot <- column
    IndexMap slots;    // column <- slot
  };

  absl::Status AddRank(int64_t rank, IndexMap columns);
  absl::Status Place(const ShardLayout& record);
  TokenPlace At(PaddedColumn column) const;
  std::optional<PaddedColumn> ColumnOf(SourceToken token) const;

  int64_t cp_size_ = 1, chunks_ = 1, rows_ = 1, padded_len_ = 0;
  bool flattened_ = false, knows_source_ = true;
  RowShape source_;
  // placement_[c]: padded column <- source column (of the flattened rows, if they were); 1 entry
  // (all rows alike) or one per row.
  std::vector<std::vector<IndexMap>> placement_;
  std::map<int64_t, RankMaps> ranks_;
};

// A place within its document.
struct DocumentPlace {
  int64_t index = 0;  // of the documents of its row
  DocumentSpan span;
  int64_t position = 0;  // columns behind span.begin; span.real or more: padding of the document
  bool is_padding() const { return position >= span.real; }
};

struct Explanation {
  TokenPlace place;
  std::optional<DocumentPlace> document;     // absent: dropped, or padding of no document
  std::optional<TokenPlace> previous, next;  // real tokens of the same document beside a real one
};

// What stands at `place`. Precondition: `place` is of `trace`, `documents` of the same batch (of a
// plan DocumentsOf, core/plan/documents.h).
Explanation Explain(const LayoutTrace& trace, const Documents& documents, TokenPlace place);

}  // namespace cpshard
