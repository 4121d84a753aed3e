// Gemma4: contiguous slices around a whole primary, with a document map. Contract 4.10.
#include <string>
#include <utility>
#include <vector>

#include "core/plan/contiguous_rows.h"
#include "core/plan/layouts.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::string_view kMap = "_packed_seq_ids";

// 1 where a token is none of padding: by padding_mask, by the attention_mask that it would be made
// of, or everywhere. Cut as `declared` says, the caller's word or the layout's own.
absl::Status EmitMap(const TokenRows& rows, const ExtraStream& declared, RowStreams& streams) {
  StreamPlan map{std::string(kMap), DType::kI64, {rows.rows, rows.length}};
  if (const StreamPlan* padding = streams.Find("padding_mask")) {
    map.dims = padding->dims;
    map.value = padding->value;
    map.value.op = padding->value.op == Op::kIsZero ? Op::kNotZero : Op::kIsZero;
  } else {
    map.value.from = Generated{{{{1, 0, rows.length}}}};
  }
  return streams.AddExtra(std::move(map), declared);
}

absl::StatusOr<ShardPlan> Plan(const SharedOptions& given, const BatchSpec& spec) {
  const ContiguousOptions options = {.primary = Primary::kLeaveFull};
  SharedOptions shared = given;
  ExtraStream map{std::string(kMap), 1, int64_t{0}};
  if (!spec.Has(kMap)) {  // it is made here, so that one that is declared is not missing
    std::erase_if(shared.extra_streams, [&](const ExtraStream& extra) {
      if (extra.name == kMap) map = extra;
      return extra.name == kMap;
    });
  }
  CPSHARD_ASSIGN_OR_RETURN(ContiguousRows rows,
                           ContiguousRows::Begin(spec, shared, options, {map}));
  CPSHARD_RETURN_IF_ERROR(rows.CutAllButPaddingMask());
  CPSHARD_RETURN_IF_ERROR(rows.streams().CutPaddingMask());
  if (!spec.Has(kMap)) CPSHARD_RETURN_IF_ERROR(EmitMap(rows.rows(), map, rows.streams()));
  ShardPlan plan;
  CPSHARD_RETURN_IF_ERROR(rows.Finish(plan));
  return plan;
}

}  // namespace

Sharder Gemma4(SharedOptions shared) {
  LayoutTraits traits{.name = "gemma4",
                      .needs_mesh = true,
                      .extras = true,
                      .extra_pads = true,
                      .pad_rule = ContiguousRows::Padding(ContiguousOptions().pad_multiple)};
  return Sharder(std::move(traits), std::move(shared),
                 [](const BatchSpec& spec, const SharedOptions& shared, const PlanValues&) {
                   return Plan(shared, spec);
                 });
}

}  // namespace cpshard
