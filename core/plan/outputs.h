// What a layout puts out, entry by entry. Used by layouts/*.cc and what they share.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"

namespace cpshard {

// Every entry of the batch is, in the end, replaced, dropped or passed on whole; a layout names the
// ones that it does not pass on.
class Outputs {
 public:
  explicit Outputs(const BatchSpec& spec) : spec_(spec) {}  // `spec` must outlive the object

  // The entry is not in the output.
  void Drop(absl::string_view name) { taken_.insert(std::string(name)); }

  // A stream of the output, in the place of the batch's entry of that name if there is one.
  void Add(StreamPlan stream);
  void AddScalar(absl::string_view name, std::vector<Scalar> values);  // ScalarPlan::values

  // Entries that nobody named are dropped.
  void DropOthers() { drops_others_ = true; }

  // Moves them into the plan: streams and scalars in the order of the batch, new ones last.
  void MoveInto(ShardPlan& plan);

 private:
  const BatchSpec& spec_;
  std::set<std::string, std::less<>> taken_;
  std::vector<StreamPlan> streams_;
  std::vector<ScalarPlan> scalars_;
  bool drops_others_ = false;
};

}  // namespace cpshard
