// Gemma4: contiguous slices around a whole primary, with a document map. Contract 4.10.
#include <utility>

#include "core/plan/contiguous_rows.h"
#include "core/plan/layouts.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::string_view kMap = "_packed_seq_ids";

// 1 where a token is none of padding: by padding_mask, by the attention_mask that it would be made
// of, or everywhere.
void EmitMap(const TokenRows& rows, RowStreams& streams) {
  StreamPlan map{std::string(kMap), DType::kI64, {rows.rows, rows.length}};
  if (const StreamPlan* padding = streams.Find("padding_mask")) {
    map.dims = padding->dims;
    map.value = padding->value;
    map.value.op = padding->value.op == Op::kIsZero ? Op::kNotZero : Op::kIsZero;
  } else {
    map.value.from = Generated{{{{1, 0, rows.length}}}};
  }
  streams.Add(std::move(map), int64_t{0});
}

absl::StatusOr<ShardPlan> Plan(const SharedOptions& shared, const BatchSpec& spec) {
  const ContiguousOptions options = {.primary = Primary::kLeaveFull};
  CPSHARD_ASSIGN_OR_RETURN(
      ContiguousRows rows,
      ContiguousRows::Begin(spec, shared, options, {{std::string(kMap), 1, int64_t{0}}}));
  CPSHARD_RETURN_IF_ERROR(rows.CutAllButPaddingMask());
  CPSHARD_RETURN_IF_ERROR(rows.streams().CutPaddingMask());
  if (!spec.Has(kMap)) EmitMap(rows.rows(), rows.streams());
  ShardPlan plan;
  CPSHARD_RETURN_IF_ERROR(rows.Finish(plan));
  return plan;
}

}  // namespace

Sharder Gemma4(SharedOptions shared) {
  LayoutTraits traits{.name = "gemma4", .needs_mesh = true, .extras = true, .extra_pads = true};
  return Sharder(std::move(traits), std::move(shared),
                 [](const BatchSpec& spec, const SharedOptions& shared, const PlanValues&) {
                   return Plan(shared, spec);
                 });
}

}  // namespace cpshard
