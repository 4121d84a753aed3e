// One stream of somebody else's shards beside ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/verify/cause.h"
#include "client/verify/labels.h"
#include "client/verify/rank_folder.h"
#include "client/verify/reference.h"
#include "core/plan/explain.h"
#include "core/plan/plan.h"

namespace cpshard::verify {

enum class Verdict { kEqual, kDifferent, kMissing };

absl::string_view VerdictName(Verdict verdict);  // "EQUAL", "DIFFERENT", "MISSING"

struct RankCount {
  int64_t rank = 0;
  int64_t differing = 0, elements = 0;
};

struct FirstDifference {
  int64_t rank = 0;
  std::vector<int64_t> index;        // of the element in the rank's tensor
  std::optional<Explanation> place;  // absent: the stream's elements are no tokens
  std::string expected, found;
  std::string meaning;  // what the found value is; may be empty
};

struct StreamFinding {
  TensorSpec ours;  // as the first rank asked for has it
  Extent extent = Extent::kLocal;
  Verdict verdict = Verdict::kEqual;
  std::vector<int64_t> absent;           // kMissing: ranks whose files do not have it
  std::optional<TensorSpec> theirs;      // of the first rank with another dtype or shape
  std::optional<Cause> cause;            // where one reason explains all
  std::vector<Cause> other_causes;       // ... or one of these would
  std::vector<RankCount> differing;      // ranks whose elements differ; none where they cannot be
                                         // set against each other
  std::optional<FirstDifference> first;  // of the lowest such rank
};

// What is behind the references must outlive the object; `labels` may be null.
class Comparison {
 public:
  Comparison(const Reference& reference, const RankFolder& folder, const Labels* labels)
      : reference_(reference), folder_(folder), labels_(labels) {}

  // ResourceExhausted: the pool; others of the files.
  absl::StatusOr<StreamFinding> Compare(const StreamPlan& stream) const;

  // Their parts in the dtypes and shapes of ours, up to the first that cannot be that.
  struct Read {
    std::vector<Tensor> theirs;
    std::optional<size_t> odd;
  };
  // Precondition: the file of every rank asked for has the stream; `ours` are its parts.
  absl::StatusOr<Read> ReadLike(const std::vector<Tensor>& ours) const;

 private:
  absl::Status CompareParts(StreamParts& parts, StreamFinding& finding) const;
  absl::Status ExplainOdd(const StreamParts& parts, size_t k, StreamFinding& finding) const;
  absl::StatusOr<FirstDifference> Explained(const StreamParts& parts, size_t k, int64_t element,
                                            bool other_ranks) const;

  const Reference& reference_;
  const RankFolder& folder_;
  const Labels* labels_;
};

}  // namespace cpshard::verify
