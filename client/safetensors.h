// safetensors files: the header is read and checked first, then the bytes that are wanted.
//
// A file is 8 bytes of header length (little endian), a JSON header, then the tensors' bytes. The
// header's `__metadata__` holds strings; a batch keeps its scalars there (docs/WIRE.md):
// integers and true/false as JSON, all else as text; the key `format` is safetensors' own.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"

namespace cpshard {

// An open file whose header is read.
class SafetensorsFile {
 public:
  // NotFound: the file cannot be read. InvalidArgument, naming file and tensor: it is truncated or
  // corrupt, a name is there twice, a dtype has no counterpart here, tensors overlap or leave gaps.
  // No byte of a tensor is read.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // In the order of their bytes.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // All tensors, as windows on one buffer. ResourceExhausted: the pool; InvalidArgument: the file
  // has become shorter.
  absl::StatusOr<std::vector<Tensor>> ReadAll(BufferPool& pool);

  // One of them. Precondition: index < tensors().size().
  absl::StatusOr<Tensor> Read(size_t index, BufferPool& pool);

  // `count` elements of it from the one at `first` on, row-major, as a tensor [count].
  // Precondition: they lie inside.
  absl::StatusOr<Tensor> ReadElements(size_t index, int64_t first, int64_t count, BufferPool& pool);

 private:
  absl::StatusOr<Buffer> ReadBytes(int64_t begin, int64_t end, BufferPool& pool);

  std::string path_;
  std::ifstream file_;
  int64_t body_ = 0;  // where the tensors' bytes begin in the file
  std::vector<TensorSpec> tensors_;
  std::vector<int64_t> begins_;  // of the tensors, in the body
  std::map<std::string, std::string> metadata_;
};

// Writes a file with these tensors and metadata.
// Deterministic: tensors by falling element size, then by name, so that all are aligned.
absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

// A file as a batch: metadata become scalars. What ValidateSpec refuses is refused before the
// bytes are read. Other errors as SafetensorsFile.
absl::StatusOr<Batch> ReadBatch(const std::string& path, const Limits& limits, BufferPool& pool);

// The metadata form of scalars, and back.
std::map<std::string, std::string> ScalarsToMetadata(const std::vector<ScalarEntry>& scalars);
std::vector<ScalarEntry> ScalarsFromMetadata(const std::map<std::string, std::string>& metadata);

}  // namespace cpshard
