#include "client/draw/panel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard::draw {
namespace {

// Chunks are reported as windows of one long stream, else runs stay within a row.
bool IsChunked(const PlanSummary& summary, int64_t columns) {
  for (const ShardLayout& layout : summary.layouts) {
    for (const Run& run : layout.runs) {
      if (run.source + run.length > columns) return true;
    }
  }
  return false;
}

void AddRuns(ShardLayout& layout, Panel& panel) {
  for (ChunkRuns& chunk : panel.chunks) chunk.push_back({.rank = layout.cp_rank});
  if (panel.chunks.size() == 1) {
    panel.chunks.front().back().runs = std::move(layout.runs);
    return;
  }
  for (Run run : layout.runs) {
    while (run.length > 0) {
      const int64_t chunk = run.source / panel.columns;
      const int64_t part = std::min(run.length, (chunk + 1) * panel.columns - run.source);
      panel.chunks[chunk].back().runs.push_back({run.source - chunk * panel.columns, part});
      run.source += part;
      run.length -= part;
    }
  }
}

// The real columns of rows of which no document is known, where that is certain.
int64_t RealColumns(const PlanSummary& summary, const Panel& panel) {
  if (summary.pad_columns == 0 || summary.layouts.empty()) return panel.columns;
  const std::optional<int64_t> original = summary.layouts.front().original_seq_len;
  if (!original || *original > panel.columns) return panel.columns;
  const int64_t rows = panel.rows * static_cast<int64_t>(panel.chunks.size());
  const bool at_the_end = (panel.columns - *original) * rows == summary.pad_columns;
  return at_the_end ? *original : panel.columns;
}

absl::Status AddDocuments(const PlanSummary& summary, Panel& panel) {
  panel.documents_from = summary.totals->documents_from;
  panel.num_documents = summary.totals->documents;
  panel.documents_left_out = panel.num_documents > 0 && summary.documents.empty();
  panel.documents.assign(panel.chunks.size(), RowsDocuments(panel.rows));
  if (panel.draws_documents()) {
    for (const DocumentCounts& document : summary.documents) {
      if (document.chunk < 0 || document.chunk >= static_cast<int64_t>(panel.chunks.size()) ||
          document.row < 0 || document.row >= panel.rows) {
        return absl::InternalError(absl::StrCat("the plan contradicts itself: a document in row ",
                                                document.row, " of chunk ", document.chunk));
      }
      panel.documents[document.chunk][document.row].push_back(document.span);
    }
    return absl::OkStatus();
  }
  const int64_t real = RealColumns(summary, panel);
  for (RowsDocuments& chunk : panel.documents) {
    for (std::vector<DocumentSpan>& row : chunk) row = {{0, real, panel.columns}};
  }
  return absl::OkStatus();
}

int64_t PadsDrawn(const Panel& panel) {
  int64_t pads = 0;
  for (const RowsDocuments& chunk : panel.documents) {
    for (const std::vector<DocumentSpan>& row : chunk) {
      pads += panel.columns;
      for (const DocumentSpan& span : row) pads -= span.real;
    }
  }
  return pads;
}

void AddFigures(const PlanSummary& summary, Panel& panel) {
  const BalanceTotals& balance = *summary.totals->balance;
  const AreaTotals& area = balance.causal_documents.value_or(balance.causal_rows);
  panel.mean_area = area.scheduled / static_cast<double>(panel.num_ranks);
  panel.attention_imbalance = area.imbalance;
  panel.slot_imbalance = balance.slot_imbalance;
  panel.pad_fraction = balance.pad_fraction();
  for (const RankRuns& shown : panel.chunks.front()) {
    const RankLoad& load = summary.loads[shown.rank];
    panel.ranks.push_back({.rank = shown.rank,
                           .slots = load.tokens.real + load.tokens.pad,
                           .real = load.tokens.real,
                           .pad = load.tokens.pad,
                           .area = load.causal_documents.value_or(load.causal_rows.value_or(0))});
  }
}

std::string LabelOf(const Panel& panel, const Bar& bar) {
  if (panel.chunks.size() > 1) return absl::StrCat("chunk ", bar.chunk);
  if (panel.flattened_from) return "stream";
  if (bar.first == bar.last) return absl::StrCat("row ", bar.first);
  return absl::StrCat("rows ", bar.first, "-", bar.last);
}

std::string Count(int64_t count, const char* one, const char* many) {
  return absl::StrCat(Grouped(count), " ", count == 1 ? one : many);
}

// A picture of numbers that contradict each other would be wrong, or lie outside of its axes.
absl::Status CheckSummary(const PlanSummary& summary) {
  const auto contradiction = [](auto... parts) {
    return absl::InternalError(absl::StrCat("the plan contradicts itself: ", parts...));
  };
  const int64_t columns = summary.rows > 0 ? summary.padded_columns / summary.rows : 0;
  if (columns <= 0 || columns * summary.rows != summary.padded_columns) {
    return contradiction(summary.padded_columns, " columns in ", summary.rows, " rows");
  }
  const int64_t num_ranks = summary.layouts.front().cp_size;
  if (static_cast<int64_t>(summary.loads.size()) != num_ranks) {
    return contradiction(summary.loads.size(), " loads of ", num_ranks, " ranks");
  }
  for (const ShardLayout& layout : summary.layouts) {
    if (layout.cp_size != num_ranks || layout.cp_rank < 0 || layout.cp_rank >= num_ranks) {
      return contradiction("rank ", layout.cp_rank, " of ", layout.cp_size);
    }
    for (const Run& run : layout.runs) {
      if (run.source >= 0 && run.length >= 0 && run.source <= summary.padded_columns - run.length) {
        continue;
      }
      return contradiction("rank ", layout.cp_rank, " holds columns ", run.source, " + ",
                           run.length, " of ", summary.padded_columns);
    }
  }
  const DocumentCounts* last = nullptr;
  for (const DocumentCounts& document : summary.documents) {
    const DocumentSpan& span = document.span;
    const bool same_row =
        last != nullptr && last->chunk == document.chunk && last->row == document.row;
    const int64_t from = same_row ? last->span.begin + last->span.length : 0;
    if (span.begin < from || span.real < 0 || span.length < span.real ||
        span.length > columns - span.begin) {
      return contradiction("a document of columns ", span.begin, " + ", span.length, " with ",
                           span.real, " real ones, in a row of ", columns);
    }
    last = &document;
  }
  return absl::OkStatus();
}

bool OnEveryRank(const PlanSummary& summary) {
  int64_t slots = 0;
  for (const RankLoad& load : summary.loads) slots += load.tokens.real + load.tokens.pad;
  return summary.loads.size() > 1 && slots > summary.padded_columns;
}

absl::Status NothingToDraw(absl::string_view title, absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat("layout ", title, " ", reason,
                                                    ", so there is nothing to draw; plan it "
                                                    "without --draw, --svg and --compare"));
}

}  // namespace

