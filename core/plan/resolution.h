// From the facts of a model and a batch to one layout: contract 3.2.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/plan/model_hooks.h"
#include "core/plan/sharder.h"
#include "core/plan/spec.h"

namespace cpshard {

struct Resolution {
  ChosenLayout chosen;
  std::string reason;        // "cp_size is 2; the model has no hook"
  bool hook_called = false;  // then `hook` is what it returned, without the layout
  HookResult hook;
};

// The first rung that matches: the model's own layout, magi, thd, round_robin, identity.
// Errors: those of the hook, with the model's family before them; InvalidArgument: extra streams
// where the layout is the model's own or the attention takes a THD batch (D13).
// The layout may refuse the batch all the same.
absl::StatusOr<Resolution> Resolve(const ModelFacts& facts, const SharedOptions& shared,
                                   const BatchSpec& spec);
// ... of a model with this hook, or without one.
absl::StatusOr<Resolution> Resolve(const ModelFacts& facts, const SharedOptions& shared,
                                   const BatchSpec& spec, const ModelHook& hook);

// A layout that is resolved for each batch anew. Its plans say what was chosen, and so does the
// message when the chosen layout refuses the batch (D18).
Sharder Resolving(ModelFacts facts, SharedOptions shared = {});

}  // namespace cpshard
