// How evenly a plan spreads the work of attention and the tokens over the ranks (design: area of
// the mask per rank; time of the step goes with the largest).
//
// Area counts query-key pairs. A query at position x of a document of L columns attends to x + 1
// keys under a causal mask and to L under a full one. A run of queries [a, b) of one document has
// the area (b - a) * (a + b + 1) / 2 or (b - a) * L in closed form: cost is that of runs and
// documents, never of tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/documents.h"
#include "core/plan/plan.h"

namespace cpshard {

enum class AttentionMask { kCausal, kFull };

struct AttentionArea {
  std::vector<double> ranks;  // pairs that each rank's queries work through, padding inside
                              // documents included (kernels compute it)
  double scheduled = 0;       // of all ranks
  double useful = 0;          // ... of real queries and keys alone
                              // (where every rank holds all columns, both count them all)

  // I_attn: the largest rank's area over the mean; 1 = perfectly even. 1 where there is no area.
  double imbalance() const;
};

// The area over all rows and chunks. Precondition: `documents` is of this plan.
AttentionArea AreaOf(const ShardPlan& plan, const Documents& documents, AttentionMask mask);

struct Balance {
  AttentionArea causal_rows, full_rows;  // every row taken as one document
  // Per document; absent where nothing tells documents (Documents::from is empty).
  std::optional<AttentionArea> causal_documents, full_documents;

  std::vector<int64_t> slots;      // per rank, of all rows and chunks
  double slot_imbalance = 1;       // I_tok: largest over mean
  int64_t pad_columns = 0;         // of all rows: what is no real token of a document
  int64_t padded_columns = 0;      // all columns of all rows
  std::vector<int64_t> only_pads;  // ranks that hold slots, but no real token

  double pad_fraction() const;  // 0 where there are no columns
};

// Of a plan that reports a layout. Precondition: plan.chunks is not empty; `documents` is of it.
Balance BalanceOf(const ShardPlan& plan, const Documents& documents);

}  // namespace cpshard
