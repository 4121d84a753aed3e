#include "core/plan/explain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Above every column count, and far enough below int64's end to add two of them.
constexpr int64_t kMaxColumns = int64_t{1} << 60;

// value is one of 0 ... count-1, or the message says what there is.
absl::Status CheckRange(absl::string_view what, int64_t value, int64_t count,
                        absl::string_view owner) {
  if (value >= 0 && value < count) return absl::OkStatus();
  const std::string range = count == 0 ? "there are none" : absl::StrCat("give 0 ... ", count - 1);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no ", what, " ", value, " in ", owner, "; ", range));
}

absl::Status CheckSameBatch(const ShardLayout& a, const ShardLayout& b) {
  if (a.cp_size == b.cp_size && a.batch_digest == b.batch_digest &&
      a.padded_seq_len == b.padded_seq_len && a.original_seq_len == b.original_seq_len &&
      a.input_row_shape == b.input_row_shape &&
      a.input_token_stream_positions == b.input_token_stream_positions) {
    return absl::OkStatus();
  }
  const auto length = [](std::optional<int64_t> value) {
    return value ? absl::StrCat(*value) : std::string("none");
  };
  return absl::FailedPreconditionError(absl::StrCat(
      "the layouts of ranks ", a.cp_rank, " and ", b.cp_rank, " are not of one batch: cp_size ",
      a.cp_size, " and ", b.cp_size, ", digest ", a.batch_digest, " and ", b.batch_digest,
      ", original_seq_len ", length(a.original_seq_len), " and ", length(b.original_seq_len),
      ", padded_seq_len ", length(a.padded_seq_len), " and ", length(b.padded_seq_len)));
}

absl::Status CheckRecords(absl::Span<const ShardLayout> records) {
  if (records.empty()) return absl::FailedPreconditionError("there is no layout to explain");
  std::map<int64_t, bool> seen;
  bool cut = false;
  for (const ShardLayout& record : records) {
    CPSHARD_RETURN_IF_ERROR(CheckSameBatch(records.front(), record));
    if (record.cp_rank < 0 || record.cp_rank >= record.cp_size) {
      return absl::FailedPreconditionError(absl::StrCat("the layout of rank ", record.cp_rank,
                                                        " is of a group of ", record.cp_size));
    }
    if (std::exchange(seen[record.cp_rank], true)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the layout of rank ", record.cp_rank, " is there twice"));
    }
    cut = cut || !record.runs.empty() || record.padded_seq_len;
  }
  if (cut) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the ranks report no layout: nothing was cut, so there is nothing to explain");
}

absl::StatusOr<IndexMap> ColumnsOfRecord(const ShardLayout& record) {
  absl::StatusOr<IndexMap> columns = IndexMap::FromRuns(record.runs, kMaxColumns);
  if (!columns.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout of rank ", record.cp_rank, ": ", columns.status().message()));
  }
  return columns;
}

// Padded columns of a row of a chunk. Of stacked chunks nothing is reported, but all ranks have
// equally many slots there (contract 5.6), so one of them tells.
absl::StatusOr<int64_t> PaddedLenOf(absl::Span<const ShardLayout> records,
                                    absl::Span<const IndexMap> maps,
                                    LayoutTrace::StreamShape shape) {
  const ShardLayout& first = records.front();
  if (first.padded_seq_len) {
    const int64_t padded = *first.padded_seq_len;
    if (shape.chunks == 1 && padded >= 0 && padded <= kMaxColumns) return padded;
    return absl::FailedPreconditionError(absl::StrCat(
        "padded_seq_len ", padded, " does not go with streams of ", shape.chunks, " chunks"));
  }
  int64_t total = 0;
  const bool complete = static_cast<int64_t>(records.size()) == first.cp_size;
  for (const IndexMap& map : maps) total += map.size();
  if (!complete && __builtin_mul_overflow(maps[0].size(), first.cp_size, &total)) total = -1;
  if (total >= 0 && total <= kMaxColumns && total % shape.chunks == 0) {
    return total / shape.chunks;
  }
  return absl::FailedPreconditionError(absl::StrCat("the ", total, " slots of ", first.cp_size,
                                                    " ranks are not ", shape.chunks, " chunks"));
}

