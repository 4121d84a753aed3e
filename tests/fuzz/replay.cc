// fuzz_replay TARGET FOLDER...: feeds every file of the folders (a folder may be absent) to a
// target. A broken promise aborts, with the name of the file printed last.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

namespace {

std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const cpshard::fuzz::Target target = argc < 3 ? nullptr : cpshard::fuzz::FindTarget(argv[1]);
  if (target == nullptr) {
    std::cerr << "usage: fuzz_replay TARGET FOLDER...\n";
    return 64;
  }
  int count = 0;
  for (int i = 2; i < argc; ++i) {
    for (const std::filesystem::path& path : FilesOf(argv[i])) {
      std::cout << path.string() << std::endl;
      std::ifstream file(path, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      target(bytes);
      ++count;
    }
  }
  std::cout << count << " files\n";
  return count > 0 ? 0 : 1;
}
