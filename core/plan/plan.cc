#include "core/plan/plan.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Bytes of the stream with so many columns, checked; a whole one keeps its own.
absl::StatusOr<int64_t> CheckedBytes(const StreamPlan& stream, int64_t columns) {
  int64_t bytes = ItemSize(stream.dtype);
  for (size_t i = 0; i < stream.dims.size(); ++i) {
    const bool placed = static_cast<int>(i) == stream.axis && stream.extent != Extent::kWhole;
    CPSHARD_ASSIGN_OR_RETURN(
        bytes, CheckedMultiply(bytes, placed ? columns : stream.dims[i], stream.name));
  }
  return bytes;
}

// The columns that some ranks hold.
struct Columns {
  int64_t most = 0;              // of one rank
  std::optional<int64_t> total;  // nullopt: beyond int64
};

Columns ColumnsOf(absl::Span<const LayoutPlan> layouts, absl::Span<const int64_t> ranks) {
  Columns columns{0, 0};
  for (int64_t rank : ranks) {
    const int64_t length = LocalSlots(layouts, rank);
    columns.most = std::max(columns.most, length);
    if (columns.total && __builtin_add_overflow(*columns.total, length, &*columns.total)) {
      columns.total.reset();
    }
  }
  return columns;
}

// Bytes of a stream that is cut, of all ranks together. What is beyond int64 for any rank is so for
// the one that holds most.
absl::StatusOr<int64_t> CheckedLocalBytes(const StreamPlan& stream, const Columns& columns) {
  CPSHARD_ASSIGN_OR_RETURN(const int64_t most, CheckedBytes(stream, columns.most));
  if (most == 0) return 0;
  const int64_t column = most / columns.most;
  if (!columns.total) return absl::InvalidArgumentError("more columns than 64 bits can count");
  return CheckedMultiply(column, *columns.total, stream.name);
}

absl::Status OverLimit(absl::string_view what, const ShardPlan& plan, size_t num_ranks,
                       const Limits& limits) {
  std::string why;
  if (!plan.chunks.empty()) {
    const LayoutPlan& layout = plan.chunks.front();
    why = absl::StrCat(": rows of ", layout.source_len, " columns become ", layout.padded_len);
    if (!layout.padded_to.empty()) absl::StrAppend(&why, ", ", layout.padded_to);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the ", what, " of ", num_ranks, " ranks are over the limit of ", limits.max_batch_bytes,
      " bytes", why, "; pad to less, or ask for fewer ranks at once"));
}

// "documents 3, 14 tokens" of those that the layout states, where rows are alike of one of them.
std::string DocumentsText(const LayoutPlan& layout) {
  size_t documents = 0;
  int64_t tokens = 0;
  for (const std::vector<DocumentSpan>& row : layout.documents) {
    documents += row.size();
    for (const DocumentSpan& span : row) tokens += span.real;
  }
  return absl::StrCat("documents ", documents, ", ", tokens, " tokens");
}

}  // namespace

absl::string_view ExtentName(Extent extent) {
  switch (extent) {
    case Extent::kLocal:
      return "local";
    case Extent::kPadded:
      return "padded";
    case Extent::kWhole:
      return "whole";
  }
  return "?";
}

absl::Span<const LayoutPlan> LayoutsOf(const ShardPlan& plan, const StreamPlan& stream) {
  if (stream.layout == kTokens) return plan.chunks;
  return {&plan.others[stream.layout], 1};
}

bool IsPlainView(const StreamPlan& stream, DType source_dtype) {
  const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
  return view != nullptr && view->how != ViewOf::How::kHeadZeroDiagonal &&
         stream.value.op == Op::kNone && stream.dtype == source_dtype;
}

TensorSpec OutputSpec(const ShardPlan& plan, const StreamPlan& stream, int64_t rank) {
  TensorSpec output{stream.name, stream.dtype, stream.dims};
  if (stream.extent == Extent::kWhole) return output;
  const absl::Span<const LayoutPlan> layouts = LayoutsOf(plan, stream);
  const LayoutPlan& layout = layouts.front();
  output.dims[stream.axis] =
      stream.extent == Extent::kLocal ? layout.LocalLen(rank) : layout.padded_len;
  if (layouts.size() > 1) {
    output.dims.insert(output.dims.begin(), static_cast<int64_t>(layouts.size()));
  }
  return output;
}

int OutputAxis(const ShardPlan& plan, const StreamPlan& stream) {
  const bool stacked = stream.extent != Extent::kWhole && LayoutsOf(plan, stream).size() > 1;
  return stream.axis + (stacked ? 1 : 0);
}

