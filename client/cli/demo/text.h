// Real text for the demo: files as documents of bytes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cpshard::demo {

struct Document {
  std::string name;
  std::string text;  // one token a byte
};

// The files named, or, when none is named, text that any machine has (licences, copyright notes,
// Python sources), in a fixed order, until `max_bytes` are read. Empty files are left out.
// NotFound: a named file cannot be read, or no text is found.
absl::StatusOr<std::vector<Document>> ReadDocuments(const std::vector<std::string>& files,
                                                    size_t max_bytes);

}  // namespace cpshard::demo
