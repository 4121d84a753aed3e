// The gathers as their operators call them: with lengths that may be symbolic.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <vector>

#include "core/torch/token_verbs.h"

namespace cpshard {

// A TokenMap as a graph may hold it.
struct SymTokenMap {
  at::Tensor order, moves;
  std::vector<c10::SymInt> sizes;
};

// As GatherTokenTensor of token_verbs.h.
at::Tensor GatherTokenTensor(const at::Tensor& tensor, const SymTokenMap& map,
                             const TokenTensorLayout& layout, const TokenGroup& group,
                             const GatherTokenOptions& options);

// The gather alone. Without a group, or in one of one rank, the first columns of `local` itself:
// ValueError unless it has the columns of the map, in their order where the map is of one rank.
at::Tensor GatherByMap(const at::Tensor& local, const SymTokenMap& map, int64_t dim,
                       const TokenGroup& group, bool slice_gradient);

}  // namespace cpshard
