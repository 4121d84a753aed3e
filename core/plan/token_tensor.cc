#include "core/plan/token_tensor.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::Status CheckRanks(int64_t cp_size, const Limits& limits) {
  if (cp_size >= 1 && cp_size <= limits.max_ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cp_size is ", cp_size, "; it must be 1 ... ", limits.max_ranks));
}

// Slots of all layouts. InvalidArgument: a run of another length than there is.
absl::StatusOr<int64_t> SlotsOf(absl::Span<const ShardLayout> layouts) {
  int64_t slots = 0;
  for (const ShardLayout& layout : layouts) {
    for (const Run& run : layout.runs) {
      if (run.length < 0 || run.length > (int64_t{1} << 62) - slots) {
        return absl::InvalidArgumentError(absl::StrCat("the layout of rank ", layout.cp_rank,
                                                       " has a run of length ", run.length));
      }
      slots += run.length;
    }
  }
  return slots;
}

// Captured maps come from whoever captured them.
absl::Status CheckMaps(const CapturedMap& captured) {
  for (size_t rank = 0; rank < captured.maps.size(); ++rank) {
    for (const Run& run : captured.maps[rank].runs()) {
      if (run.source >= 0 && run.length <= captured.columns - run.source) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("the map of rank ", rank, " has a run of ", run.length, " columns from ",
                       run.source, " on, which is not within its ", captured.columns, " columns"));
    }
  }
  return absl::OkStatus();
}

// Row by row, padded column <- column of the caller's.
absl::StatusOr<std::vector<IndexMap>> Repositioned(const IntArray& positions, int64_t padded) {
  std::vector<IndexMap> placement;
  for (int64_t row = 0; row < positions.shape[0]; ++row) {
    IndexMap moved;  // the caller's column -> padded column
    for (int64_t column = 0; column < positions.shape[1]; ++column) {
      const int64_t to = positions.values[row * positions.shape[1] + column];
      moved.Append({to < 0 ? kFill : to, 1});
    }
    absl::StatusOr<IndexMap> inverse = moved.Inverse(padded);
    if (!inverse.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the positions of row ", row, " are no columns of a row of padded_seq_len=", padded, ": ",
          inverse.status().message()));
    }
    placement.push_back(*std::move(inverse));
  }
  return placement;
}

bool HasFill(const std::vector<IndexMap>& placement) {
  return std::any_of(placement.begin(), placement.end(), [](const IndexMap& map) {
    return std::any_of(map.runs().begin(), map.runs().end(),
                       [](const Run& run) { return run.source == kFill; });
  });
}

// The tensor as its one stream, with the caller's axes merged as `steps` say.
StreamPlan StreamOf(const TensorSpec& tensor, const ShardTokenSteps<int64_t>& steps) {
  StreamPlan stream{tensor.name, tensor.dtype, tensor.dims, static_cast<int>(steps.axis)};
  if (steps.merged_axes > 0) {
    stream.dims.erase(stream.dims.begin() + 1, stream.dims.begin() + steps.merged_axes);
    stream.dims[0] = steps.columns - steps.pad;
  }
  stream.batch_axis = steps.reposition ? 0 : -1;
  stream.value.from = ViewOf{tensor.name};
  return stream;
}

absl::StatusOr<LayoutPlan> LayoutOf(const ShardLayout& layout, const TensorSpec& tensor,
                                    const ShardTokenSteps<int64_t>& steps) {
  LayoutPlan plan;
  plan.rows = 1;
  plan.source_len = steps.columns - steps.pad;
  plan.padded_len = steps.columns;
  plan.padded_to = "the layout's padded_seq_len";
  if (!steps.reposition) {
    plan.placement = {IndexMap::Identity(plan.source_len)};
    plan.placement.front().Append({kFill, steps.pad});
    return plan;
  }
  plan.rows = tensor.dims[0];
  plan.source_len = tensor.dims[1];
  CPSHARD_ASSIGN_OR_RETURN(plan.placement,
                           Repositioned(*layout.input_token_stream_positions, plan.padded_len));
  return plan;
}

}  // namespace

