// Calls of the gather's operators through torch's dispatcher, which finds the kernel: autograd's, a
// tracer's, or that of the device. The schemas stand in operators.cc. needs_gradient is autograd's
// to say: whoever calls from above it says false.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <string>

namespace cpshard {

at::Tensor CallGatherTokens(const at::Tensor& local, const at::Tensor& order,
                            const at::Tensor& moves, c10::SymIntArrayRef sizes, int64_t dim,
                            std::string group, bool slice_gradient, std::string verb,
                            bool needs_gradient);
at::Tensor CallGatherTokensBackward(const at::Tensor& grad, const at::Tensor& order,
                                    const at::Tensor& moves, c10::SymIntArrayRef sizes,
                                    c10::SymInt slots, int64_t dim, std::string group,
                                    bool slice_gradient);
at::Tensor CallGatherSequence(const at::Tensor& local, int64_t dim, std::string group,
                              bool slice_gradient, bool needs_gradient);
at::Tensor CallGatherSequenceBackward(const at::Tensor& grad, int64_t dim, std::string group,
                                      bool slice_gradient);

}  // namespace cpshard
