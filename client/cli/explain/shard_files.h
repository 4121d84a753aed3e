// The shards of a batch as they lie in a folder, asked for single tokens: elements are read where
// they lie, not the streams.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/explain/token_streams.h"
#include "client/rank_files.h"
#include "core/batch/batch.h"
#include "core/plan/explain.h"

namespace cpshard::explain {

// What a stream holds for one token.
struct TokenValue {
  std::string name;
  Extent extent = Extent::kLocal;
  int64_t size = 1;  // elements of one token
  Tensor elements;   // the first of them, kShownElements at most
};
inline constexpr int64_t kShownElements = 8;

// Not thread-safe.
class ShardFiles {
 public:
  // Opens the file of one rank, for what the records leave out.
  // NotFound: that file; InvalidArgument: no layouts; others as ShapeOf and LayoutTrace::Of.
  static absl::StatusOr<ShardFiles> Open(std::string dir, std::vector<ShardLayout> layouts);

  const LayoutTrace& trace() const { return trace_; }
  uint64_t batch_digest() const { return layouts_.begin()->second.batch_digest; }

  // Precondition of all that follows: the record of the rank is at hand. Errors are those of
  // RankFile::Open and TokenStreamsOf.

  // What the streams of slot.rank hold at `place`, in the order of their names.
  // Precondition: the rank holds the place in that slot.
  absl::StatusOr<std::vector<TokenValue>> ValuesAt(const TokenPlace& place, RankSlot slot);

  // Of that one stream; nullopt: there is none, or it has nothing there.
  absl::StatusOr<std::optional<TokenValue>> ValueAt(const std::string& name,
                                                    const TokenPlace& place, RankSlot slot);

  // Integers of these streams on all padded columns of a row. A stream is left out if a rank has it
  // not. Precondition: trace().complete(). FailedPrecondition: a file has not the rows, or not the
  // slots, that its record and the others tell.
  struct Row {
    std::vector<int64_t> columns;
    bool three_axes = false;  // positions [3, ...]: the first of them
  };
  using Rows = std::map<std::string, Row>;
  absl::StatusOr<Rows> ReadRow(const std::vector<std::string>& names, int64_t chunk, int64_t row);

  // A stream of integers as any one rank holds it; nullopt: it does not. For what is whole.
  absl::StatusOr<std::optional<Tensor>> ReadWhole(const std::string& name);

 private:
  ShardFiles(std::string dir, std::map<int64_t, ShardLayout> layouts, LayoutTrace trace)
      : dir_(std::move(dir)), layouts_(std::move(layouts)), trace_(std::move(trace)) {}

  absl::StatusOr<TokenValue> Read(RankFile& file, const TokenStream& stream,
                                  absl::Span<const int64_t> offsets);
  absl::Status CheckShapes();
  absl::Status ReadTokens(RankFile& file, const TokenStream& stream, int64_t chunk, int64_t row,
                          std::vector<int64_t>& columns);
  absl::Status ReadPart(RankFile& file, const TokenStream& stream, int64_t rank, int64_t chunk,
                        int64_t row, std::vector<int64_t>& columns);

  std::string dir_;
  std::map<int64_t, ShardLayout> layouts_;
  LayoutTrace trace_;
  bool checked_ = false;  // by CheckShapes
  std::unique_ptr<BufferPool> pool_ = std::make_unique<BufferPool>();
};

}  // namespace cpshard::explain
