// The files that `cpshard shard` and `pull` write, and `cpshard gather` and `explain` read:
// DIR/rank<r>.safetensors and DIR/layouts.json.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/safetensors.h"
#include "core/exec/shard.h"

namespace cpshard {

// FailedPrecondition: `dir` exists and is not an empty folder.
absl::Status CheckOutputDir(const std::string& dir);

// Writes all files, or none: they take their names only once every one is complete. Of several
// writers that find the folder empty one succeeds. Folders above `dir` are made as needed.
// Errors: CheckOutputDir's, and the system's.
absl::Status WriteRankFiles(const std::string& dir, const std::vector<RankShard>& shards);

// Adds one rank's file, and its layout to layouts.json, to a folder that other ranks write theirs
// to, in other processes too: once all have, the files are those of WriteRankFiles. What the rank
// has there already is replaced. Files are complete when they take their names.
// FailedPrecondition: what others have written there is of another batch or another number of
// ranks; then nothing has changed. Others: the system's, ReadLayouts's.
absl::Status AddRankFile(const std::string& dir, const RankShard& shard);

// The layouts of a layouts.json. NotFound, InvalidArgument.
absl::StatusOr<std::vector<ShardLayout>> ReadLayouts(const std::string& path);

// One rank's file, open.
class RankFile {
 public:
  // The file of the rank that `layout` is of.
  // NotFound: no file; FailedPrecondition: it is of another batch; others as SafetensorsFile.
  static absl::StatusOr<RankFile> Open(const std::string& dir, const ShardLayout& layout);

  const std::string& path() const { return path_; }
  const std::vector<TensorSpec>& tensors() const { return file_.tensors(); }

  // How tensor `index` was cut; nullopt in files that others wrote. InvalidArgument: the file's
  // notes on it are no such thing.
  absl::StatusOr<std::optional<StreamCut>> CutOf(size_t index) const;

  // As SafetensorsFile.
  absl::StatusOr<Tensor> Read(size_t index, BufferPool& pool) { return file_.Read(index, pool); }
  absl::StatusOr<Tensor> ReadElements(size_t index, int64_t first, int64_t count,
                                      BufferPool& pool) {
    return file_.ReadElements(index, first, count, pool);
  }

 private:
  RankFile(std::string path, SafetensorsFile file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  SafetensorsFile file_;
};

// One stream of one rank's file.
struct RankFileStream {
  Tensor tensor;
  std::optional<StreamCut> cut;  // absent in files that others wrote
};

// The stream `name` of the rank that `layout` is of.
// NotFound: no file or no such stream; FailedPrecondition: the file is of another batch.
absl::StatusOr<RankFileStream> ReadRankStream(const std::string& dir, const ShardLayout& layout,
                                              const std::string& name, BufferPool& pool);

}  // namespace cpshard
