// Which documents stand on a row, as the streams of the shards tell.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/explain/shard_files.h"
#include "core/plan/documents.h"

namespace cpshard::explain {

struct RowDocuments {
  // With the spans of one row alone (others are empty). `from` names the stream that told; empty:
  // none did, and the row is one document.
  Documents documents;
  // Why nothing can be said; `documents` has no spans then.
  std::string unknown;
};

// By the first of these that the shards have, and that goes with the columns: cu_seqlens(_padded),
// seq_lens and seq_lens_padded, then the first that tells several documents of (_)packed_seq_ids,
// the ids of Kimi's layouts, position_ids; padding_mask says what of a document is padding at its
// end. All but the first two are put together from all ranks.
// Precondition: the chunk and the row exist. Errors as ShardFiles.
absl::StatusOr<RowDocuments> DocumentsOfRow(ShardFiles& files, int64_t chunk, int64_t row);

}  // namespace cpshard::explain
