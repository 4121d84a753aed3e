#include "core/torch/gather_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

namespace cpshard {
namespace {

// Looked up once: the operators live as long as the library is loaded.
template <typename Signature>
c10::TypedOperatorHandle<Signature> Find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

at::Tensor CallGatherTokens(const at::Tensor& local, const at::Tensor& order,
                            const at::Tensor& moves, c10::SymIntArrayRef sizes, int64_t dim,
                            std::string group, bool slice_gradient, std::string verb,
                            bool needs_gradient) {
  static const auto op = Find<decltype(CallGatherTokens)>("cpshard::_gather_tokens");
  return op.call(local, order, moves, sizes, dim, std::move(group), slice_gradient, std::move(verb),
                 needs_gradient);
}

at::Tensor CallGatherTokensBackward(const at::Tensor& grad, const at::Tensor& order,
                                    const at::Tensor& moves, c10::SymIntArrayRef sizes,
                                    c10::SymInt slots, int64_t dim, std::string group,
                                    bool slice_gradient) {
  static const auto op =
      Find<decltype(CallGatherTokensBackward)>("cpshard::_gather_tokens_backward");
  return op.call(grad, order, moves, sizes, std::move(slots), dim, std::move(group),
                 slice_gradient);
}

at::Tensor CallGatherSequence(const at::Tensor& local, int64_t dim, std::string group,
                              bool slice_gradient, bool needs_gradient) {
  static const auto op = Find<decltype(CallGatherSequence)>("cpshard::_gather_sequence");
  return op.call(local, dim, std::move(group), slice_gradient, needs_gradient);
}

at::Tensor CallGatherSequenceBackward(const at::Tensor& grad, int64_t dim, std::string group,
                                      bool slice_gradient) {
  static const auto op =
      Find<decltype(CallGatherSequenceBackward)>("cpshard::_gather_sequence_backward");
  return op.call(grad, dim, std::move(group), slice_gradient);
}

}  // namespace cpshard
