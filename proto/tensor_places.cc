#include "proto/tensor_places.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/batch/buffer.h"

namespace cpshard {

std::vector<TensorPlace> PlaceTensors(const BatchSpec& spec, absl::Span<const std::string> first) {
  const auto key = [&](size_t i) {
    const std::string& name = spec.tensors[i].name;
    const bool later = std::find(first.begin(), first.end(), name) == first.end();
    return std::tuple<bool, const std::string&>(later, name);
  };
  std::vector<size_t> order(spec.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });

  std::vector<TensorPlace> places(spec.tensors.size());
  int64_t end = 0;
  for (size_t i : order) {
    places[i] = {end, NumBytes(spec.tensors[i])};
    end = AlignUp(end + places[i].nbytes);
  }
  return places;
}

}  // namespace cpshard