// The first slot of a chunk that holds a column of another; nullopt: none does.
std::optional<int64_t> StraySlot(const IndexMap& columns, int64_t chunks, int64_t padded_len) {
  const int64_t local_len = columns.size() / chunks;
  for (size_t i = 0; i < columns.runs().size(); ++i) {
    const Run& run = columns.runs()[i];
    const int64_t begin = columns.starts()[i], end = begin + run.length;
    for (int64_t slot = begin, stop; slot < end; slot = stop) {
      const int64_t chunk = slot / local_len;
      stop = std::min(end, (chunk + 1) * local_len);
      const int64_t first = run.source + (slot - begin), behind = first + (stop - slot);
      if (first < chunk * padded_len) return slot;
      if (behind > (chunk + 1) * padded_len) {
        return slot + std::max<int64_t>(0, (chunk + 1) * padded_len - first);
      }
    }
  }
  return std::nullopt;
}

// Every column is held once, or each rank holds all of them (contract section 15). Of some ranks
// only what two of them hold can be told.
absl::Status CheckCover(absl::Span<const ShardLayout> records, absl::Span<const IndexMap> maps,
                        int64_t columns) {
  if (std::all_of(maps.begin(), maps.end(),
                  [&](const IndexMap& map) { return map.size() == columns; })) {
    return absl::OkStatus();
  }
  struct Held {
    int64_t begin, end, rank;
  };
  std::vector<Held> held;
  for (size_t i = 0; i < maps.size(); ++i) {
    for (const Run& run : maps[i].runs()) {
      held.push_back({run.source, run.source + run.length, records[i].cp_rank});
    }
  }
  std::sort(held.begin(), held.end(),
            [](const Held& a, const Held& b) { return a.begin < b.begin; });
  const bool complete = static_cast<int64_t>(records.size()) == records.front().cp_size;
  held.push_back({columns, columns, 0});
  Held last = {0, 0, 0};
  for (const Held& next : held) {
    if (next.begin < last.end) {
      return absl::FailedPreconditionError(absl::StrCat("the layouts do not make a whole: column ",
                                                        next.begin, " is in those of ranks ",
                                                        last.rank, " and ", next.rank));
    }
    if (complete && next.begin > last.end) {
      return absl::FailedPreconditionError(absl::StrCat("the layouts do not make a whole: columns ",
                                                        last.end, " ... ", next.begin - 1, " of ",
                                                        columns, " are in none of them"));
    }
    last = next;
  }
  return absl::OkStatus();
}

// The placements of rows of which the padded column of every token is known.
absl::StatusOr<std::vector<IndexMap>> PlacementsOf(const IntArray& positions, int64_t padded_len) {
  std::vector<IndexMap> placements;
  const int64_t columns = positions.shape[1];
  for (int64_t row = 0; row < positions.shape[0]; ++row) {
    IndexMap column_of_token;
    for (int64_t token = 0; token < columns; ++token) {
      const int64_t column = positions.values[row * columns + token];
      column_of_token.Append({std::max(column, kFill), 1});
    }
    absl::StatusOr<IndexMap> placement = column_of_token.Inverse(padded_len);
    if (!placement.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("input_token_stream_positions of row ", row,
                                                     ": ", placement.status().message()));
    }
    placements.push_back(*std::move(placement));
  }
  return placements;
}

bool IsShape(const IntArray& array, int64_t rows) {
  return array.shape.size() == 2 && array.shape[0] == rows && array.shape[1] >= 0 &&
         static_cast<int64_t>(array.values.size()) == Product(array.shape);
}

}  // namespace

absl::StatusOr<LayoutTrace> LayoutTrace::Of(const ShardPlan& plan) {
  if (plan.chunks.empty()) {
    return absl::FailedPreconditionError(
        "the plan reports no layout: nothing is cut, so there is nothing to explain");
  }
  const LayoutPlan& first = plan.chunks.front();
  LayoutTrace trace;
  trace.cp_size_ = plan.num_ranks();
  trace.chunks_ = static_cast<int64_t>(plan.chunks.size());
  trace.rows_ = first.rows;
  trace.padded_len_ = first.padded_len;
  trace.flattened_ = first.flattened_from.has_value();
  trace.source_ = first.flattened_from.value_or(RowShape{first.rows, first.source_len});
  if (trace.flattened_) trace.source_.rows *= trace.chunks_;
  for (const LayoutPlan& chunk : plan.chunks) trace.placement_.push_back(chunk.placement);
  for (int64_t rank = 0; rank < trace.cp_size_; ++rank) {
    IndexMap columns;
    int64_t offset = 0;
    for (const LayoutPlan& chunk : plan.chunks) {
      for (const Run& run : chunk.partition[rank].runs()) {
        columns.Append({run.source + offset, run.length});
      }
      offset += chunk.padded_len;
    }
    CPSHARD_RETURN_IF_ERROR(trace.AddRank(rank, std::move(columns)));
  }
  return trace;
}

