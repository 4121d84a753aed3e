// The gathers as their operators call them: by the group's name, with lengths that may be symbolic.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <string>
#include <vector>

#include "core/torch/token_verbs.h"

namespace cpshard {

// A TokenMap as a graph may hold it.
struct SymTokenMap {
  at::Tensor order, moves;
  std::vector<c10::SymInt> sizes;
};

// As GatherTokenTensor of token_verbs.h; group "" is none.
at::Tensor GatherTokenTensor(const at::Tensor& tensor, const SymTokenMap& map,
                             const TokenTensorLayout& layout, const std::string& group,
                             const GatherTokenOptions& options);

// The gather alone. Without a group the first columns of `local` itself.
at::Tensor GatherByMap(const at::Tensor& local, const SymTokenMap& map, int64_t dim,
                       const std::string& group, bool slice_gradient);

}  // namespace cpshard
