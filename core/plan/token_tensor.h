// Token verbs as plans (contract section 9): one token-aligned tensor of the caller's, put where
// the tokens of a batch were put. What is decided is decided in token_verbs.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/plan/element.h"
#include "core/plan/index_map.h"
#include "core/plan/plan.h"
#include "core/plan/shard_layout.h"
#include "core/plan/spec.h"
#include "core/plan/token_verbs.h"

namespace cpshard {

// Padded columns that the ranks hold, as a shard reported them.
struct CapturedMap {
  int64_t columns = 0;         // the length that the maps are of
  std::vector<IndexMap> maps;  // one per rank; no fill
};

// Which padded columns every rank holds, as a verb is told of it (contract 9.1).
struct HeldColumns {
  enum class ClosedForm { kIdentity, kContiguous, kRoundRobin };
  std::optional<CapturedMap> captured;  // wins over the closed form
  std::optional<ClosedForm> closed_form;
  int64_t cp_size = 1;  // of the closed form; 1 without a mesh
};

// What the layouts hold. Rank i of the map is layouts[i], which need not be all ranks: a rank can
// cut for itself. FailedPrecondition: there is no layout, or nothing that it says where tokens
// went. InvalidArgument: runs that are none.
absl::StatusOr<CapturedMap> CapturedMapOf(absl::Span<const ShardLayout> layouts);

// The map of each rank over `columns` columns. InvalidArgument: cp_size is not 1 ... max_ranks, or
// does not divide the columns as the map needs it. FailedPrecondition: there is no map, or captured
// ones are of another length, or not within it.
absl::StatusOr<std::vector<IndexMap>> PartitionOf(const HeldColumns& map, int64_t columns,
                                                  const Limits& limits = {});

// What the decisions of 9.2 and 9.3 ask for. FailedPrecondition: positions or a row shape that are
// not what their own numbers say (a record comes from a peer or a file).
absl::StatusOr<TokenLayout<int64_t>> TokenLayoutOf(const ShardLayout& layout);
absl::StatusOr<TokenColumns<int64_t>> TokenColumnsOf(const HeldColumns& map,
                                                     const Limits& limits = {});

// The status of a refusal that is about the tensor `name`.
absl::Status StatusFor(const Refusal& refusal, absl::string_view name);

struct ShardTokenOptions {
  int64_t seq_dim = 1;         // negative counts from the end; not read where the layout
                               // repositions or merges (T49)
  std::optional<Number> fill;  // what stands on slots that none of the caller's tokens has
};

// shard_token_tensor (9.2): the plan with this tensor as its one stream, rank i by map's i. Of
// `layout` the fields 2 to 5 are read.
// FailedPrecondition: no map; the layout is not of this tensor; positions that are no placement.
// InvalidArgument: no such axis; a `fill` that is needed and missing, or that the dtype cannot
// hold; a length that the closed form does not divide.
absl::StatusOr<ShardPlan> PlanShardToken(const ShardLayout& layout, const HeldColumns& map,
                                         const TensorSpec& tensor, const ShardTokenOptions& options,
                                         const Limits& limits = {});

// Left halos (4.18): what stands before each rank's columns of a sequence [B, P, C] that is cut in
// equal slices, [B, history, C], zero before the beginning; at one rank zeros. Slices shorter than
// `history` take from several ranks. InvalidArgument: another rank of `sequence`; history < 0; a
// cp_size that is not 1 ... max_ranks or does not divide P.
absl::StatusOr<ShardPlan> PlanLeftHalo(const TensorSpec& sequence, int64_t history, int64_t cp_size,
                                       const Limits& limits = {});

}  // namespace cpshard