absl::StatusOr<LayoutTrace> LayoutTrace::Of(absl::Span<const ShardLayout> records,
                                            StreamShape shape) {
  CPSHARD_RETURN_IF_ERROR(CheckRecords(records));
  if (shape.rows < 0 || shape.chunks < 1 || (shape.chunks > 1 && shape.rows != 1)) {
    return absl::FailedPreconditionError(absl::StrCat("streams of ", shape.rows, " rows in ",
                                                      shape.chunks, " chunks have no layout"));
  }
  std::vector<IndexMap> maps;
  for (const ShardLayout& record : records) {
    CPSHARD_ASSIGN_OR_RETURN(IndexMap columns, ColumnsOfRecord(record));
    maps.push_back(std::move(columns));
  }
  LayoutTrace trace;
  trace.cp_size_ = records.front().cp_size;
  trace.chunks_ = shape.chunks;
  trace.rows_ = shape.rows;
  CPSHARD_ASSIGN_OR_RETURN(trace.padded_len_, PaddedLenOf(records, maps, shape));
  CPSHARD_RETURN_IF_ERROR(trace.Place(records.front()));
  for (size_t i = 0; i < records.size(); ++i) {
    CPSHARD_RETURN_IF_ERROR(trace.AddRank(records[i].cp_rank, maps[i]));
  }
  CPSHARD_RETURN_IF_ERROR(CheckCover(records, maps, trace.chunks_ * trace.padded_len_));
  return trace;
}

absl::Status LayoutTrace::AddRank(int64_t rank, IndexMap columns) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the layout of rank ", rank, ": ", why));
  };
  for (const Run& run : columns.runs()) {
    if (run.source == kFill) return refuse("a run has no columns");
  }
  if (columns.size() % chunks_ != 0) {
    return refuse(absl::StrCat(columns.size(), " slots are not ", chunks_, " chunks"));
  }
  absl::StatusOr<IndexMap> slots = columns.Inverse(chunks_ * padded_len_);
  if (!slots.ok()) return refuse(slots.status().message());
  if (const std::optional<int64_t> slot = StraySlot(columns, chunks_, padded_len_)) {
    return refuse(absl::StrCat("slot ", *slot, " is of chunk ", *slot / (columns.size() / chunks_),
                               ", its column ", columns.At(*slot), " of chunk ",
                               columns.At(*slot) / padded_len_));
  }
  ranks_[rank] = {std::move(columns), *std::move(slots)};
  return absl::OkStatus();
}

// Where the tokens stand on the padded columns, as far as a record tells.
absl::Status LayoutTrace::Place(const ShardLayout& record) {
  if (record.input_token_stream_positions) {
    const IntArray& positions = *record.input_token_stream_positions;
    if (!IsShape(positions, rows_)) {
      return absl::FailedPreconditionError(
          absl::StrCat("input_token_stream_positions of shape ", DimsString(positions.shape),
                       " do not go with streams of ", rows_, " rows"));
    }
    source_ = {rows_, positions.shape[1]};
    CPSHARD_ASSIGN_OR_RETURN(std::vector<IndexMap> placements,
                             PlacementsOf(positions, padded_len_));
    placement_.push_back(std::move(placements));
    return absl::OkStatus();
  }
  if (record.input_row_shape) {
    const std::vector<int64_t>& shape = record.input_row_shape->values;
    int64_t tokens = -1;
    if (rows_ != 1 || shape.size() != 2 || shape[0] < 0 || shape[1] < 0 ||
        __builtin_mul_overflow(shape[0], shape[1], &tokens) || tokens != padded_len_) {
      return absl::FailedPreconditionError(absl::StrCat("input_row_shape ", DimsString(shape),
                                                        " does not go with ", rows_, " rows of ",
                                                        padded_len_, " columns"));
    }
    flattened_ = true;
    source_ = {shape[0], shape[1]};
    placement_.push_back({IndexMap::Identity(padded_len_)});
    return absl::OkStatus();
  }
  const int64_t real = record.original_seq_len.value_or(padded_len_);
  if (real < 0 || real > padded_len_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "original_seq_len ", real, " is not within the ", padded_len_, " padded columns"));
  }
  knows_source_ = record.original_seq_len.has_value();
  flattened_ = chunks_ > 1;
  source_ = {rows_, chunks_ * real};
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    IndexMap window;
    window.Append({chunk * real, real});
    window.Append({kFill, padded_len_ - real});
    placement_.push_back({std::move(window)});
  }
  return absl::OkStatus();
}

