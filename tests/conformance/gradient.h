// Gradients as far as they follow from a layout alone, without torch.
#pragma once

#include "absl/strings/string_view.h"
#include "core/batch/batch.h"
#include "tests/conformance/answer.h"

namespace cpshard::conformance {

// Keys of the corpus that hold gradients; the first kind can be computed here.
inline constexpr absl::string_view kGradientOfSum = "d_sum/d_full_inputs_embeds";
bool IsGradientKey(absl::string_view key);

// Adds kGradientOfSum: the gradient of the sum of the rank's shard of `inputs_embeds`, that is the
// plan run backwards over ones. [B, S, H] like the full tensor: 1 at the source columns that the
// rank owns, 0 elsewhere. Adds nothing where there is no floating inputs_embeds [B, S, ...] or no
// layout.
void AddGradientOfSum(const Batch& input, RankAnswer& answer);

}  // namespace cpshard::conformance
