#include "core/plan/documents.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"

namespace cpshard {
namespace {

using Spans = std::vector<DocumentSpan>;

constexpr absl::string_view kIds = "_packed_seq_ids";
constexpr absl::string_view kMask = "attention_mask";
constexpr absl::string_view kPositions = "position_ids";

// The caller's rows, before they were flattened or placed.
struct SourceRows {
  int64_t rows = 0, columns = 0;
};

SourceRows SourceRowsOf(const LayoutPlan& layout) {
  if (!layout.flattened_from) return {layout.rows, layout.source_len};
  const int64_t columns = layout.flattened_from->columns;
  return {columns == 0 ? 0 : layout.source_len / columns, columns};
}

// How many rows the stream has: all, or one that stands for every row; nullopt: another shape. Of
// three axes the first index counts.
std::optional<int64_t> RowsIn(absl::string_view name, std::vector<int64_t> dims,
                              const SourceRows& source) {
  const bool positions = name == kPositions;
  if (dims.size() == 3 && positions && dims[0] > 0) dims.erase(dims.begin());
  if (dims.size() == 1 && name != kMask) dims.insert(dims.begin(), 1);
  if (dims.size() != 2 || dims[1] != source.columns) return std::nullopt;
  if (dims[0] == source.rows || (dims[0] == 1 && positions)) return dims[0];
  return std::nullopt;
}

// Columns [begin, end) of a row are a document.
void AddSpan(int64_t begin, int64_t end, Spans& spans) {
  spans.push_back({begin, end - begin, end - begin});
}

// Calls at(column, value) for the first column of the row and for those whose `breaks(before,
// value)` is not 0; ends where it returns false. `first` is the element of the first column. Few
// columns of a row begin anything, so that they are asked some at a time, without a branch.
template <typename Breaks, typename At>
void ForEachBegin(const ValueView& view, int64_t first, int64_t columns, Breaks breaks, At at) {
  constexpr int64_t kBlock = 256, kGroup = 16;
  std::array<int64_t, kBlock + 1> values{};  // a block behind the column before it
  for (int64_t block = 0; block < columns; block += kBlock) {
    const int64_t count = std::min(kBlock, columns - block);
    values[0] = values[kBlock];
    view.Read(first + block, count, values.data() + 1);
    for (int64_t group = 0; group < count; group += kGroup) {
      uint64_t any = block + group == 0 ? 1 : 0;
      for (int64_t i = 0; i < kGroup; ++i) {
        any |= breaks(values[group + i], values[group + i + 1]);
      }
      if (any == 0) continue;
      for (int64_t i = group; i < std::min(group + kGroup, count); ++i) {
        const bool begins = block + i == 0 || breaks(values[i], values[i + 1]) != 0;
        if (begins && !at(block + i, values[i + 1])) return;
      }
    }
  }
}

// What a row tells: its documents, as long as they are no more than `most` or may be so when the
// last turns out to be padding.
struct Row {
  int64_t most = 0;
  Spans spans;
  bool Add(int64_t begin, int64_t end) {
    AddSpan(begin, end, spans);
    return static_cast<int64_t>(spans.size()) <= most + 1;
  }
};

// The documents of a row of ids: columns of the same id side by side. Returns the largest id.
int64_t ReadIds(const ValueView& ids, int64_t first, int64_t columns, Row& row) {
  int64_t begin = 0, id = 0, largest = 0;
  const auto differs = [](int64_t before, int64_t value) {
    return static_cast<uint64_t>(before ^ value);
  };
  ForEachBegin(ids, first, columns, differs, [&](int64_t column, int64_t value) {
    const bool few = id <= 0 || row.Add(begin, column);
    begin = column;
    id = value;
    largest = std::max(largest, id);
    return few;
  });
  if (id > 0) row.Add(begin, columns);
  return largest;
}

void ReadAxisOfThree(const ValueView& positions, int64_t first, int64_t columns, Row& row) {
  int64_t begin = 0;
  const auto falls = [](int64_t before, int64_t value) { return uint64_t{value < before}; };
  ForEachBegin(positions, first, columns, falls, [&](int64_t column, int64_t) {
    return column == 0 || row.Add(std::exchange(begin, column), column);
  });
  row.Add(begin, columns);
}

// Documents of one token, side by side at the same position, are padding.
class PositionsOfRow {
 public:
  explicit PositionsOfRow(Row& row) : row_(row) {}