absl::StatusOr<CapturedMap> CapturedMapOf(absl::Span<const ShardLayout> layouts) {
  if (layouts.empty()) return absl::FailedPreconditionError("there is no layout to go by");
  const ShardLayout& first = layouts.front();
  if (first.runs.empty() && !first.padded_seq_len) {
    return absl::FailedPreconditionError("the ranks report no layout: there is nothing to go by");
  }
  CapturedMap captured;
  CPSHARD_ASSIGN_OR_RETURN(const int64_t slots, SlotsOf(layouts));
  // A rank alone knows its own slots: the others have as many, where nothing else is reported.
  const auto ranks = static_cast<int64_t>(layouts.size());
  captured.columns = slots;
  if (first.padded_seq_len) {
    captured.columns = *first.padded_seq_len;
  } else if (ranks < first.cp_size) {
    CPSHARD_ASSIGN_OR_RETURN(captured.columns, CheckedMultiply(slots / ranks, first.cp_size,
                                                               "slots * cp_size of the layout"));
  }
  for (const ShardLayout& layout : layouts) {
    CPSHARD_ASSIGN_OR_RETURN(IndexMap own, IndexMap::FromRuns(layout.runs, captured.columns));
    captured.maps.push_back(std::move(own));
  }
  return captured;
}

absl::StatusOr<std::vector<IndexMap>> PartitionOf(const HeldColumns& map, int64_t columns,
                                                  const Limits& limits) {
  CPSHARD_ASSIGN_OR_RETURN(const TokenColumns<int64_t> fits, TokenColumnsOf(map, limits));
  if (const auto refusal = token_verbs::CheckColumns(fits, columns)) return ToStatus(*refusal);
  if (map.captured) {
    CPSHARD_RETURN_IF_ERROR(CheckMaps(*map.captured));
    return map.captured->maps;
  }
  switch (*map.closed_form) {
    case HeldColumns::ClosedForm::kIdentity:
      return WholePartition(columns, map.cp_size);
    case HeldColumns::ClosedForm::kContiguous:
      return ContiguousPartition(columns, map.cp_size);
    case HeldColumns::ClosedForm::kRoundRobin:
      return RoundRobinPartition(columns, map.cp_size);
  }
  return absl::InternalError("no such map");
}

absl::StatusOr<TokenLayout<int64_t>> TokenLayoutOf(const ShardLayout& layout) {
  TokenLayout<int64_t> says{layout.original_seq_len, layout.padded_seq_len, {}, {}};
  if (layout.input_row_shape) {
    const IntArray& rows = *layout.input_row_shape;
    if (rows.shape.size() != 1 || rows.shape[0] != static_cast<int64_t>(rows.values.size())) {
      return absl::FailedPreconditionError(
          absl::StrCat("the layout's input_row_shape has ", rows.values.size(),
                       " elements, but the shape ", DimsString(rows.shape)));
    }
    says.input_row_shape = rows.values;
  }
  if (!layout.input_token_stream_positions) return says;
  const IntArray& positions = *layout.input_token_stream_positions;
  says.positions_shape = positions.shape;
  int64_t elements = -1;
  const bool two = positions.shape.size() == 2 && positions.shape[0] >= 0 &&
                   positions.shape[1] >= 0 &&
                   !__builtin_mul_overflow(positions.shape[0], positions.shape[1], &elements);
  if (two && elements == static_cast<int64_t>(positions.values.size())) return says;
  return absl::FailedPreconditionError(
      absl::StrCat("the layout's positions have ", positions.values.size(),
                   " elements, but the shape ", DimsString(positions.shape), ", not [B, S]"));
}

absl::StatusOr<TokenColumns<int64_t>> TokenColumnsOf(const HeldColumns& map, const Limits& limits) {
  TokenColumns<int64_t> columns;
  if (map.captured) {
    columns.captured = map.captured->columns;
    return columns;
  }
  CPSHARD_RETURN_IF_ERROR(CheckRanks(map.cp_size, limits));
  if (!map.closed_form) return columns;
  switch (*map.closed_form) {
    case HeldColumns::ClosedForm::kIdentity:
      columns.divisor = 1;
      break;
    case HeldColumns::ClosedForm::kContiguous:
      columns.divisor = map.cp_size;
      break;
    case HeldColumns::ClosedForm::kRoundRobin:
      columns.divisor = 2 * map.cp_size;
      break;
  }
  return columns;
}

