// Which documents stand on the rows of a plan: what balance, totals, explanations and pictures are
// about. A layout that reads lengths says so itself (LayoutPlan::documents); of the others the
// batch's streams tell.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard {

// Of one layout: an entry per row, or one (all rows alike). Spans ascend and do not overlap;
// columns outside of them are padding that belongs to no document. A span may be empty: then spans
// are counted as the lengths that the layout read count their documents.
using RowsDocuments = std::vector<std::vector<DocumentSpan>>;

// Of all rows and chunks, so that the lists of what a few bytes state stay small.
inline constexpr int64_t kMaxDocuments = int64_t{1} << 20;

struct Documents {
  std::vector<RowsDocuments> chunks;  // one per plan.chunks
  // What told: "lengths" (the layout's own), or the name of the stream whose values did. Empty:
  // nothing; every row is one document then, from its first column to its last.
  std::string from;

  const std::vector<DocumentSpan>& Of(size_t chunk, int64_t row) const {
    const RowsDocuments& rows = chunks[chunk];
    return rows[rows.size() == 1 ? 0 : row];
  }
};

// The layout's own documents if it states any; else by the first of these streams of integers that
// `values` holds, in the shape of the rows: _packed_seq_ids (0 and below = padding), attention_mask
// of document ids (a 2-D one with a value over 1; 0 and below = padding), position_ids (a document
// begins where the position is not the one before plus 1; of three axes the first counts, and a
// document begins where it falls, since the tokens of an image share a position); else every row
// is one. Two or more of one token, side by side at the same position, are padding, as pads are
// often sent, left or right; but a row without anything else is one document.
// Passed over are streams of another shape (positions [1, S] stand for every row, contract 2.4), of
// more than kMaxDocuments, and positions by which documents begin at more than half of the columns
// inside rows: they count something else. A layout that states more than kMaxDocuments is taken for
// one that nothing tells.
// Cost: the tokens of that stream, one pass.
Documents DocumentsOf(const ShardPlan& plan, const BatchSpec& spec, const PlanValues& values);

// Every row as one document, whatever it is packed with: what attention sees that is told of no
// boundaries. `real` counts the columns that have a source.
Documents WholeRows(const ShardPlan& plan);

// Names of the streams that DocumentsOf would read, in its order; those that the batch has.
std::vector<std::string> DocumentsNeeds(const BatchSpec& spec);

}  // namespace cpshard
