#include "core/plan/plan.h"

#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

int64_t ColumnsOf(const ShardPlan& plan, const StreamPlan& stream, int64_t rank) {
  const LayoutPlan& layout = plan.chunks.front();
  return stream.extent == Extent::kLocal ? layout.LocalLen(rank) : layout.padded_len;
}

// Bytes of one output, checked.
absl::StatusOr<int64_t> CheckedBytes(const TensorSpec& output) {
  int64_t bytes = ItemSize(output.dtype);
  for (int64_t dim : output.dims) {
    CPSHARD_ASSIGN_OR_RETURN(bytes, CheckedMultiply(bytes, dim, output.name));
  }
  return bytes;
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
  if (stream.extent != Extent::kAsSent) output.dims[stream.axis] = ColumnsOf(plan, stream, rank);
  return output;
}

absl::StatusOr<int64_t> CheckedOutputBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits) {
  int64_t total = 0;
  for (const LayoutPlan& layout : plan.chunks) {
    if (layout.padded_len > limits.max_batch_bytes) return OverLimit(plan, ranks.size(), limits);
  }
  for (const StreamPlan& stream : plan.streams) {
    const bool shared = stream.extent != Extent::kLocal;
    for (int64_t rank : ranks) {
      const absl::StatusOr<int64_t> bytes = CheckedBytes(OutputSpec(plan, stream, rank));
      if (!bytes.ok() || *bytes > limits.max_batch_bytes - total) {
        return OverLimit(plan, ranks.size(), limits);
      }
      total += *bytes;
      if (shared) break;
    }
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
