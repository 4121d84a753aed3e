// The columns of a panel as what is drawn: runs of one owner, runs of one kind, or cells that stand
// for several columns each. All of it is computed from runs and documents, nothing per token.
#pragma once

#include <cstdint>
#include <vector>

#include "client/draw/panel.h"

namespace cpshard::draw {

// Who holds a column or most of a cell: a rank >= 0, or one of these.
inline constexpr int64_t kMixed = -1;  // a cell of which no rank (or band) holds more than half
inline constexpr int64_t kEveryRank = -2;
inline constexpr int64_t kNotShown = -3;  // a rank that is not among those shown

enum class Kind {
  kReal,
  kDocumentPad,  // padding inside a document
  kTailPad,      // padding that belongs to no document
};

// `columns` columns in cells of `scale` columns each; the last cell may have fewer.
struct Axis {
  int64_t columns = 0;
  int64_t scale = 1;

  // The finest axis of at most `max_cells` (>= 1) cells.
  static Axis Of(int64_t columns, int64_t max_cells);

  int64_t cells() const { return (columns + scale - 1) / scale; }
  int64_t ColumnsOf(int64_t cell) const;
};

// Columns [begin, begin + length) of one owner or kind.
struct OwnerRun {
  int64_t begin = 0, length = 0, owner = kNotShown;
  friend bool operator==(const OwnerRun&, const OwnerRun&) = default;
};
struct KindRun {
  int64_t begin = 0, length = 0;
  Kind kind = Kind::kReal;
  friend bool operator==(const KindRun&, const KindRun&) = default;
};

// Who holds each cell. Neighbouring ranks are taken together as bands of `band` (1 = each by
// itself; hundreds of ranks share a cell otherwise, and none has the most of it): a band is named
// by its first rank, a multiple of `band`. O(runs + cells).
std::vector<int64_t> OwnerCells(const Panel& panel, size_t chunk, Axis axis, int64_t band);

int64_t CountRuns(const ChunkRuns& chunk);

// Every column of a chunk's rows once, ascending, neighbours of one owner merged.
std::vector<OwnerRun> OwnerRuns(const Panel& panel, size_t chunk);

// ... of cells.
std::vector<OwnerRun> MergedCells(const std::vector<int64_t>& cells, Axis axis);

// Every column of a row once, ascending. Where documents are not known the row's padding belongs to
// none.
std::vector<KindRun> KindRuns(const Panel& panel, const std::vector<DocumentSpan>& row);

// What most columns of each cell are: real where at least half are, else the commoner padding.
std::vector<Kind> KindCells(const std::vector<KindRun>& runs, Axis axis);

std::vector<KindRun> MergedKinds(const std::vector<Kind>& cells, Axis axis);

}  // namespace cpshard::draw
