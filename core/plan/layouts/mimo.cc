// MiMo: THD with the partition and the masks of media tokens beside it. Contract 4.17.
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/layouts.h"
#include "core/plan/packed_lengths.h"
#include "core/plan/status_macros.h"
#include "core/plan/thd_plan.h"
#include "core/plan/token_rows.h"

namespace cpshard {
namespace {

absl::Status CheckFormat(const BatchSpec& spec) {
  const Scalar* format = spec.FindScalar("qkv_format");
  if (format == nullptr || *format != Scalar(std::string("thd"))) {
    return absl::InvalidArgumentError(
        "layout mimo takes packed batches alone: the batch needs the scalar 'qkv_format' = thd");
  }
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids == nullptr || ids->dims.size() != 2) {
    return absl::InvalidArgumentError(
        ids == nullptr ? std::string("the batch has no 'input_ids', which layout mimo needs")
                       : absl::StrCat("stream 'input_ids' ", DimsString(ids->dims),
                                      " is not [B, S], as layout mimo needs it"));
  }
  return absl::OkStatus();
}

absl::Status CheckLengthsShape(const BatchSpec& spec) {
  const TensorSpec* padded = spec.FindTensor("seq_lens_padded");
  if (padded != nullptr && padded->dims.size() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layout mimo needs 'seq_lens_padded' [B, n]; the batch has ",
                   padded == nullptr ? std::string("none") : DimsString(padded->dims)));
}

// MiMo works the partition out of the padded lengths itself, and is stricter (contract 4.17 step
// 3). Precondition: PlanThd took the batch.
absl::Status CheckLengths(const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_ASSIGN_OR_RETURN(const TokenRows rows, RowsOf(*spec.FindTensor("input_ids")));
  CPSHARD_ASSIGN_OR_RETURN(const PackedLengths lengths, PackedLengths::Of(spec, values, rows));
  CPSHARD_ASSIGN_OR_RETURN(const PackedRows packed, lengths.Rows(0, rows.rows));
  size_t i = 0;
  for (int64_t row = 0; row < packed.num_rows(); ++row) {
    int64_t sum = 0;
    for (const size_t first = i; i < packed.row_ends[row]; ++i) {
      const int64_t length = packed.documents[i].padded;
      sum += length;
      if (length > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "stream 'seq_lens_padded' row ", row, ": document ", i - first,
          " is empty, which layout mimo refuses at cp_size ", *spec.cp_size, "; leave it out"));
    }
    if (sum == rows.length) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream 'seq_lens_padded' row ", row, ": its lengths sum to ", sum,
                     ", not S = ", rows.length, "; pad the last document to the end of the row"));
  }
  return absl::OkStatus();
}

// True where a token is `id`: whole, [T] or [chunks, T / chunks].
void EmitTokenMask(absl::string_view name, std::optional<int64_t> id, const ThdRules& rules,
                   const BatchSpec& spec, ShardPlan& plan) {
  if (!id) return;
  std::erase_if(plan.streams, [&](const StreamPlan& stream) { return stream.name == name; });
  std::erase_if(plan.scalars, [&](const ScalarPlan& scalar) { return scalar.name == name; });
  const int64_t tokens = NumElements(*spec.FindTensor("input_ids"));
  StreamPlan stream{std::string(name), DType::kBool, {tokens}, 0};
  if (rules.num_chunks > 1) stream.dims = {rules.num_chunks, tokens / rules.num_chunks};
  stream.value.from = ViewOf{"input_ids"};
  stream.value.op = Op::kEquals;
  stream.value.operand = *id;
  stream.extent = Extent::kWhole;
  plan.streams.push_back(std::move(stream));
}

absl::StatusOr<ShardPlan> Plan(const MimoOptions& options, const SharedOptions& shared,
                               const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckFormat(spec));
  CPSHARD_RETURN_IF_ERROR(CheckLengthsShape(spec));
  const ThdRules rules{.layout = "mimo",
                       .num_chunks = options.num_chunks,
                       .indices = "_mimo_thd_local_indices",
                       .indices_dtype = DType::kI64,
                       .indices_of_chunks = true,
                       .kept = "_vlm_pp_media_chunks"};
  CPSHARD_ASSIGN_OR_RETURN(ShardPlan plan, PlanThd(rules, shared, spec, values));
  if (spec.num_ranks() > 1) CPSHARD_RETURN_IF_ERROR(CheckLengths(spec, values));
  EmitTokenMask("_mimo_global_image_mask", options.image_token_id, rules, spec, plan);
  EmitTokenMask("_mimo_global_video_mask", options.video_token_id, rules, spec, plan);
  return plan;
}

}  // namespace

Sharder Mimo(MimoOptions options, SharedOptions shared) {
  return Sharder(
      {.name = "mimo", .loss_mask = false, .pad_rule = PadHeadAndTail()}, std::move(shared),
      [options](const BatchSpec& spec, const SharedOptions& shared, const PlanValues& values) {
        return Plan(options, shared, spec, values);
      },
      ThdNeeds);
}

}  // namespace cpshard
