#include "core/batch/digest.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/batch/batch.h"
#include "core/batch/xxh3.h"

namespace cpshard {

struct BatchDigest::State {
  // The library asks for more than the usual alignment of its state; its own allocation gives it.
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash{XXH3_createState(),
                                                                       XXH3_freeState};

  void Add(const void* data, size_t size) { UpdateXxh3(hash.get(), data, size); }
  void AddInt(int64_t value) { Add(&value, sizeof value); }
  void AddText(absl::string_view text) {
    Add(text.data(), text.size());
    Add("\0", 1);
  }
};

BatchDigest::BatchDigest() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(state_->hash.get());
}

BatchDigest::~BatchDigest() = default;

void BatchDigest::BeginTensor(const TensorSpec& spec) {
  state_->AddText(spec.name);
  state_->AddText(DTypeName(spec.dtype));
  state_->AddInt(static_cast<int64_t>(spec.dims.size()));
  for (int64_t dim : spec.dims) state_->AddInt(dim);
}

void BatchDigest::AddBytes(absl::Span<const std::byte> bytes) {
  if (!bytes.empty()) state_->Add(bytes.data(), bytes.size());
}

uint64_t BatchDigest::Finish() const { return XXH3_64bits_digest(state_->hash.get()); }

std::vector<size_t> DigestOrder(absl::Span<const TensorSpec> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].name < tensors[b].name; });
  return order;
}

uint64_t DigestOf(const Batch& batch) {
  std::vector<TensorSpec> specs;
  specs.reserve(batch.tensors.size());
  for (const Tensor& tensor : batch.tensors) specs.push_back(tensor.spec);
  BatchDigest digest;
  for (size_t i : DigestOrder(specs)) {
    digest.BeginTensor(specs[i]);
    digest.AddBytes(batch.tensors[i].bytes());
  }
  return digest.Finish();
}

}  // namespace cpshard
