// The gathers as autograd and the tracers see them: differentiable once, lengths symbolic.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <string>

namespace cpshard {

// Kernels of cpshard::_gather_tokens and its kin for autograd: they call the operator below
// autograd and leave a node behind that calls the operator of the gradient. Arguments as in
// operators.cc; needs_gradient is found here, whatever the caller said.
at::Tensor GatherTokensAutograd(const at::Tensor& local, const at::Tensor& order,
                                const at::Tensor& moves, c10::SymIntArrayRef sizes, int64_t dim,
                                std::string group, bool slice_gradient, std::string verb,
                                bool needs_gradient);
at::Tensor GatherSequenceAutograd(const at::Tensor& local, int64_t dim, std::string group,
                                  bool slice_gradient, bool needs_gradient);

// A gradient of a gradient is refused: NotImplementedError.
at::Tensor GatherTokensBackwardAutograd(const at::Tensor& grad, const at::Tensor& order,
                                        const at::Tensor& moves, c10::SymIntArrayRef sizes,
                                        c10::SymInt slots, int64_t dim, std::string group,
                                        bool slice_gradient);
at::Tensor GatherSequenceBackwardAutograd(const at::Tensor& grad, int64_t dim, std::string group,
                                          bool slice_gradient);

}  // namespace cpshard
