// A folder of rank<r>.safetensors that somebody else wrote: tensors under the trainer's own names,
// and nothing of ours in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"

namespace cpshard::verify {

// Immutable. Files are not kept open: there may be more ranks than a process may open files.
class RankFolder {
 public:
  // Reads the headers of the files of `ranks`. NotFound, with the ranks that are there: no such
  // folder, no rank files in it, or not that of a rank asked for. InvalidArgument: a file that is
  // corrupt (SafetensorsFile::Open).
  static absl::StatusOr<RankFolder> Open(const std::string& dir, absl::Span<const int64_t> ranks);

  // Ranks that have a file, asked for or not, ascending.
  const std::vector<int64_t>& present() const { return present_; }

  // Streams that any of the files asked for has, by name.
  std::vector<TensorSpec> Streams() const;

  // The stream as the file of ranks[k] has it; nullptr: it has none.
  const TensorSpec* Find(size_t k, const std::string& name) const;

  // Its bytes. Precondition: Find(k, name) is not null. ResourceExhausted: the pool; others when
  // the file has changed meanwhile.
  absl::StatusOr<Tensor> Read(size_t k, const std::string& name, BufferPool& pool) const;

 private:
  std::string dir_;
  std::vector<int64_t> present_;
  std::vector<int64_t> ranks_;
  std::vector<std::vector<TensorSpec>> specs_;  // one per rank of ranks_
};

}  // namespace cpshard::verify
