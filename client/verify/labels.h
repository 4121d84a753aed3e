// What the label of a token should be, and what a wrong one is. The batch itself tells how its
// labels belong to its ids; nothing is taken from the shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/verify/reference.h"
#include "core/plan/explain.h"
#include "core/plan/value_view.h"

namespace cpshard::verify {

inline constexpr int64_t kIgnored = -100;

// Of input_ids and labels, integers [B, S]. The batch must outlive the object.
class Labels {
 public:
  enum class Rule {
    kNext,     // labels[t] is the id of token t + 1: shifted before the cut
    kOwn,      // labels[t] is the id of token t: the model shifts
    kNeither,  // most labels are neither: nothing can be said
  };

  // FailedPrecondition, saying why nothing can be said of the labels of this batch.
  static absl::StatusOr<Labels> Of(const Batch& batch);

  // By the majority of the supervised tokens: `agreeing` of `supervised` follow it.
  Rule rule() const { return rule_; }
  int64_t agreeing() const { return agreeing_; }
  int64_t supervised() const { return supervised_; }

  int64_t IdOf(SourceToken at) const { return ids_[at.row * columns_ + at.token]; }
  int64_t LabelOf(SourceToken at) const { return labels_[at.row * columns_ + at.token]; }

  struct Expected {
    enum class Kind { kOwnId, kNextId, kDocumentEnd, kRowEnd };
    Kind kind = Kind::kOwnId;
    int64_t label = kIgnored;
    bool may_be_ignored = true;  // the batch does not supervise the token
    bool Allows(int64_t found) const {
      return found == label || (may_be_ignored && found == kIgnored);
    }
  };
  // Of a token's column; nullopt: of padding, or where the rule says nothing. Beyond the row's last
  // token only the batch knows what comes next. Cost: log(runs).
  std::optional<Expected> ExpectedAt(const Reference& reference, const PaddedColumn& column) const;

 private:
  ValueView ids_, labels_;
  int64_t columns_ = 0;
  Rule rule_ = Rule::kNeither;
  int64_t agreeing_ = 0, supervised_ = 0;
};

// Why that label: "the id of token 5, the next".
std::string ReasonOf(const Labels::Expected& expected, const Explanation& place);

// What a label is that is not the expected one, e.g. "the id of token 8 of row 0, the first of
// document 1: the label crosses the end of document 0"; "" when it is nothing in particular.
// Precondition: `place` is a token's that a rank holds.
std::string MeaningOfLabel(const Reference& reference, const Labels& labels,
                           const Explanation& place, int64_t found);

}  // namespace cpshard::verify
