#include "core/plan/totals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/plan/token_bits.h"

namespace cpshard {
namespace {

// Calls visit(source, length) for the source columns that [begin, begin + length) is made of.
template <typename Visit>
void ForEachSource(const IndexMap& placement, int64_t begin, int64_t length, Visit visit) {
  if (length == 0) return;
  for (size_t i = placement.RunAt(begin); length > 0; ++i) {
    const Run& run = placement.runs()[i];
    const int64_t skipped = begin - placement.starts()[i];
    const int64_t take = std::min(length, run.length - skipped);
    if (run.source != kFill) visit(run.source + skipped, take);
    begin += take;
    length -= take;
  }
}

// [B, S] of the batch whose rows these are, as they came; of one row [S].
bool IsOfRows(const std::vector<int64_t>& dims, const LayoutPlan& layout) {
  RowShape rows{layout.rows, layout.source_len};
  if (layout.flattened_from) {
    rows.columns = layout.flattened_from->columns;
    rows.rows = rows.columns == 0 ? 0 : layout.source_len / rows.columns;
  }
  if (dims.size() == 1) return rows.rows == 1 && dims[0] == rows.columns;
  return dims.size() == 2 && dims[0] == rows.rows && dims[1] == rows.columns;
}

// A stream of values at hand, one per token; nullptr where there is none. Plans without a layout
// have no rows: two axes will do.
const ValueView* TokenValues(absl::string_view name, const ShardPlan& plan,
                             const PlanValues& values) {
  const auto found = values.find(name);
  if (found == values.end()) return nullptr;
  const std::vector<int64_t>& dims = found->second.dims();
  const bool fits = plan.chunks.empty() ? dims.size() == 2 : IsOfRows(dims, plan.chunks.front());
  return fits ? &found->second : nullptr;
}

// --- which tokens are padding --------------------------------------------------------------------

// A value per token, in the caller's memory or in its own.
struct MaskValues {
  ValueView view;
  std::vector<std::byte> own;
};

// [B, H, Q, K] -> [B, min(Q, K)], as ViewOf::How::kHeadZeroDiagonal.
MaskValues HeadZeroDiagonal(const ValueView& mask) {
  const std::vector<int64_t>& dims = mask.dims();
  const int64_t tokens = std::min(dims[2], dims[3]), item = ItemSize(mask.dtype());
  MaskValues diagonal;
  diagonal.own.resize(dims[0] * tokens * item);
  for (int64_t i = 0; i < dims[0] * tokens; ++i) {
    const int64_t row = i / tokens, token = i % tokens;
    const int64_t from = row * dims[1] * dims[2] * dims[3] + token * (dims[3] + 1);
    std::memcpy(diagonal.own.data() + i * item, mask.data() + from * item, item);
  }
  diagonal.view = ValueView(mask.dtype(), {dims[0], tokens}, diagonal.own.data());
  return diagonal;
}

std::optional<MaskValues> ValuesOfMask(absl::string_view name, const ShardPlan& plan,
                                       const PlanValues& values) {
  if (const ValueView* tokens = TokenValues(name, plan, values)) return MaskValues{*tokens, {}};
  const auto found = values.find(name);
  if (found == values.end() || found->second.dims().size() != 4) return std::nullopt;
  const std::vector<int64_t>& dims = found->second.dims();
  if (dims[1] == 0 || !IsOfRows({dims[0], std::min(dims[2], dims[3])}, plan.chunks.front())) {
    return std::nullopt;
  }
  return HeadZeroDiagonal(found->second);
}

// How a batch's own mask says that a token is none; nullopt: that is not agreed on (contract 2.5).
std::optional<Op> PaddingOp(const TensorSpec& mask) {
  if (mask.name == "padding_mask") return Op::kNotZero;
  if (mask.dims.size() != 4 || mask.dtype == DType::kBool) return Op::kIsZero;
  return IsFloating(mask.dtype) ? std::optional(Op::kNotZero) : std::nullopt;
}

// A value of a mask, cast as the layout casts it.
template <typename T>
T CastAs(DType dtype, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::trunc(value);
  } else {
    return dtype == DType::kI32 ? static_cast<int32_t>(value) : value;
  }
}

TokenBits PaddingByValue(const ValueView& mask, Op op, std::optional<DType> cast) {
  if (op == Op::kNotPositive) {
    const DType dtype = cast.value_or(mask.dtype());
    return TokenBits::Of(mask, [=](auto id) { return !(CastAs(dtype, id) > 0); });
  }
  if (op == Op::kIsZero && cast) {
    return TokenBits::Of(mask, [dtype = *cast](auto id) { return CastAs(dtype, id) == 0; });
  }
  if (op == Op::kIsZero) return TokenBits::Of(mask, [](auto value) { return value == 0; });
  return TokenBits::Of(mask, [](auto value) { return value != 0; });  // a padding_mask
}

// A mask that the layout makes of lengths.
std::optional<TokenBits> PaddingBySegments(const Generated& mask, const LayoutPlan& layout) {
  const auto any = [](const std::vector<Segment>& row) {
    return std::any_of(row.begin(), row.end(), [](const Segment& s) { return s.start != 0; });
  };
  // Over padded columns the documents say the same.
  if (mask.over_padded_columns || std::none_of(mask.rows.begin(), mask.rows.end(), any)) {
    return std::nullopt;
  }
  TokenBits padding(layout.rows * layout.source_len);
  const bool all = mask.rows.size() == 1 && mask.rows.front().size() == 1;
  if (all) padding.Set(0, padding.size());
  for (int64_t row = 0; !all && row < layout.rows; ++row) {
    int64_t at = row * layout.source_len;
    for (const Segment& segment : mask.rows[mask.rows.size() == 1 ? 0 : row]) {
      if (segment.start != 0) padding.Set(at, at + segment.length);
      at += segment.length;
    }
  }
  padding.CountUp();
  return padding;
}

// What a mask says: the one that the ranks are given, of whatever the layout makes it; else the
// batch's, unless the layout goes by lengths and leaves it out.
std::optional<TokenBits> PaddingOfMask(const ShardPlan& plan, const Documents& documents,
                                       const BatchSpec& spec, const PlanValues& values) {
  absl::string_view source = spec.Has("padding_mask") ? "padding_mask" : "attention_mask";
  std::optional<Op> op;
  if (const TensorSpec* own = spec.FindTensor(source)) op = PaddingOp(*own);
  std::optional<DType> cast;
  const auto given = std::find_if(plan.streams.begin(), plan.streams.end(),
                                  [](const StreamPlan& s) { return s.name == "padding_mask"; });
  if (given != plan.streams.end()) {
    if (const Generated* made = std::get_if<Generated>(&given->value.from)) {
      return PaddingBySegments(*made, plan.chunks.front());
    }
    const ViewOf* view = std::get_if<ViewOf>(&given->value.from);
    if (view == nullptr) return std::nullopt;
    source = view->source;
    op = given->value.op;
    cast = given->value.cast;
  } else if (documents.from == "lengths") {
    return std::nullopt;
  }
  const std::optional<MaskValues> mask = ValuesOfMask(source, plan, values);
  if (!op || !mask) return std::nullopt;
  return PaddingByValue(mask->view, *op, cast);
}

// --- counting ------------------------------------------------------------------------------------

// What is known of every token of the batch, rows one after the other; by it what columns hold is
// counted in the time of their runs.
class Tokens {
 public:
  Tokens(const ShardPlan& plan, const Documents& documents, const BatchSpec& spec,
         const PlanValues& values) {
    if (const ValueView* labels = TokenValues("labels", plan, values);
        labels != nullptr && !IsFloating(labels->dtype())) {
      columns_ = labels->dims().back();
      supervised_ = TokenBits::Of(*labels, [](auto label) { return label != kIgnoredLabel; });
    }
    if (plan.chunks.empty()) return;
    padding_ = PaddingOfMask(plan, documents, spec, values);
    if (!documents.from.empty()) MarkOutside(plan, documents);
  }

