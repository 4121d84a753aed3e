// The files that `cpshard shard` writes and `cpshard gather` reads: DIR/rank<r>.safetensors and
// DIR/layouts.json.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/shard.h"

namespace cpshard {

// FailedPrecondition: `dir` exists and is not an empty folder.
absl::Status CheckOutputDir(const std::string& dir);

// Writes all files, or none: they take their names only once every one is complete. Of several
// writers that find the folder empty one succeeds. Folders above `dir` are made as needed.
// Errors: CheckOutputDir's, and the system's.
absl::Status WriteRankFiles(const std::string& dir, const std::vector<RankShard>& shards);

// The layouts of a layouts.json. NotFound, InvalidArgument.
absl::StatusOr<std::vector<ShardLayout>> ReadLayouts(const std::string& path);

// One stream of one rank's file.
struct RankStream {
  Tensor tensor;
  std::optional<StreamCut> cut;  // absent in files that others wrote
};

// The stream `name` of the rank that `layout` is of.
// NotFound: no file or no such stream; FailedPrecondition: the file is of another batch.
absl::StatusOr<RankStream> ReadRankStream(const std::string& dir, const ShardLayout& layout,
                                          const std::string& name, BufferPool& pool);

}  // namespace cpshard
