// Document maps of rows: which document each token is of, 1-based, 0 = padding (contract 4.12 step
// 1, 4.16 step 3). Used by layouts/*.cc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"
#include "core/plan/token_rows.h"
#include "core/plan/value_view.h"

namespace cpshard {

struct DocumentMap {
  std::vector<int64_t> dims;  // [B, S, ...], or [1, S] of boundaries
  Expression ids;             // i32
  Expression padding;         // bool: id <= 0
  std::optional<Notice> notice;
  // The same, where lengths or boundaries say it: LayoutPlan::documents. As in the map, padding of
  // a document counts as real (D15).
  std::vector<std::vector<DocumentSpan>> documents;
};

enum class MapSource { kPackedIds, kAttentionMask, kLengths, kBoundaries, kPaddingMask };

// What the map is made of: the first that the batch has of _packed_seq_ids, a 2-D attention_mask,
// seq_lens_padded or seq_lens, cu_seqlens where `boundaries` allows it, else padding_mask or
// nothing.
MapSource MapSourceOf(const BatchSpec& spec, bool boundaries);

// Streams whose values the map needs.
std::vector<std::string> MapNeeds(const BatchSpec& spec, bool boundaries);

// InvalidArgument: the stream that it is made of is not of the rows' shape (D5); what
// PackedLengths refuses.
absl::StatusOr<DocumentMap> MakeDocumentMap(const BatchSpec& spec, const PlanValues& values,
                                            const RowStreams& streams, const TokenRows& rows,
                                            bool boundaries);

// Adds the map whole as `prefix`doc_ids, where the slice of each rank begins as `prefix`seq_start,
// `prefix`cp_size, and padding_mask where the batch has none (contract 4.12 steps 5 and 6, 4.16
// steps 7 and 8).
void EmitDocumentMap(absl::string_view prefix, const DocumentMap& map, const BatchSpec& spec,
                     int64_t local_len, RowStreams& streams);

}  // namespace cpshard
