#include "core/plan/in_forward.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::StatusOr<LayoutPlan> LayoutOf(int64_t length, const InForwardOptions& options,
                                    int64_t cp_size) {
  const bool contiguous = options.layout == InForwardLayout::kContiguous;
  const int64_t multiple = contiguous ? std::max<int64_t>(options.pad_multiple, 2) : 2;
  int64_t padded = length;
  if (cp_size > 1) {
    CPSHARD_ASSIGN_OR_RETURN(const int64_t divisor,
                             CheckedMultiply(cp_size, multiple, "cp_size * pad_multiple"));
    CPSHARD_ASSIGN_OR_RETURN(padded, RoundUp(length, divisor, "cp_size * pad_multiple"));
  }
  LayoutPlan layout;
  layout.rows = 1;
  layout.source_len = length;
  layout.padded_len = padded;
  layout.placement = {IndexMap::Identity(length)};
  layout.placement.front().Append({kFill, padded - length});
  if (cp_size == 1) {
    layout.partition = WholePartition(padded, 1);
  } else {
    CPSHARD_ASSIGN_OR_RETURN(layout.partition, contiguous ? ContiguousPartition(padded, cp_size)
                                                          : RoundRobinPartition(padded, cp_size));
  }
  layout.report.original_seq_len = length;
  layout.report.padded_seq_len = padded;
  return layout;
}

}  // namespace

absl::StatusOr<ShardPlan> PlanInForward(const TensorSpec& tensor, const InForwardOptions& options,
                                        std::optional<int64_t> cp_size) {
  const int64_t axes = static_cast<int64_t>(tensor.dims.size());
  const int64_t axis = options.axis < 0 ? options.axis + axes : options.axis;
  if (axis < 0 || axis >= axes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream '", tensor.name, "' ", DimsString(tensor.dims), " has no axis ", options.axis));
  }
  if (cp_size && *cp_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cp_size is ", *cp_size, "; it must be 1 at least, or absent for no mesh"));
  }
  ShardPlan plan;
  plan.cp_size = cp_size;
  CPSHARD_ASSIGN_OR_RETURN(LayoutPlan layout,
                           LayoutOf(tensor.dims[axis], options, plan.num_ranks()));
  StreamPlan stream{tensor.name, tensor.dtype, tensor.dims, static_cast<int>(axis)};
  stream.batch_axis = -1;
  stream.value.from = ViewOf{tensor.name};
  if (layout.padded_len > layout.source_len) {
    CPSHARD_ASSIGN_OR_RETURN(stream.fill.value,
                             ConvertFill(options.pad_value, tensor.dtype, tensor.name));
    stream.fill.kind = Fill::Kind::kConstant;
  }
  plan.streams.push_back(std::move(stream));
  plan.chunks.push_back(std::move(layout));
  return plan;
}

}  // namespace cpshard