std::vector<ScalarEntry> ScalarsOf(const ShardPlan& plan, int64_t rank) {
  std::vector<ScalarEntry> entries;
  for (const ScalarPlan& scalar : plan.scalars) entries.push_back({scalar.name, scalar.Of(rank)});
  return entries;
}

int64_t LocalSlots(absl::Span<const LayoutPlan> layouts, int64_t rank) {
  int64_t slots = 0;
  for (const LayoutPlan& layout : layouts) slots += layout.LocalLen(rank);
  return slots;
}

absl::StatusOr<int64_t> CheckedOutputBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits) {
  int64_t total = 0;
  for (const LayoutPlan& layout : plan.chunks) {
    if (layout.padded_len > limits.max_batch_bytes)
      return OverLimit("shards", plan, ranks.size(), limits);
  }
  if (ranks.empty()) return total;
  const Columns of_tokens = ColumnsOf(plan.chunks, ranks);
  for (const StreamPlan& stream : plan.streams) {
    const bool local = stream.extent == Extent::kLocal;
    const absl::Span<const LayoutPlan> layouts = LayoutsOf(plan, stream);
    const Columns columns = stream.layout == kTokens ? of_tokens : ColumnsOf(layouts, ranks);
    const int64_t padded_len = layouts.empty() ? 0 : layouts.front().padded_len;
    const absl::StatusOr<int64_t> bytes =
        local ? CheckedLocalBytes(stream, columns) : CheckedBytes(stream, padded_len);
    if (!bytes.ok() || *bytes > limits.max_batch_bytes - total) {
      return OverLimit("shards", plan, ranks.size(), limits);
    }
    total += *bytes;
  }
  return total;
}

absl::StatusOr<int64_t> CheckedLayoutBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits) {
  constexpr int64_t kItem = sizeof(int64_t);
  const int64_t most = limits.max_batch_bytes / kItem;
  int64_t values = 0;
  if (plan.chunks.size() == 1) {
    const LayoutPlan& layout = plan.chunks.front();
    if (layout.report.stream_positions &&
        (__builtin_mul_overflow(layout.rows, layout.source_len, &values) || values > most)) {
      return OverLimit("layouts", plan, ranks.size(), limits);
    }
  }
  for (int64_t rank : ranks) {
    for (const LayoutPlan& layout : plan.chunks) {
      values += 2 * static_cast<int64_t>(layout.partition[rank].runs().size());
      const bool indices = layout.report.indices != Report::Indices::kNone;
      if (indices && !plan.stacked()) {
        if (layout.LocalLen(rank) > most) return OverLimit("layouts", plan, ranks.size(), limits);
        values += layout.LocalLen(rank);
      }
    }
    if (values > most) return OverLimit("layouts", plan, ranks.size(), limits);
  }
  return values * kItem;
}

int64_t DerivedBytes(const ShardPlan& plan, const BatchSpec& spec) {
  int64_t bytes = 0;
  for (const StreamPlan& stream : plan.streams) {
    const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
    const TensorSpec* source = view == nullptr ? nullptr : spec.FindTensor(view->source);
    if (source == nullptr || IsPlainView(stream, source->dtype)) continue;
    const bool diagonal = view->how == ViewOf::How::kHeadZeroDiagonal;
    const int64_t elements = diagonal ? Product(stream.dims) : NumElements(*source);
    bytes += elements * ItemSize(stream.dtype);
  }
  return bytes;
}

std::string ToString(const ShardPlan& plan) {
  std::string text = absl::StrCat(
      "cp_size ", plan.cp_size ? absl::StrCat(*plan.cp_size) : std::string("none"), "\n");
  for (const LayoutPlan& layout : plan.chunks) {
    absl::StrAppend(&text, "layout rows ", layout.rows, ", source_len ", layout.source_len,
                    ", padded_len ", layout.padded_len, "\n");
    for (size_t i = 0; i < layout.placement.size(); ++i) {
      absl::StrAppend(&text, "  placement ", i, ": ", layout.placement[i].ToString(), "\n");
    }
    if (!layout.documents.empty()) absl::StrAppend(&text, "  ", DocumentsText(layout), "\n");
    for (size_t rank = 0; rank < layout.partition.size(); ++rank) {
      absl::StrAppend(&text, "  rank ", rank, ": ", layout.partition[rank].ToString(), "\n");
    }
  }
  for (const StreamPlan& stream : plan.streams) {
    absl::StrAppend(&text, "stream ", stream.name, " ", DTypeName(stream.dtype), " ",
                    DimsString(stream.dims), " ", ExtentName(stream.extent), "\n");
  }
  return text;
}

}  // namespace cpshard
