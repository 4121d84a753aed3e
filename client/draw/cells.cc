#include "client/draw/cells.h"

#include <algorithm>
#include <array>

namespace cpshard::draw {
namespace {

// Calls add(cell, columns) for every cell that [begin, begin + length) touches.
template <typename Add>
void Spread(int64_t begin, int64_t length, int64_t scale, Add add) {
  for (int64_t cell = begin / scale; length > 0; ++cell) {
    const int64_t part = std::min(length, (cell + 1) * scale - begin);
    add(cell, part);
    begin += part;
    length -= part;
  }
}

// Appends, or lengthens the last run.
template <typename R, typename Value>
void Extend(std::vector<R>& runs, int64_t length, Value R::*member, Value value) {
  if (length <= 0) return;
  if (!runs.empty() && runs.back().*member == value) {
    runs.back().length += length;
    return;
  }
  R run{.begin = runs.empty() ? 0 : runs.back().begin + runs.back().length, .length = length};
  run.*member = value;
  runs.push_back(run);
}

void AppendKind(std::vector<KindRun>& runs, int64_t length, Kind kind) {
  Extend(runs, length, &KindRun::kind, kind);
}

}  // namespace

Axis Axis::Of(int64_t columns, int64_t max_cells) {
  return {.columns = columns, .scale = std::max<int64_t>(1, (columns + max_cells - 1) / max_cells)};
}

int64_t Axis::ColumnsOf(int64_t cell) const { return std::min(scale, columns - cell * scale); }

std::vector<int64_t> OwnerCells(const Panel& panel, size_t chunk, Axis axis, int64_t band) {
  if (panel.on_every_rank) return std::vector<int64_t>(axis.cells(), kEveryRank);
  const ChunkRuns& ranks = panel.chunks[chunk];
  std::vector<int64_t> owners(axis.cells(), kNotShown);
  std::vector<int64_t> held(axis.cells(), 0);  // by any shown rank
  std::vector<int64_t> of_band(axis.cells(), 0);
  std::vector<int64_t> touched;  // cells of which the band has a part
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const Run& run : ranks[i].runs) {
      Spread(run.source, run.length, axis.scale, [&](int64_t cell, int64_t part) {
        if (of_band[cell] == 0) touched.push_back(cell);
        of_band[cell] += part;
      });
    }
    const int64_t first = ranks[i].rank / band * band;
    if (i + 1 < ranks.size() && ranks[i + 1].rank < first + band) continue;
    for (const int64_t cell : touched) {
      if (2 * of_band[cell] > axis.ColumnsOf(cell)) owners[cell] = first;
      held[cell] += of_band[cell];
      of_band[cell] = 0;
    }
    touched.clear();
  }
  for (int64_t cell = 0; cell < axis.cells(); ++cell) {
    if (owners[cell] == kNotShown && 2 * held[cell] >= axis.ColumnsOf(cell)) owners[cell] = kMixed;
  }
  return owners;
}

int64_t CountRuns(const ChunkRuns& chunk) {
  int64_t count = 0;
  for (const RankRuns& rank : chunk) count += static_cast<int64_t>(rank.runs.size());
  return count;
}

std::vector<OwnerRun> OwnerRuns(const Panel& panel, size_t chunk) {
  if (panel.on_every_rank) return {{0, panel.columns, kEveryRank}};
  std::vector<OwnerRun> sorted;
  for (const RankRuns& rank : panel.chunks[chunk]) {
    for (const Run& run : rank.runs) sorted.push_back({run.source, run.length, rank.rank});
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const OwnerRun& a, const OwnerRun& b) { return a.begin < b.begin; });
  std::vector<OwnerRun> runs;
  int64_t column = 0;
  for (const OwnerRun& run : sorted) {
    Extend(runs, run.begin - column, &OwnerRun::owner, kNotShown);
    Extend(runs, run.length, &OwnerRun::owner, run.owner);
    column = run.begin + run.length;
  }
  Extend(runs, panel.columns - column, &OwnerRun::owner, kNotShown);
  return runs;
}

std::vector<OwnerRun> MergedCells(const std::vector<int64_t>& cells, Axis axis) {
  std::vector<OwnerRun> runs;
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    Extend(runs, axis.ColumnsOf(static_cast<int64_t>(cell)), &OwnerRun::owner, cells[cell]);
  }
  return runs;
}

std::vector<KindRun> KindRuns(const Panel& panel, const std::vector<DocumentSpan>& row) {
  const Kind inside = panel.draws_documents() ? Kind::kDocumentPad : Kind::kTailPad;
  std::vector<KindRun> runs;
  int64_t column = 0;
  for (const DocumentSpan& span : row) {
    AppendKind(runs, span.begin - column, Kind::kTailPad);
    AppendKind(runs, span.real, Kind::kReal);
    AppendKind(runs, span.length - span.real, inside);
    column = span.begin + span.length;
  }
  AppendKind(runs, panel.columns - column, Kind::kTailPad);
  return runs;
}

std::vector<Kind> KindCells(const std::vector<KindRun>& runs, Axis axis) {
  std::vector<std::array<int64_t, 3>> counts(axis.cells(), {0, 0, 0});
  for (const KindRun& run : runs) {
    Spread(run.begin, run.length, axis.scale, [&](int64_t cell, int64_t part) {
      counts[cell][static_cast<size_t>(run.kind)] += part;
    });
  }
  std::vector<Kind> kinds;
  kinds.reserve(counts.size());
  for (size_t cell = 0; cell < counts.size(); ++cell) {
    const auto& [real, inside, tail] = counts[cell];
    const bool most_real = 2 * real >= axis.ColumnsOf(static_cast<int64_t>(cell));
    kinds.push_back(most_real ? Kind::kReal : inside > tail ? Kind::kDocumentPad : Kind::kTailPad);
  }
  return kinds;
}

std::vector<KindRun> MergedKinds(const std::vector<Kind>& cells, Axis axis) {
  std::vector<KindRun> runs;
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    AppendKind(runs, axis.ColumnsOf(static_cast<int64_t>(cell)), cells[cell]);
  }
  return runs;
}

}  // namespace cpshard::draw
