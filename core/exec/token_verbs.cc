#include "core/exec/token_verbs.h"

#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/exec/shard.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

std::string Describe(const TensorSpec& spec) {
  return absl::StrCat("stream '", spec.name, "' ", DTypeName(spec.dtype), DimsString(spec.dims));
}

// The plan's one stream, as every rank gets it.
absl::StatusOr<std::vector<Tensor>> Parts(const ShardPlan& plan, const Tensor& tensor,
                                          const Limits& limits, Executor& executor,
                                          BufferPool& pool) {
  std::vector<int64_t> ranks(plan.num_ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, ranks, limits).status());
  std::vector<Tensor> parts;
  std::vector<std::byte*> dests;
  const StreamPlan& stream = plan.streams.front();
  for (const int64_t rank : ranks) {
    Tensor part{OutputSpec(plan, stream, rank), {}};
    CPSHARD_ASSIGN_OR_RETURN(part.buffer, pool.Allocate(NumBytes(part.spec)));
    dests.push_back(part.buffer.data());
    parts.push_back(std::move(part));
  }
  CPSHARD_RETURN_IF_ERROR(WriteShards(plan, {{tensor}, {}}, ranks, dests, executor, pool));
  return parts;
}

absl::Status CheckAlike(const std::vector<Tensor>& parts) {
  if (parts.empty()) return absl::InvalidArgumentError("there are no parts to gather");
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const TensorSpec& spec = parts[rank].spec;
    if (spec.dtype == parts[0].spec.dtype && spec.dims == parts[0].spec.dims) continue;
    return absl::InvalidArgumentError(absl::StrCat(Describe(spec), " of rank ", rank,
                                                   " does not fit ", Describe(parts[0].spec),
                                                   " of rank 0: parts must be equal"));
  }
  return absl::OkStatus();
}

// Slots of all parts together; nullopt where not all have the axis, which Gather says better.
std::optional<int64_t> AllSlots(const TokenLayout<int64_t>& says, const std::vector<Tensor>& parts,
                                const GatherTokenArgs<int64_t>& args) {
  int64_t slots = 0;
  for (const Tensor& part : parts) {
    const auto axis = token_verbs::GatherAxis<int64_t>(says, part.spec.dims, args);
    if (std::holds_alternative<Refusal>(axis)) return std::nullopt;
    if (__builtin_add_overflow(slots, part.spec.dims[std::get<int64_t>(axis)], &slots)) {
      return std::nullopt;
    }
  }
  return slots;
}

// Records of ranks that hold `maps` of `columns` columns, which is their padded length whatever
// `layout` says: a trim has been decided on, and without one it does not matter (9.3).
std::vector<ShardLayout> RecordsOf(const ShardLayout& layout, const std::vector<IndexMap>& maps,
                                   int64_t columns) {
  std::vector<ShardLayout> records(maps.size(), layout);
  for (size_t rank = 0; rank < maps.size(); ++rank) {
    ShardLayout& record = records[rank];
    record.local_token_global_indices.reset();
    record.cp_rank = static_cast<int64_t>(rank);
    record.cp_size = static_cast<int64_t>(maps.size());
    record.padded_seq_len = columns;
    record.runs = maps[rank].runs();
  }
  return records;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> ShardTokenTensor(const ShardLayout& layout,
                                                     const HeldColumns& map, const Tensor& tensor,
                                                     const ShardTokenOptions& options,
                                                     const Limits& limits, Executor& executor,
                                                     BufferPool& pool) {
  CPSHARD_RETURN_IF_ERROR(ValidateSpec({{tensor.spec}, {}, {}}, limits));
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                           PlanShardToken(layout, map, tensor.spec, options, limits));
  return Parts(plan, tensor, limits, executor, pool);
}

absl::StatusOr<std::vector<Tensor>> ShardTokenTensor(absl::Span<const ShardLayout> layouts,
                                                     const Tensor& tensor,
                                                     const ShardTokenOptions& options,
                                                     const Limits& limits, Executor& executor,
                                                     BufferPool& pool) {
  HeldColumns map;
  CPSHARD_ASSIGN_OR_RETURN(map.captured, CapturedMapOf(layouts));
  return ShardTokenTensor(layouts.front(), map, tensor, options, limits, executor, pool);
}

absl::StatusOr<Tensor> GatherTokenTensor(const ShardLayout& layout, const HeldColumns& map,
                                         const std::vector<Tensor>& parts,
                                         const GatherOptions& options, const Limits& limits,
                                         Executor& executor, BufferPool& pool) {
  if (parts.empty()) return absl::InvalidArgumentError("there are no parts to gather");
  CPSHARD_ASSIGN_OR_RETURN(const TokenLayout<int64_t> says, TokenLayoutOf(layout));
  CPSHARD_ASSIGN_OR_RETURN(const TokenColumns<int64_t> fits, TokenColumnsOf(map, limits));
  GatherTokenArgs<int64_t> args{options.seq_axis, options.trim, options.fill.has_value(),
                                static_cast<int64_t>(parts.size())};
  args.all_slots = AllSlots(says, parts, args);
  const TensorSpec& first = parts.front().spec;
  const auto decided = DecideGatherToken<int64_t>(says, fits, first.dims, args);
  if (const Refusal* refusal = std::get_if<Refusal>(&decided)) {
    return StatusFor(*refusal, first.name);
  }
  const int64_t columns = std::get<GatherTokenSteps<int64_t>>(decided).columns;
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<IndexMap> maps, PartitionOf(map, columns, limits));
  return Gather(RecordsOf(layout, maps, columns), parts, options, executor, pool);
}

absl::StatusOr<Tensor> GatherSequence(const std::vector<Tensor>& parts, int64_t axis,
                                      Executor& executor, BufferPool& pool) {
  CPSHARD_RETURN_IF_ERROR(CheckAlike(parts));
  const TensorSpec& first = parts.front().spec;
  const auto from_front = token_verbs::AxisOf<int64_t>(first.dims, axis);
  if (const Refusal* refusal = std::get_if<Refusal>(&from_front)) {
    return StatusFor(*refusal, first.name);
  }
  if (parts.size() == 1) return parts.front();
  const int64_t length = first.dims[std::get<int64_t>(from_front)];
  const auto ranks = static_cast<int64_t>(parts.size());
  CPSHARD_ASSIGN_OR_RETURN(const int64_t columns, CheckedMultiply(length, ranks, "parts"));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<IndexMap> maps, ContiguousPartition(columns, ranks));
  return Gather(RecordsOf({}, maps, columns), parts, {.seq_axis = axis}, executor, pool);
}

absl::StatusOr<std::vector<Tensor>> LeftHalos(const std::vector<Tensor>& parts, int64_t history,
                                              const Limits& limits, Executor& executor,
                                              BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(const Tensor sequence, GatherSequence(parts, 1, executor, pool));
  const auto ranks = static_cast<int64_t>(parts.size());
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan,
                           PlanLeftHalo(sequence.spec, history, ranks, limits));
  return Parts(plan, sequence, limits, executor, pool);
}

}  // namespace cpshard