  // The next document begins at `column`, or the row ends there. False: they are too many.
  bool Begin(int64_t column, int64_t position) {
    const bool few = column == 0 || Close(column);
    begin_ = column;
    position_ = position;
    return few;
  }

 private:
  bool Close(int64_t end) {
    const bool one = end - begin_ == 1;
    const bool stands = one && begin_ == one_end_ && position_ == one_position_;
    if (stands && !standing_) row_.spans.pop_back();
    standing_ = stands;
    if (one) {
      one_end_ = end;
      one_position_ = position_;
    }
    return stands || row_.Add(begin_, end);
  }

  Row& row_;
  int64_t begin_ = 0, position_ = 0;         // of the document that has begun
  int64_t one_end_ = -1, one_position_ = 0;  // of the last of one token
  bool standing_ = false;                    // it is padding
};

void ReadPositions(const ValueView& positions, int64_t first, int64_t columns, Row& row) {
  PositionsOfRow read(row);
  const auto jumps = [](int64_t before, int64_t position) {
    const uint64_t step = static_cast<uint64_t>(position) - static_cast<uint64_t>(before);
    return (step - 1) | static_cast<uint64_t>(~before & position & INT64_MIN);  // beyond INT64_MAX
  };
  ForEachBegin(positions, first, columns, jumps,
               [&](int64_t column, int64_t position) { return read.Begin(column, position); });
  read.Begin(columns, 0);
  if (row.spans.empty()) row.Add(0, columns);
}

// Row `row` behind the others. As long as all are alike, one stands for them.
void AddRow(int64_t row, const Spans& spans, RowsDocuments& documents) {
  const bool alike = documents.size() == 1;
  if (alike && spans == documents.front()) return;
  if (alike) documents.resize(row, Spans(documents.front()));
  documents.push_back(spans);
}

// By source columns, an entry for each row that the stream has, or one; nullopt: it does not tell.
std::optional<RowsDocuments> Read(absl::string_view name, const ValueView& view,
                                  const SourceRows& source) {
  const std::optional<int64_t> rows = RowsIn(name, view.dims(), source);
  if (!rows || source.columns == 0) return std::nullopt;
  const bool positions = name == kPositions;
  int64_t most = *rows < source.rows ? kMaxDocuments / source.rows : kMaxDocuments;
  if (positions) most = std::min(most, *rows + *rows * source.columns / 2);
  RowsDocuments documents;
  Row row;
  int64_t largest = 0;
  for (int64_t i = 0; i < *rows; ++i) {
    const int64_t first = i * source.columns;
    row.most = most;
    row.spans.clear();
    if (!positions) {
      largest = std::max(largest, ReadIds(view, first, source.columns, row));
    } else if (view.dims().size() == 3) {
      ReadAxisOfThree(view, first, source.columns, row);
    } else {
      ReadPositions(view, first, source.columns, row);
    }
    most -= std::max<int64_t>(1, static_cast<int64_t>(row.spans.size()));
    if (most < 0) return std::nullopt;
    AddRow(i, row.spans, documents);
  }
  if (name == kMask && largest <= 1) return std::nullopt;  // an ordinary mask
  return documents;
}

// Of all rows as one stream, `source.rows` * `source.columns` columns.
Spans Flattened(const RowsDocuments& documents, const SourceRows& source) {
  Spans flat;
  for (int64_t row = 0; row < source.rows; ++row) {
    for (DocumentSpan span : documents[documents.size() == 1 ? 0 : row]) {
      span.begin += row * source.columns;
      flat.push_back(span);
    }
  }
  return flat;
}

// Documents on source columns, as they stand on padded ones.
Spans Placed(const Spans& documents, const IndexMap& placement) {
  Spans placed;
  for (size_t i = 0; i < placement.runs().size(); ++i) {
    const Run& run = placement.runs()[i];
    if (run.source == kFill) continue;
    const int64_t end = run.source + run.length;
    auto document = std::lower_bound(documents.begin(), documents.end(), run.source,
                                     [](const DocumentSpan& span, int64_t column) {
                                       return span.begin + span.length <= column;
                                     });
    for (; document != documents.end() && document->begin < end; ++document) {
      const int64_t from = std::max(document->begin, run.source);
      const int64_t to = std::min(document->begin + document->length, end);
      const int64_t shift = placement.starts()[i] - run.source;
      AddSpan(from + shift, to + shift, placed);
    }
  }
  return placed;
}

RowsDocuments PlacedRows(const RowsDocuments& documents, const LayoutPlan& layout) {
  RowsDocuments rows;
  const bool alike = documents.size() == 1 && layout.placement.size() == 1;
  for (int64_t row = 0; row < (alike ? 1 : layout.rows); ++row) {
    rows.push_back(Placed(documents[documents.size() == 1 ? 0 : row], layout.PlacementOf(row)));
  }
  return rows;
}

bool StatesDocuments(const ShardPlan& plan) {
  return !plan.chunks.empty() &&
         std::all_of(plan.chunks.begin(), plan.chunks.end(),
                     [](const LayoutPlan& layout) { return !layout.documents.empty(); });
}

bool StatesTooMany(const ShardPlan& plan) {
  int64_t left = kMaxDocuments;
  for (const LayoutPlan& layout : plan.chunks) {
    const bool alike = layout.documents.size() == 1;
    for (const Spans& row : layout.documents) {
      const auto spans = static_cast<int64_t>(row.size());
      if (spans > 0 && alike && layout.rows > left / spans) return true;
      left -= alike ? spans * layout.rows : spans;
      if (left < 0) return true;
    }
  }
  return false;
}

}  // namespace

Documents DocumentsOf(const ShardPlan& plan, const BatchSpec& spec, const PlanValues& values) {
  Documents documents;
  if (StatesDocuments(plan)) {
    if (StatesTooMany(plan)) return WholeRows(plan);
    for (const LayoutPlan& layout : plan.chunks) documents.chunks.push_back(layout.documents);
    documents.from = "lengths";
    return documents;
  }
  if (plan.chunks.empty()) return documents;
  for (const std::string& name : DocumentsNeeds(spec)) {
    const auto view = values.find(name);
    if (view == values.end()) continue;
    const SourceRows source = SourceRowsOf(plan.chunks.front());
    std::optional<RowsDocuments> read = Read(name, view->second, source);
    if (!read) continue;
    if (plan.chunks.front().flattened_from) read = RowsDocuments{Flattened(*read, source)};
    for (const LayoutPlan& layout : plan.chunks) {
      documents.chunks.push_back(PlacedRows(*read, layout));
    }
    documents.from = name;
    return documents;
  }
  return WholeRows(plan);
}

Documents WholeRows(const ShardPlan& plan) {
  Documents whole;
  for (const LayoutPlan& layout : plan.chunks) {
    RowsDocuments& rows = whole.chunks.emplace_back();
    for (const IndexMap& placement : layout.placement) {
      int64_t real = 0;
      for (const Run& run : placement.runs()) real += run.source == kFill ? 0 : run.length;
      rows.push_back({{0, real, layout.padded_len}});
    }
  }
  return whole;
}

std::vector<std::string> DocumentsNeeds(const BatchSpec& spec) {
  std::vector<std::string> needs;
  for (absl::string_view name : {kIds, kMask, kPositions}) {
    const TensorSpec* tensor = spec.FindTensor(name);
    const bool tells = tensor != nullptr && IsInteger(tensor->dtype) &&
                       (name != kMask || tensor->dims.size() == 2);
    if (tells) needs.emplace_back(name);
  }
  return needs;
}

}  // namespace cpshard
