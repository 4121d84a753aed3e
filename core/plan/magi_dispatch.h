// MagiAttention's dispatch: a stream cut into chunks of one size, dealt out to ranks by their
// attention workload (contract 7.4, the solver of its release 1.1.1).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/plan/index_map.h"
#include "core/plan/plan.h"

namespace cpshard {

// Chunks of a stream.
inline constexpr int64_t kMaxMagiChunks = int64_t{1} << 19;

struct MagiDispatch {
  int64_t chunk_size = 0;  // k
  int64_t pad_size = 0;    // columns behind the stream, up to whole chunks for every rank
  std::vector<std::vector<int64_t>> chunks_of_rank;  // ascending
  std::vector<IndexMap> partition;                   // local slot <- column, pads included
};

// Allowed (query, key) pairs of each chunk of `chunk_size` columns where documents of these lengths
// attend causally within themselves; columns behind the last document have none.
std::vector<int64_t> CausalAreas(absl::Span<const int64_t> documents, int64_t chunk_size,
                                 int64_t num_chunks);

// Deals chunks with these areas out to `ranks`, chunks / ranks each: the largest first, of equal
// ones the last, always to the rank that has least so far and still has room (of equals the first).
// Precondition: ranks >= 1 divides areas.size().
std::vector<std::vector<int64_t>> DealChunks(absl::Span<const int64_t> areas, int64_t ranks);

// Chunks are of ceil(total / (min_chunks_per_rank * cp_size)) columns, but of `chunk_size` at most.
// InvalidArgument, naming the numbers: an option below 1; no tokens, or beyond int32; a negative
// document; documents that do not sum to `total`; fewer chunks than ranks; more than a plan can
// take. Cost: documents + chunks * log(chunks).
absl::StatusOr<MagiDispatch> DispatchCausal(absl::Span<const int64_t> documents, int64_t total,
                                            int64_t cp_size, int64_t chunk_size,
                                            int64_t min_chunks_per_rank);

// What a dispatch of `rows`, padded to `padded_len` columns, reports of them: their shape where
// nothing was added, else their length where there is one, else neither (contract 7.5).
void ReportMagiRows(RowShape rows, int64_t padded_len, Report& report);

}  // namespace cpshard
