#include "core/torch/gather_autograd.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/torch/gather_operators.h"

namespace cpshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct GatherTokensNode : Function<GatherTokensNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local,
                            const at::Tensor& order, const at::Tensor& moves,
                            const std::vector<c10::SymInt>& sizes, int64_t dim, std::string group,
                            bool slice_gradient, std::string verb, bool needs_gradient) {
    context->save_for_backward({order, moves});
    context->saved_data["sizes"] = c10::SymIntArrayRef(sizes);
    context->saved_data["slots"] = local.sym_size(dim);
    context->saved_data["dim"] = dim;
    context->saved_data["group"] = group;
    context->saved_data["slice"] = slice_gradient;
    at::AutoDispatchBelowADInplaceOrView below;
    return CallGatherTokens(local, order, moves, sizes, dim, group, slice_gradient, verb,
                            needs_gradient);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const at::Tensor grad = CallGatherTokensBackward(
        grads[0], saved[0], saved[1], data["sizes"].toSymIntVector(), data["slots"].toSymInt(),
        data["dim"].toInt(), data["group"].toStringRef(), data["slice"].toBool());
    return {grad, {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

struct GatherSequenceNode : Function<GatherSequenceNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local, int64_t dim,
                            std::string group, bool slice_gradient, bool needs_gradient) {
    context->saved_data["dim"] = dim;
    context->saved_data["group"] = group;
    context->saved_data["slice"] = slice_gradient;
    at::AutoDispatchBelowADInplaceOrView below;
    return CallGatherSequence(local, dim, group, slice_gradient, needs_gradient);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    auto& data = context->saved_data;
    const at::Tensor grad = CallGatherSequenceBackward(
        grads[0], data["dim"].toInt(), data["group"].toStringRef(), data["slice"].toBool());
    return {grad, {}, {}, {}, {}};
  }
};

bool NeedsGradient(const at::Tensor& tensor) {
  return tensor.requires_grad() && at::GradMode::is_enabled();
}

void CheckFirstOrder(const at::Tensor& grad) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !NeedsGradient(grad),
      "a gather of tokens is differentiable once: there is no gradient of its gradient. Take the "
      "first gradient without create_graph, or detach it");
}

}  // namespace

at::Tensor GatherTokensAutograd(const at::Tensor& local, const at::Tensor& order,
                                const at::Tensor& moves, c10::SymIntArrayRef sizes, int64_t dim,
                                std::string group, bool slice_gradient, std::string verb,
                                bool /*needs_gradient*/) {
  return GatherTokensNode::apply(local, order, moves, sizes.vec(), dim, group, slice_gradient, verb,
                                 NeedsGradient(local));
}

at::Tensor GatherSequenceAutograd(const at::Tensor& local, int64_t dim, std::string group,
                                  bool slice_gradient, bool /*needs_gradient*/) {
  return GatherSequenceNode::apply(local, dim, group, slice_gradient, NeedsGradient(local));
}

at::Tensor GatherTokensBackwardAutograd(const at::Tensor& grad, const at::Tensor& order,
                                        const at::Tensor& moves, c10::SymIntArrayRef sizes,
                                        c10::SymInt slots, int64_t dim, std::string group,
                                        bool slice_gradient) {
  CheckFirstOrder(grad);
  at::AutoDispatchBelowADInplaceOrView below;
  return CallGatherTokensBackward(grad, order, moves, sizes, std::move(slots), dim, group,
                                  slice_gradient);
}

at::Tensor GatherSequenceBackwardAutograd(const at::Tensor& grad, int64_t dim, std::string group,
                                          bool slice_gradient) {
  CheckFirstOrder(grad);
  at::AutoDispatchBelowADInplaceOrView below;
  return CallGatherSequenceBackward(grad, dim, group, slice_gradient);
}

}  // namespace cpshard
