// Sharder: a layout as a function from the spec of a batch to its plan.
//
// A new layout is one new function that returns a Sharder (see layouts.h and layouts/*.cc). The
// object carries no tag and nobody asks which layout it is: the traits are only what the checks
// that all layouts share need to know.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/pad_rule.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard {

// A token-aligned stream that the layout does not know by itself (contract 4.2, `extra_seq_keys`).
struct ExtraStream {
  std::string name;
  int64_t seq_axis = 1;       // negative counts from the end
  std::optional<Number> pad;  // absent = 0
};

// Options that stand beside the layout's own.
struct SharedOptions {
  std::optional<int64_t> padding_token_id;  // absent = none given (contract T23)
  std::optional<int64_t> min_padded_len;    // decision D14
  std::vector<ExtraStream> extra_streams;
};

struct LayoutTraits {
  std::string name;  // the option's name, for messages only
  bool needs_mesh = false;
  bool extras = false;          // takes extra_streams (D13)
  bool extra_pads = false;      // ... and a pad of the caller's for them (D13)
  bool min_padded_len = false;  // D14
  bool loss_mask = true;        // takes a stream `loss_mask` (D17)
  bool packed_metadata = true;  // can keep documents apart, or passes their lengths on (D18)
  PadRuleFn pad_rule;           // null: nothing is padded
};

class Sharder {
 public:
  using NeedsFn = std::function<std::vector<std::string>(const BatchSpec&)>;
  using PlanFn = std::function<absl::StatusOr<ShardPlan>(const BatchSpec&, const SharedOptions&,
                                                         const PlanValues&)>;

  Sharder(LayoutTraits traits, SharedOptions options, PlanFn plan, NeedsFn needs = nullptr);

  // Names of the streams whose VALUES Plan reads, for this spec. Often none: then the plan exists
  // before one byte of the batch.
  std::vector<std::string> Needs(const BatchSpec& spec) const;

  // The plan. Precondition: ValidateSpec(spec) passed and `values` holds what Needs named.
  // Refuses in the order of docs/ARCHITECTURE.md: options, then streams that must not be
  // there, then what the layout itself requires. InvalidArgument unless said otherwise; the
  // message names the stream, the numbers and the way out.
  // Thread-safe. Cost is that of the runs, not of the tokens.
  absl::StatusOr<ShardPlan> Plan(const BatchSpec& spec, const PlanValues& values) const;

  // What the layout pads in a row of `tokens` tokens (see PadRuleFn), before there is a batch.
  // Refuses options and entries as Plan does.
  absl::StatusOr<PadRule> PadRuleOf(const BatchSpec& spec, int64_t tokens) const;

 private:
  absl::Status CheckShared(const BatchSpec& spec) const;

  LayoutTraits traits_;
  SharedOptions options_;
  PlanFn plan_;
  NeedsFn needs_;
};

}  // namespace cpshard
