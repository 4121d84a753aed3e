#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/batch/batch.h"

namespace cpshard {
namespace {

void AddInt(XXH3_state_t* state, int64_t value) { XXH3_64bits_update(state, &value, sizeof value); }

void AddText(XXH3_state_t* state, absl::string_view text) {
  XXH3_64bits_update(state, text.data(), text.size());
  XXH3_64bits_update(state, "\0", 1);
}

}  // namespace

uint64_t DigestOf(const Batch& batch) {
  std::vector<const Tensor*> tensors;
  tensors.reserve(batch.tensors.size());
  for (const Tensor& tensor : batch.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor* a, const Tensor* b) { return a->spec.name < b->spec.name; });

  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const Tensor* tensor : tensors) {
    AddText(state.get(), tensor->spec.name);
    AddText(state.get(), DTypeName(tensor->spec.dtype));
    AddInt(state.get(), static_cast<int64_t>(tensor->spec.dims.size()));
    for (int64_t dim : tensor->spec.dims) AddInt(state.get(), dim);
    if (tensor->buffer.size() > 0) {
      XXH3_64bits_update(state.get(), tensor->buffer.data(), tensor->buffer.size());
    }
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace cpshard
