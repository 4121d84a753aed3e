#include "core/plan/plan.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Bytes of the stream with so many columns, checked; one as sent keeps its own.
absl::StatusOr<int64_t> CheckedBytes(const StreamPlan& stream, int64_t columns) {
  int64_t bytes = ItemSize(stream.dtype);
  for (size_t i = 0; i < stream.dims.size(); ++i) {
    const bool placed = static_cast<int>(i) == stream.axis && stream.extent != Extent::kAsSent;
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

Columns ColumnsOf(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  Columns columns{0, 0};
  if (plan.chunks.empty()) return columns;
  for (int64_t rank : ranks) {
    const int64_t length = plan.chunks.front().LocalLen(rank);
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

absl::Status OverLimit(const ShardPlan& plan, size_t num_ranks, const Limits& limits) {
  std::string why;
  if (!plan.chunks.empty()) {
    const LayoutPlan& layout = plan.chunks.front();
    why = absl::StrCat(": rows of ", layout.source_len, " columns become ", layout.padded_len);
    if (!layout.padded_to.empty()) absl::StrAppend(&why, ", ", layout.padded_to);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the shards of ", num_ranks, " ranks are over the limit of ", limits.max_batch_bytes,
      " bytes", why, "; pad to less, or ask for fewer ranks at once"));
}

}  // namespace

absl::string_view ExtentName(Extent extent) {
  switch (extent) {
    case Extent::kLocal:
      return "local";
    case Extent::kPadded:
      return "padded";
    case Extent::kAsSent:
      return "as_sent";
  }
  return "?";
}

TensorSpec OutputSpec(const ShardPlan& plan, const StreamPlan& stream, int64_t rank) {
  TensorSpec output{stream.name, stream.dtype, stream.dims};
  if (stream.extent == Extent::kAsSent) return output;
  const LayoutPlan& layout = plan.chunks.front();
  output.dims[stream.axis] =
      stream.extent == Extent::kLocal ? layout.LocalLen(rank) : layout.padded_len;
  return output;
}

absl::StatusOr<int64_t> CheckedOutputBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits) {
  int64_t total = 0;
  for (const LayoutPlan& layout : plan.chunks) {
    if (layout.padded_len > limits.max_batch_bytes) return OverLimit(plan, ranks.size(), limits);
  }
  if (ranks.empty()) return total;
  const Columns columns = ColumnsOf(plan, ranks);
  const int64_t padded_len = plan.chunks.empty() ? 0 : plan.chunks.front().padded_len;
  for (const StreamPlan& stream : plan.streams) {
    const bool local = stream.extent == Extent::kLocal;
    const absl::StatusOr<int64_t> bytes =
        local ? CheckedLocalBytes(stream, columns) : CheckedBytes(stream, padded_len);
    if (!bytes.ok() || *bytes > limits.max_batch_bytes - total) {
      return OverLimit(plan, ranks.size(), limits);
    }
    total += *bytes;
  }
  return total;
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
