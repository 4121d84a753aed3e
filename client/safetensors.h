// safetensors files: read and written as a whole.
//
// A file is 8 bytes of header length (little endian), a JSON header, then the tensors' bytes. The
// header's `__metadata__` holds strings; a batch keeps its scalars there (architecture.md 6):
// integers and true/false as JSON, all else as text; the key `format` is safetensors' own.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"

namespace cpshard {

// A file as it stands: nothing is interpreted.
struct Safetensors {
  std::vector<Tensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// NotFound and others: the file cannot be read. InvalidArgument, naming file and tensor: it is
// truncated or corrupt, a name is there twice, a dtype has no counterpart here, tensors overlap or
// leave gaps.
absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path, BufferPool& pool);

// The bytes of a file with these tensors and metadata.
// Deterministic: tensors by falling element size, then by name, so that all are aligned.
absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

// A file as a batch: metadata become scalars. Errors as ReadSafetensors.
absl::StatusOr<Batch> ReadBatch(const std::string& path, BufferPool& pool);

// The metadata form of scalars, and back.
std::map<std::string, std::string> ScalarsToMetadata(const std::vector<ScalarEntry>& scalars);
std::vector<ScalarEntry> ScalarsFromMetadata(const std::map<std::string, std::string>& metadata);

}  // namespace cpshard
