// Are the labels at the edges right? A label that is made after the cut, or over a document's end,
// is wrong at the edges alone, where no loss curve shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/verify/labels.h"
#include "client/verify/reference.h"
#include "core/plan/explain.h"

namespace cpshard::verify {

struct EdgeCount {
  int64_t checked = 0, wrong = 0;
};

struct WrongEdge {
  int64_t rank = 0;
  Explanation place;
  std::vector<int64_t> index;  // of the element in the rank's labels
  int64_t expected = 0, found = 0;
  std::string why;      // the expected label is that
  std::string meaning;  // what the found one is; may be empty
  bool as_in_batch = false;
};

struct EdgeProbe {
  std::string not_probed;  // why; empty: it was
  Labels::Rule rule = Labels::Rule::kNeither;
  int64_t agreeing = 0, supervised = 0;  // tokens of the batch that the rule was found by
  // First and last slots of every run of columns that a rank holds, in every row; last tokens of
  // documents. A token that is both counts in both. Padding is not counted.
  EdgeCount shard_edges, document_ends;
  int64_t wrong_as_in_batch = 0;   // labels that the batch has so: its fault, not the cut's
  std::optional<WrongEdge> first;  // one that is not the batch's, if there is any

  bool cut_is_wrong() const { return first && !first->as_in_batch; }
};

// Probes the labels of the ranks asked for: theirs[k] in our dtype and shape.
EdgeProbe ProbeEdges(const Reference& reference, const StreamPlan& stream, const Labels& labels,
                     const std::vector<Tensor>& theirs);

}  // namespace cpshard::verify
