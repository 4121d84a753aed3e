#include "tests/conformance/readable.h"

#include <algorithm>

#include "core/plan/status_macros.h"
#include "tests/conformance/expectation.h"
#include "tests/conformance/layout_arg.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

absl::Status CheckValues(const Input& input, const Pick& pick) {
  CPSHARD_RETURN_IF_ERROR(DecodeValues(input.batch, pick).status());
  if (!input.loss_mask_arg) return absl::OkStatus();
  Batch mask;
  return AppendValue("loss_mask", *input.loss_mask_arg, pick, mask);
}

}  // namespace

absl::Status CheckReadable(const Case& item) {
  constexpr int64_t kMaxRanks = 4096;
  const Input& input = item.input;
  const int64_t ranks = std::clamp<int64_t>(input.cp_size.value_or(1), 1, kMaxRanks);
  for (int64_t replica = 0; replica < input.dp_size.value_or(1); ++replica) {
    for (int64_t rank = 0; rank < (FindPerRank(input.batch) ? ranks : 1); ++rank) {
      Pick pick{.rank = rank};
      if (input.dp_size) pick.replica = replica;
      CPSHARD_RETURN_IF_ERROR(CheckValues(input, pick));
    }
  }
  CPSHARD_RETURN_IF_ERROR(ReadLayoutArg(input.args).status());
  if (!item.comparable) return absl::OkStatus();
  return Open(item.expectation, absl::UnimplementedError("not asked")).status();
}

}  // namespace cpshard::conformance