absl::StatusOr<Panel> MakePanel(std::string title, std::string options, PlanSummary summary) {
  if (summary.layouts.empty() || !summary.totals || !summary.totals->balance ||
      summary.loads.empty()) {
    return NothingToDraw(title, "reports no layout for this batch (nothing is cut)");
  }
  if (summary.padded_columns == 0) return NothingToDraw(title, "has no columns");
  if (summary.rows > kMaxRows) {
    return absl::FailedPreconditionError(absl::StrCat(summary.rows, " rows are too many to draw (",
                                                      kMaxRows, " can be); draw a part of them"));
  }
  CPSHARD_RETURN_IF_ERROR(CheckSummary(summary));
  Panel panel{.title = std::move(title),
              .options = std::move(options),
              .num_ranks = summary.layouts.front().cp_size,
              .rows = summary.rows,
              .columns = summary.padded_columns / summary.rows,
              .on_every_rank = OnEveryRank(summary)};
  const bool chunked = IsChunked(summary, panel.columns);
  panel.chunks.resize(chunked ? summary.rows : 1);
  if (chunked) panel.rows = 1;
  if (const auto& shape = summary.layouts.front().input_row_shape; shape && panel.rows == 1) {
    panel.flattened_from = RowShape{shape->values[0], shape->values[1]};
  }
  for (ShardLayout& layout : summary.layouts) AddRuns(layout, panel);
  for (ChunkRuns& chunk : panel.chunks) {
    std::sort(chunk.begin(), chunk.end(),
              [](const RankRuns& a, const RankRuns& b) { return a.rank < b.rank; });
  }
  CPSHARD_RETURN_IF_ERROR(AddDocuments(summary, panel));
  AddFigures(summary, panel);
  panel.pads_not_drawn = summary.totals->tokens.pad - PadsDrawn(panel);
  return panel;
}