const IndexMap& LayoutTrace::PlacementOf(int64_t chunk, int64_t row) const {
  const std::vector<IndexMap>& rows = placement_[chunk];
  return rows[rows.size() == 1 ? 0 : row];
}

std::vector<int64_t> LayoutTrace::ranks() const {
  std::vector<int64_t> ranks;
  for (const auto& [rank, maps] : ranks_) ranks.push_back(rank);
  return ranks;
}

TokenPlace LayoutTrace::At(PaddedColumn at) const {
  TokenPlace place;
  place.padded = at;
  const int64_t source = PlacementOf(at.chunk, at.row).At(at.column);
  if (source != kFill) {
    place.source = flattened_ ? SourceToken{source / source_.columns, source % source_.columns}
                              : SourceToken{at.row, source};
  }
  for (const auto& [rank, maps] : ranks_) {
    const int64_t slot = maps.slots.At(at.chunk * padded_len_ + at.column);
    if (slot != kFill) place.held.push_back({rank, slot});
  }
  return place;
}

std::optional<PaddedColumn> LayoutTrace::ColumnOf(SourceToken token) const {
  const int64_t row = flattened_ ? 0 : token.row;
  const int64_t source = flattened_ ? token.row * source_.columns + token.token : token.token;
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const IndexMap& placement = PlacementOf(chunk, row);
    for (size_t i = 0; i < placement.runs().size(); ++i) {
      const Run& run = placement.runs()[i];
      if (run.source == kFill || source < run.source || source >= run.source + run.length) continue;
      return PaddedColumn{chunk, row, placement.starts()[i] + (source - run.source)};
    }
  }
  return std::nullopt;
}

absl::StatusOr<TokenPlace> LayoutTrace::OfToken(SourceToken token) const {
  CPSHARD_RETURN_IF_ERROR(CheckRange("row", token.row, source_.rows, "the batch"));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("token", token.token, source_.columns, absl::StrCat("row ", token.row)));
  const std::optional<PaddedColumn> column = ColumnOf(token);
  if (column) return At(*column);
  TokenPlace dropped;
  dropped.source = token;
  return dropped;
}

absl::StatusOr<TokenPlace> LayoutTrace::OfSlot(RankSlot slot, int64_t row) const {
  CPSHARD_RETURN_IF_ERROR(CheckRange("rank", slot.rank, cp_size_, "the group"));
  const auto found = ranks_.find(slot.rank);
  if (found == ranks_.end()) {
    return absl::NotFoundError(absl::StrCat("the layout of rank ", slot.rank,
                                            " is not at hand; there are those of ", ranks_.size(),
                                            " of ", cp_size_, " ranks"));
  }
  const IndexMap& columns = found->second.columns;
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("slot", slot.slot, columns.size(), absl::StrCat("rank ", slot.rank)));
  CPSHARD_RETURN_IF_ERROR(CheckRange("row", row, rows_, "the shards"));
  const int64_t column = columns.At(slot.slot);
  return At({column / padded_len_, row, column % padded_len_});
}

absl::StatusOr<TokenPlace> LayoutTrace::OfColumn(PaddedColumn column) const {
  CPSHARD_RETURN_IF_ERROR(CheckRange("chunk", column.chunk, chunks_, "the batch"));
  CPSHARD_RETURN_IF_ERROR(CheckRange("row", column.row, rows_, "the shards"));
  CPSHARD_RETURN_IF_ERROR(CheckRange("column", column.column, padded_len_, "a padded row"));
  return At(column);
}

Explanation Explain(const LayoutTrace& trace, const Documents& documents, TokenPlace place) {
  Explanation explanation{std::move(place), {}, {}, {}};
  const std::optional<PaddedColumn>& at = explanation.place.padded;
  if (!at) return explanation;
  const std::vector<DocumentSpan>& spans = documents.Of(at->chunk, at->row);
  const auto behind = std::upper_bound(
      spans.begin(), spans.end(), at->column,
      [](int64_t column, const DocumentSpan& span) { return column < span.begin; });
  if (behind == spans.begin()) return explanation;
  // An empty document has the begin of the one behind it, so the last of them is the right one.
  const auto found = std::prev(behind);
  const int64_t position = at->column - found->begin;
  if (position >= found->length) return explanation;
  explanation.document = DocumentPlace{found - spans.begin(), *found, position};
  if (explanation.document->is_padding()) return explanation;
  const auto beside = [&](int64_t column) {
    return trace.OfColumn({at->chunk, at->row, column}).value();
  };
  if (position > 0) explanation.previous = beside(at->column - 1);
  if (position + 1 < found->real) explanation.next = beside(at->column + 1);
  return explanation;
}

}  // namespace cpshard
