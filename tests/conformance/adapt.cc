#include "tests/conformance/adapt.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cpshard::conformance {
namespace {

bool WasSent(const Batch& sent, absl::string_view name) {
  for (const ScalarEntry& scalar : sent.scalars) {
    if (scalar.name == name) return true;
  }
  return sent.FindTensor(name) != nullptr;
}

std::string NameOfTarget(absl::string_view name) {
  if (name == "position_ids") return "batch.position_ids";
  for (absl::string_view tuple : {"input_ids.", "position_ids."}) {
    if (absl::StartsWith(name, absl::StrCat("target_", tuple))) {
      return std::string(absl::StripPrefix(name, "target_"));
    }
  }
  return std::string(name);
}

}  // namespace

void KeepConversion(const Batch&, RankAnswer& answer) {
  std::erase_if(answer.batch.tensors,
                [](const Tensor& tensor) { return tensor.spec.name == "_thd_local_indices"; });
  answer.layout = {};
}

void KeepTargets(const Batch& sent, RankAnswer& answer) {
  std::erase_if(answer.batch.tensors, [&](const Tensor& tensor) {
    return tensor.spec.name != "position_ids" && WasSent(sent, tensor.spec.name);
  });
  std::erase_if(answer.batch.scalars,
                [&](const ScalarEntry& scalar) { return WasSent(sent, scalar.name); });
  for (Tensor& tensor : answer.batch.tensors) tensor.spec.name = NameOfTarget(tensor.spec.name);
  if (const Tensor* positions = answer.batch.FindTensor("position_ids.0")) {
    const int64_t axis = positions->spec.dims.size() == 3 ? 2 : 1;
    answer.batch.scalars.push_back({"position_ids_seq_dim", axis});
  }
  answer.layout = {};
}

}  // namespace cpshard::conformance
