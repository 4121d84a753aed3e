// What a picture shows of one plan, ready to be drawn in a terminal (terminal.h) or as SVG (svg.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/documents.h"
#include "core/plan/index_map.h"
#include "core/plan/plan.h"
#include "proto/replies.h"

namespace cpshard::draw {

// Of a rank, over all rows and chunks. slots = real + pad.
struct RankFigures {
  int64_t rank = 0;
  int64_t slots = 0, real = 0, pad = 0;
  double area = 0;  // causal attention, per document where documents are known
};

// The padded columns that a rank holds of a chunk, in the order of its slots; rows are all alike.
struct RankRuns {
  int64_t rank = 0;
  std::vector<Run> runs;
};
using ChunkRuns = std::vector<RankRuns>;  // of the ranks that are shown, ascending

struct Panel {
  std::string title;    // the layout
  std::string options;  // as JSON
  int64_t num_ranks = 1;
  int64_t rows = 1;     // of each chunk; rows that were flattened are one
  int64_t columns = 0;  // padded, of a row of a chunk
  std::optional<RowShape> flattened_from;
  std::vector<ChunkRuns> chunks;
  bool on_every_rank = false;  // nothing is cut: each of several ranks holds all columns

  // Per chunk and row; columns outside, and those behind the real ones of a span, are padding.
  // Where nothing tells documents each row is one span of which the padding belongs to no document.
  std::vector<RowsDocuments> documents;
  std::string documents_from;  // empty: nothing told
  int64_t num_documents = 0;
  bool documents_left_out = false;  // told, but too many for the server's reply: none are drawn
  int64_t pads_not_drawn = 0;       // columns that are counted as padding but nothing says where

  std::vector<RankFigures> ranks;  // those that are shown, ascending
  double mean_area = 0;            // over all ranks, shown or not; so are these:
  double attention_imbalance = 1;  // I_attn
  double slot_imbalance = 1;       // I_tok
  double pad_fraction = 0;

  bool draws_documents() const { return !documents_from.empty() && !documents_left_out; }
  const std::vector<DocumentSpan>& DocumentsOf(size_t chunk, int64_t row) const {
    return documents[chunk][row];
  }
};

inline constexpr int64_t kMaxRows = int64_t{1} << 24;

// FailedPrecondition: the plan reports no layout, or has no columns, so that there is nothing to
// draw; it has more than kMaxRows rows. Internal: the summary, a server's, contradicts itself.
absl::StatusOr<Panel> MakePanel(std::string title, std::string options, PlanSummary summary);

// Rows that look the same are one bar: rows first ... last of a chunk.
struct Bar {
  size_t chunk = 0;
  int64_t first = 0, last = 0;
  std::string label;  // "row 0", "rows 0-7", "chunk 1", "stream"
};

// The bars of a panel from its first row on, `max_bars` at most; `*left` counts the rows (or
// chunks) that have none.
std::vector<Bar> BarsOf(const Panel& panel, size_t max_bars, int64_t* left);

// Where the stream's rows begin: none where it is not flattened, or has one row.
std::vector<DocumentSpan> FlattenedRows(const Panel& panel);

// "4 ranks, 2 rows of 64 columns, 5 documents (by position_ids)"
std::string Describe(const Panel& panel);

// "causal, per document": what I_attn is of.
std::string DescribeArea(const Panel& panel);

// What the picture cannot show; none: nothing.
std::vector<std::string> DescribeGaps(const Panel& panel);

// 12345678 as "12,345,678".
std::string Grouped(int64_t number);

}  // namespace cpshard::draw
