#include "client/cli/demo/text.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

namespace fs = std::filesystem;

// Regular files below `folder` whose name `wanted` accepts, sorted. A folder that is not there has
// none.
template <typename Wanted>
std::vector<std::string> FilesBelow(const std::string& folder, Wanted wanted) {
  std::vector<std::string> files;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(folder, options, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && wanted(it->path())) files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> DefaultFiles() {
  std::vector<std::string> files =
      FilesBelow("/usr/share/common-licenses", [](const fs::path&) { return true; });
  const auto add = [&files](std::vector<std::string> more) {
    files.insert(files.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  };
  add(FilesBelow("/usr/share/doc", [](const fs::path& p) { return p.filename() == "copyright"; }));
  add(FilesBelow("/usr/lib/python3", [](const fs::path& p) { return p.extension() == ".py"; }));
  return files;
}

}  // namespace

absl::StatusOr<std::vector<Document>> ReadDocuments(const std::vector<std::string>& files,
                                                    size_t max_bytes) {
  std::vector<Document> documents;
  size_t total = 0;
  for (const std::string& file : files.empty() ? DefaultFiles() : files) {
    if (total >= max_bytes) break;
    absl::StatusOr<std::string> text = ReadTextFile(file);
    if (!text.ok()) {
      if (!files.empty()) return text.status();
      continue;  // a default file that this user may not read
    }
    text->resize(std::min(text->size(), max_bytes - total));
    total += text->size();
    if (!text->empty()) documents.push_back({file, *std::move(text)});
  }
  if (documents.empty()) {
    return absl::NotFoundError("no text was found; name files: cpshard demo FILES...");
  }
  return documents;
}

}  // namespace cpshard::demo