  const std::optional<TokenBits>& supervised() const { return supervised_; }

  TokenCounts None() const {
    return {0, 0, supervised_ ? std::optional<int64_t>(0) : std::nullopt};
  }

  // Padded columns [begin, begin + length) of the rows first ... last - 1, which are placed alike.
  void AddColumns(const LayoutPlan& layout, int64_t first, int64_t last, int64_t begin,
                  int64_t length, TokenCounts& counts) const {
    if (first == last || length == 0) return;
    const int64_t real = counts.real;
    ForEachSource(layout.PlacementOf(first), begin, length, [&](int64_t source, int64_t take) {
      AddTokens(layout, first, last, source, take, counts);
    });
    counts.pad += (last - first) * length - (counts.real - real);
  }

  // Those of all rows.
  void AddRows(const LayoutPlan& layout, int64_t begin, int64_t length, TokenCounts& counts) const {
    if (layout.placement.size() == 1) {
      return AddColumns(layout, 0, layout.rows, begin, length, counts);
    }
    for (int64_t row = 0; row < layout.rows; ++row) {
      AddColumns(layout, row, row + 1, begin, length, counts);
    }
  }

  // Tokens of all rows but for those that each row's trailing run of ignored labels has.
  int64_t ExclTailPad() const {
    int64_t tokens = 0;
    for (int64_t begin = 0; columns_ > 0 && begin < supervised_->size(); begin += columns_) {
      tokens += supervised_->EndOfSet(begin, begin + columns_) - begin;
    }
    return tokens;
  }

