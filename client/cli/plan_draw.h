// The pictures of `cpshard plan`: --draw, --svg, --compare.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"
#include "proto/replies.h"

namespace cpshard {

struct DrawArguments {
  bool draw = false;
  std::string svg;                   // the file; empty = none
  std::vector<std::string> compare;  // options, each JSON or the name of a file of it

  bool wanted() const { return draw || !svg.empty(); }
};

void DeclareDrawArguments(CLI::App& command, DrawArguments& arguments);

// Throws CLI's usage error where a picture is asked for without a batch or a length, or a
// comparison without a picture.
void CheckDrawArguments(const DrawArguments& arguments, bool has_batch);

// The plan of the batch by these options, as --options takes them.
using PlanWith = std::function<absl::StatusOr<PlanSummary>(const std::string& options)>;

// Draws `summary`, the plan by `options`, and below it the plans by the options to compare with.
// Returns what is to be printed, empty without --draw; writes the file of --svg, but not unless all
// could be drawn. Beside the errors of the plans those of draw::MakePanel and DrawInTerminal.
absl::StatusOr<std::string> DrawPlans(const DrawArguments& arguments, const std::string& options,
                                      PlanSummary summary, const PlanWith& plan);

}  // namespace cpshard