std::vector<Bar> BarsOf(const Panel& panel, size_t max_bars, int64_t* left) {
  std::vector<Bar> bars;
  *left = panel.rows * static_cast<int64_t>(panel.chunks.size());
  for (size_t chunk = 0; chunk < panel.chunks.size(); ++chunk) {
    const RowsDocuments& rows = panel.documents[chunk];
    for (int64_t row = 0; row < panel.rows && bars.size() < max_bars;) {
      Bar bar{.chunk = chunk, .first = row, .last = row};
      while (bar.last + 1 < panel.rows && rows[bar.last + 1] == rows[row]) ++bar.last;
      bar.label = LabelOf(panel, bar);
      *left -= bar.last + 1 - row;
      row = bar.last + 1;
      bars.push_back(std::move(bar));
    }
  }
  return bars;
}

std::vector<DocumentSpan> FlattenedRows(const Panel& panel) {
  std::vector<DocumentSpan> spans;
  if (!panel.flattened_from || panel.flattened_from->rows < 2) return spans;
  const int64_t columns = panel.flattened_from->columns;
  for (int64_t row = 0; row < panel.flattened_from->rows; ++row) {
    spans.push_back({row * columns, columns, columns});
  }
  return spans;
}

std::string Describe(const Panel& panel) {
  std::string text = absl::StrCat(Count(panel.num_ranks, "rank", "ranks"), ", ");
  const std::string columns = Count(panel.columns, "column", "columns");
  if (panel.chunks.size() > 1) {
    absl::StrAppend(&text, panel.chunks.size(), " chunks of ", columns);
  } else if (const auto& rows = panel.flattened_from; rows && rows->columns != panel.columns) {
    absl::StrAppend(&text, Count(rows->rows, "row", "rows"), " of ", Grouped(rows->columns),
                    " as one stream of ", columns);
  } else {
    absl::StrAppend(&text, Count(panel.rows, "row", "rows"), " of ", columns);
  }
  if (panel.documents_from.empty()) return absl::StrCat(text, ", documents not known");
  return absl::StrCat(text, ", ", Count(panel.num_documents, "document", "documents"), " (by ",
                      panel.documents_from, ")");
}

std::string DescribeArea(const Panel& panel) {
  return panel.documents_from.empty() ? "causal, whole rows" : "causal, per document";
}

std::vector<std::string> DescribeGaps(const Panel& panel) {
  std::vector<std::string> gaps;
  if (panel.documents_left_out) {
    gaps.push_back("the documents did not fit the reply and are not drawn");
  }
  if (panel.pads_not_drawn > 0) {
    gaps.push_back(absl::StrCat(Count(panel.pads_not_drawn, "column", "columns"),
                                " of padding (by a mask) not drawn as such"));
  }
  return gaps;
}

std::string Grouped(int64_t number) {
  std::string text = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t end = text.size(); end > first + 3;) {
    end -= 3;
    text.insert(end, ",");
  }
  return text;
}

}  // namespace cpshard::draw
