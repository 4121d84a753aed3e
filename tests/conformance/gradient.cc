#include "tests/conformance/gradient.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/conformance/elements.h"

namespace cpshard::conformance {

bool IsGradientKey(absl::string_view key) {
  return absl::StartsWith(key, "d_sum/") || key == "grad_full" || key == "grad_local";
}

void AddGradientOfSum(const Batch& input, RankAnswer& answer) {
  const Tensor* full = input.FindTensor("inputs_embeds");
  if (full == nullptr || !IsFloating(full->spec.dtype) || full->spec.dims.size() < 2) return;
  if (!answer.layout.original_seq_len) return;
  const std::vector<int64_t>& dims = full->spec.dims;
  const int64_t columns = std::min(dims[1], *answer.layout.original_seq_len);

  std::vector<bool> owned(dims[1], false);
  for (const Run& run : answer.layout.runs) {
    if (run.source == kFill) continue;
    for (int64_t i = 0; i < run.length && run.source + i < columns; ++i)
      owned[run.source + i] = true;
  }
  std::vector<std::byte> one, zero;
  (void)AppendElement(Json(1.0), full->spec.dtype, one);
  (void)AppendElement(Json(0.0), full->spec.dtype, zero);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(full->buffer.size());
  int64_t inner = 1;
  for (size_t axis = 2; axis < dims.size(); ++axis) inner *= dims[axis];
  for (int64_t position = 0; position < dims[0] * dims[1] * inner; ++position) {
    const std::vector<std::byte>& element = owned[position / inner % dims[1]] ? one : zero;
    bytes->insert(bytes->end(), element.begin(), element.end());
  }
  std::byte* data = bytes->data();
  const size_t size = bytes->size();
  answer.batch.tensors.push_back({{std::string(kGradientOfSum), full->spec.dtype, dims},
                                  Buffer(std::move(bytes), data, size)});
}

}  // namespace cpshard::conformance
