#include "core/plan/outputs.h"

#include <algorithm>
#include <utility>

namespace cpshard {
namespace {

template <typename T>
T* Find(std::vector<T>& list, const std::string& name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const T& entry) { return entry.name == name; });
  return found == list.end() ? nullptr : &*found;
}

// `ours` in the order of the batch's `entries`, with pass(entry) for those that nobody took.
template <typename T, typename Entry, typename Pass>
std::vector<T> InOrder(std::vector<T> ours, const std::vector<Entry>& entries,
                       const std::set<std::string, std::less<>>& taken, Pass pass) {
  std::vector<T> ordered;
  for (const Entry& entry : entries) {
    if (T* own = Find(ours, entry.name)) {
      ordered.push_back(std::move(*own));
      own->name.clear();
    } else if (!taken.contains(entry.name)) {
      pass(entry, ordered);
    }
  }
  for (T& own : ours) {
    if (!own.name.empty()) ordered.push_back(std::move(own));
  }
  return ordered;
}

}  // namespace

void Outputs::Add(StreamPlan stream) {
  Drop(stream.name);
  streams_.push_back(std::move(stream));
}

void Outputs::AddScalar(absl::string_view name, std::vector<Scalar> values) {
  Drop(name);
  scalars_.push_back({std::string(name), std::move(values)});
}

void Outputs::MoveInto(ShardPlan& plan) {
  plan.streams = InOrder(std::move(streams_), spec_.tensors, taken_,
                         [&](const TensorSpec& tensor, std::vector<StreamPlan>& streams) {
                           if (drops_others_) return;
                           StreamPlan stream{tensor.name, tensor.dtype, tensor.dims};
                           stream.value.from = ViewOf{tensor.name};
                           stream.extent = Extent::kWhole;
                           streams.push_back(std::move(stream));
                         });
  plan.scalars = InOrder(std::move(scalars_), spec_.scalars, taken_,
                         [&](const ScalarEntry& scalar, std::vector<ScalarPlan>& scalars) {
                           if (!drops_others_) scalars.push_back({scalar.name, {scalar.value}});
                         });
}

}  // namespace cpshard
