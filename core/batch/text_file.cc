#include "core/batch/text_file.h"

#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A folder opens, but cannot be read; an empty file has nothing to insert, which is no fault.
  const bool readable = file && (file.peek() != std::ifstream::traits_type::eof() || file.eof());
  if (!readable) return absl::NotFoundError(absl::StrCat("file '", path, "' cannot be read"));
  file.clear();
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  return text.str();
}

}  // namespace cpshard