 private:
  // Tokens [source, source + length) of the rows first ... last - 1.
  void AddTokens(const LayoutPlan& layout, int64_t first, int64_t last, int64_t source,
                 int64_t length, TokenCounts& counts) const {
    counts.real += (last - first) * length;
    if (!padding_ && !supervised_) return;
    const bool whole = length == layout.source_len;  // rows stand one behind the other
    const int64_t times = whole ? 1 : last - first;
    const int64_t take = whole ? (last - first) * length : length;
    for (int64_t i = 0; i < times; ++i) {
      const int64_t begin = (first + i) * layout.source_len + source;
      if (padding_) counts.real -= padding_->Count(begin, begin + take);
      if (supervised_) *counts.supervised += supervised_->Count(begin, begin + take);
    }
  }

  // Padding inside documents and between them.
  void MarkOutside(const ShardPlan& plan, const Documents& documents) {
    for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
      const LayoutPlan& layout = plan.chunks[chunk];
      if (layout.padded_len == 0) continue;  // of however many rows
      const RowsDocuments& told = documents.chunks[chunk];
      if (layout.rows > 1 && told.size() == 1 && told.front().empty()) {
        MarkTokens(layout, 0, layout.rows * layout.source_len);
        continue;
      }
      for (int64_t row = 0; row < layout.rows; ++row) {
        int64_t at = 0;
        for (const DocumentSpan& document : documents.Of(chunk, row)) {
          Mark(layout, row, at, document.begin);
          at = document.begin + document.real;
        }
        Mark(layout, row, at, layout.padded_len);
      }
    }
    if (padding_) padding_->CountUp();
  }

  void Mark(const LayoutPlan& layout, int64_t row, int64_t begin, int64_t end) {
    ForEachSource(layout.PlacementOf(row), begin, end - begin, [&](int64_t source, int64_t take) {
      const int64_t token = row * layout.source_len + source;
      MarkTokens(layout, token, token + take);
    });
  }

  void MarkTokens(const LayoutPlan& layout, int64_t begin, int64_t end) {
    if (!padding_) padding_.emplace(layout.rows * layout.source_len);
    padding_->Set(begin, end);
  }

