// What a value is that should not stand where it was found.
#pragma once

#include <string>

#include "client/verify/labels.h"
#include "client/verify/reference.h"
#include "core/batch/batch.h"
#include "core/plan/plan.h"

namespace cpshard::verify {

// One element of a stream of tokens.
struct OddElement {
  const StreamPlan* stream = nullptr;
  int64_t rank = 0;
  const Tensor* ours = nullptr;  // the rank's part; theirs has the same dtype and shape
  const Tensor* theirs = nullptr;
  int64_t element = 0;  // index in both
  ElementPlace at;
  Explanation place;         // held by `rank` alone
  bool other_ranks = false;  // the whole part is known to be others': no guesses at one value
};

// In words: a pad counted as real, a label of the next document, or - where the value stands in our
// stream before the cut - the token it belongs to and the rank that holds it. "" when it is nothing
// in particular. `labels` may be null. ResourceExhausted: the pool.
absl::StatusOr<std::string> MeaningOf(const Reference& reference, const Labels* labels,
                                      const OddElement& odd);

}  // namespace cpshard::verify
