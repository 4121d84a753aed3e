// What a batch holds, counted before the cut: a trainer that has one rank's shard cannot count it
// without a reduction over the CP group.
//
// All numbers but `ranks` are of the whole batch as the CP group sees it: already summed over the
// ranks of the group (not over data-parallel replicas). Adding them up over the group's ranks again
// counts everything cp_size times.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/documents.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard {

inline constexpr int64_t kIgnoredLabel = -100;

// real + pad = all columns (or slots) that are counted. A column is padding when it has no source,
// lies outside the real columns of the documents (where something tells documents), or a mask says
// so: the padding_mask that the ranks are given, whatever the layout makes it of; else the batch's
// own padding_mask (not 0), else its attention_mask (0). Where the layout goes by lengths, a mask
// that it does not pass on does not count. Masks are read in the shape [B, S]; of others, and of
// what `values` does not hold, nothing is known, and their tokens are real.
//
// Supervised is what a loss counts by the labels that were sent: its label is not -100, on padding
// too. A column without a source never is, as layouts give it the label -100. Where a loss mask
// stands in for labels nothing is known.
struct TokenCounts {
  int64_t real = 0;
  int64_t pad = 0;
  std::optional<int64_t> supervised;  // label is not -100; absent where labels are not at hand
  friend bool operator==(const TokenCounts&, const TokenCounts&) = default;
};

struct DocumentCounts {
  int64_t chunk = 0, row = 0;
  DocumentSpan span;  // padded columns
  TokenCounts tokens;
  friend bool operator==(const DocumentCounts&, const DocumentCounts&) = default;
};

// Whether documents are counted one by one too: an answer that has no place for them need not.
enum class Detail { kDocuments, kBatch };

struct Totals {
  // Of the labels as they came, [B, S], those of tokens that the layout drops too; absent where
  // they are not at hand, floating, or of another shape.
  std::optional<int64_t> num_label_tokens;  // labels that are not -100
  std::optional<int64_t>
      num_tokens_excl_tail_pad;  // tokens but for each row's trailing run of -100

  // All padded columns, once, of all rows and chunks. A plan without a layout has none: then
  // nothing is counted here, and `ranks` is empty.
  TokenCounts batch;
  // One per rank: its slots. They add up to `batch`, but where every rank holds all columns
  // (identity): there each is `batch`.
  std::vector<TokenCounts> ranks;
  int64_t num_documents = 0;              // of all rows and chunks; 0 where nothing tells them
  std::vector<DocumentCounts> documents;  // by chunk, row, column; none with Detail::kBatch

  // Ranks that hold slots but nothing supervised: a mean over their tokens divides by zero.
  std::vector<int64_t> unsupervised_ranks() const;
};

// Counts with what `values` holds of TotalsNeeds. Precondition: `documents` is of this plan, which
// is of this spec and passed CheckedOutputBytes. Thread-safe. Cost: one pass over labels and mask,
// then rows times runs and documents; up to half a byte per token of memory.
Totals TotalsOf(const ShardPlan& plan, const Documents& documents, const BatchSpec& spec,
                const PlanValues& values, Detail detail = Detail::kDocuments);

// Names of the streams that TotalsOf reads where it can; those that the batch has.
std::vector<std::string> TotalsNeeds(const BatchSpec& spec);

}  // namespace cpshard