  std::optional<TokenBits> supervised_, padding_;  // absent: not known; none
  int64_t columns_ = 0;                            // of a row of labels
};

int64_t NumDocuments(const RowsDocuments& rows, int64_t num_rows) {
  int64_t count = 0;
  for (const std::vector<DocumentSpan>& row : rows) count += static_cast<int64_t>(row.size());
  return rows.size() == 1 ? count * num_rows : count;
}

void AddDocuments(const LayoutPlan& layout, int64_t chunk, const Documents& documents,
                  const Tokens& tokens, Totals& totals) {
  const RowsDocuments& rows = documents.chunks[chunk];
  if (rows.size() == 1 && rows.front().empty()) return;  // of however many rows
  totals.documents.reserve(totals.documents.size() + NumDocuments(rows, layout.rows));
  for (int64_t row = 0; row < layout.rows; ++row) {
    for (const DocumentSpan& span : documents.Of(chunk, row)) {
      DocumentCounts counts{chunk, row, span, tokens.None()};
      tokens.AddColumns(layout, row, row + 1, span.begin, span.length, counts.tokens);
      totals.documents.push_back(counts);
    }
  }
}

void AddTo(TokenCounts& sum, const TokenCounts& counts) {
  sum.real += counts.real;
  sum.pad += counts.pad;
  if (sum.supervised) *sum.supervised += *counts.supervised;
}

void AddChunk(const LayoutPlan& layout, const Tokens& tokens, Totals& totals) {
  tokens.AddRows(layout, 0, layout.padded_len, totals.batch);
  TokenCounts counts;
  for (size_t rank = 0; rank < layout.partition.size(); ++rank) {
    // Where every rank holds all columns, they are counted once.
    if (rank == 0 || layout.partition[rank] != layout.partition[rank - 1]) {
      counts = tokens.None();
      for (const Run& run : layout.partition[rank].runs()) {
        tokens.AddRows(layout, run.source, run.length, counts);
      }
    }
    AddTo(totals.ranks[rank], counts);
  }
}

}  // namespace

std::vector<int64_t> Totals::unsupervised_ranks() const {
  std::vector<int64_t> found;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const TokenCounts& counts = ranks[rank];
    if (counts.real + counts.pad > 0 && counts.supervised == 0) {
      found.push_back(static_cast<int64_t>(rank));
    }
  }
  return found;
}

Totals TotalsOf(const ShardPlan& plan, const Documents& documents, const BatchSpec& spec,
                const PlanValues& values, Detail detail) {
  const Tokens tokens(plan, documents, spec, values);
  Totals totals;
  if (tokens.supervised()) {
    totals.num_label_tokens = tokens.supervised()->Count(0, tokens.supervised()->size());
    totals.num_tokens_excl_tail_pad = tokens.ExclTailPad();
  }
  if (plan.chunks.empty()) return totals;
  totals.batch = tokens.None();
  totals.ranks.assign(plan.num_ranks(), tokens.None());
  for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    const LayoutPlan& layout = plan.chunks[chunk];
    AddChunk(layout, tokens, totals);
    if (documents.from.empty()) continue;
    totals.num_documents += NumDocuments(documents.chunks[chunk], layout.rows);
    if (detail == Detail::kDocuments) {
      AddDocuments(layout, static_cast<int64_t>(chunk), documents, tokens, totals);
    }
  }
  return totals;
}

std::vector<std::string> TotalsNeeds(const BatchSpec& spec) {
  std::vector<std::string> needs;
  for (absl::string_view name : {"labels", "padding_mask", "attention_mask"}) {
    const TensorSpec* tensor = spec.FindTensor(name);
    if (tensor == nullptr || tensor->dims.empty()) continue;
    if (tensor->dims.size() > 2 && (name != "attention_mask" || tensor->dims.size() != 4)) continue;
    if (name == "labels" && IsFloating(tensor->dtype)) continue;
    needs.emplace_back(name);
  }
  return needs;
}

}  // namespace cpshard
