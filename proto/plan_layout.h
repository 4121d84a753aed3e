// The verb "plan": what is known of a batch in, all that can be said of its layout out. The server
// and the command line do it by this code.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/spec.h"
#include "proto/codec.h"
#include "proto/replies.h"

namespace cpshard {

enum class PlanReply {
  kOfACall,  // it has to fit kMaxUnaryBytes
  kHere,
};

// `request.batch` holds those tensors of the spec whose bytes are at hand, and at least their specs
// (a tensor with elements and without bytes is a spec alone). Where the layout reads the values of
// such a tensor there is no layout in the summary, and its `needs` says which are read. With
// document_lengths and a spec without entries only pad_costs are answered.
// Errors: what the options, the plan and the queries are refused for; ResourceExhausted: the
// layouts alone are over kMaxUnaryBytes of a call.
absl::StatusOr<PlanSummary> PlanLayoutOf(const Request& request, const PlanQuestions& questions,
                                         const Limits& limits, PlanReply reply);

}  // namespace cpshard
