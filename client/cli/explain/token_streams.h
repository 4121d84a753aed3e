// How the streams of a shard stand to its tokens: on which axis, and what is counted there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/rank_files.h"
#include "core/plan/explain.h"

namespace cpshard::explain {

// A stream that has a value for every token of the shard, or of the batch.
struct TokenStream {
  enum class By { kSlot, kColumn, kToken };  // what counts on `axis`

  size_t index = 0;  // of the file's tensors
  TensorSpec spec;
  Extent extent = Extent::kLocal;
  By by = By::kSlot;
  int axis = 0;
  std::optional<int> row_axis, chunk_axis;
};

// What the streams tell that the record leaves out.
// FailedPrecondition: no stream goes with the layout, or one of the usual names does not.
// InvalidArgument: a stream was cut on an axis that it does not have.
absl::StatusOr<LayoutTrace::StreamShape> ShapeOf(const RankFile& file, const ShardLayout& layout);

// In the file's order. Errors: InvalidArgument, as above.
absl::StatusOr<std::vector<TokenStream>> TokenStreamsOf(const RankFile& file,
                                                        const ShardLayout& layout,
                                                        const LayoutTrace& trace);

// Where the elements of one token lie in the tensor: row-major, the first `limit` of them. None: it
// has nothing there (in the caller's columns there is no padding).
// Precondition: rank slot.rank holds `place` in that slot.
std::vector<int64_t> OffsetsAt(const TokenStream& stream, const LayoutTrace& trace,
                               const TokenPlace& place, RankSlot slot, int64_t limit);

// How many elements a token has: 3 of three position axes, H of embeddings.
int64_t ElementsOf(const TokenStream& stream);

// Streams about documents rather than tokens, whatever their shape.
bool IsAboutDocuments(absl::string_view name);

}  // namespace cpshard::explain