absl::Status StatusFor(const Refusal& refusal, absl::string_view name) {
  const absl::Status status = ToStatus(refusal);
  return absl::Status(status.code(), absl::StrCat("stream '", name, "': ", status.message()));
}

absl::StatusOr<ShardPlan> PlanShardToken(const ShardLayout& layout, const HeldColumns& map,
                                         const TensorSpec& tensor, const ShardTokenOptions& options,
                                         const Limits& limits) {
  CPSHARD_ASSIGN_OR_RETURN(const TokenLayout<int64_t> says, TokenLayoutOf(layout));
  CPSHARD_ASSIGN_OR_RETURN(const TokenColumns<int64_t> columns, TokenColumnsOf(map, limits));
  const OrRefusal<ShardTokenSteps<int64_t>> decided = DecideShardToken<int64_t>(
      says, columns, tensor.dims, {options.seq_dim, options.fill.has_value()});
  if (const Refusal* refusal = std::get_if<Refusal>(&decided)) {
    return StatusFor(*refusal, tensor.name);
  }
  const auto& steps = std::get<ShardTokenSteps<int64_t>>(decided);
  StreamPlan stream = StreamOf(tensor, steps);
  CPSHARD_ASSIGN_OR_RETURN(LayoutPlan tokens, LayoutOf(layout, tensor, steps));
  CPSHARD_ASSIGN_OR_RETURN(tokens.partition, PartitionOf(map, steps.columns, limits));
  if (HasFill(tokens.placement)) {
    CPSHARD_ASSIGN_OR_RETURN(stream.fill.value,
                             ConvertFill(*options.fill, tensor.dtype, tensor.name));
    stream.fill.kind = Fill::Kind::kConstant;
  }
  ShardPlan plan;
  plan.cp_size = static_cast<int64_t>(tokens.partition.size());
  plan.streams.push_back(std::move(stream));
  plan.chunks.push_back(std::move(tokens));
  return plan;
}

absl::StatusOr<ShardPlan> PlanLeftHalo(const TensorSpec& sequence, int64_t history, int64_t cp_size,
                                       const Limits& limits) {
  CPSHARD_RETURN_IF_ERROR(CheckRanks(cp_size, limits));
  if (sequence.dims.size() != 3 || history < 0 || sequence.dims[1] % cp_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a left halo of history ", history, " over ", cp_size, " ranks cannot be taken of stream '",
        sequence.name, "' ", DimsString(sequence.dims),
        ": it takes [B, P, C] with P divisible by the ranks, and a history of 0 at least"));
  }
  const int64_t length = sequence.dims[1];
  LayoutPlan layout;  // the sequence, moved behind `history` columns of zero
  layout.rows = 1;
  layout.source_len = length;
  if (__builtin_add_overflow(length, history, &layout.padded_len)) {
    return absl::InvalidArgumentError(absl::StrCat("history ", history, " is beyond int64"));
  }
  layout.padded_to = "the history of a left halo";
  IndexMap placement;
  placement.Append({kFill, history});
  placement.Append({0, length});
  layout.placement.push_back(std::move(placement));
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    layout.partition.emplace_back();
    layout.partition.back().Append({rank * (length / cp_size), history});
  }
  StreamPlan stream{sequence.name, sequence.dtype, sequence.dims, 1};
  stream.batch_axis = -1;
  stream.value.from = ViewOf{sequence.name};
  stream.fill.kind = history > 0 ? Fill::Kind::kConstant : Fill::Kind::kNone;
  ShardPlan plan;
  plan.cp_size = cp_size;
  plan.streams.push_back(std::move(stream));
  plan.chunks.push_back(std::move(layout));
  return plan;
}

}  // namespace cpshard
