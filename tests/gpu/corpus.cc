#include "tests/gpu/corpus.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/exec/cuda.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/report.h"
#include "tests/conformance/session.h"
#include "tests/conformance/target.h"
#include "tests/gpu/laid_out.h"

namespace cpshard {
namespace {

constexpr int64_t kPoolBytes = int64_t{64} << 20;  // a Run of a case needs less than one
constexpr int kShown = 5;                          // failures of each kind of memory
constexpr size_t kShownBytes = 400;                // of each

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".jsonl") files.push_back(at->path().string());
  }
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  return absl::NotFoundError(
      absl::StrCat("no .jsonl file in ", folder, error ? ": " + error.message() : ""));
}

using PoolMaker = absl::StatusOr<FixedPool> (*)(int device, int64_t bytes);

struct Memory {
  const char* name;
  PoolMaker pool;  // nullptr: the executor sees the memory of the cases itself
};

constexpr Memory kMemories[] = {
    {"pageable", nullptr}, {"pinned", MakePinnedPool}, {"device", MakeCudaMemoryPool}};

absl::StatusOr<std::shared_ptr<Executor>> ExecutorOver(const Memory& memory) {
  CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, MakeCudaExecutor(0));
  if (memory.pool == nullptr) return executor;
  CPSHARD_ASSIGN_OR_RETURN(FixedPool pool, memory.pool(0, kPoolBytes));
  return MakeLaidOutExecutor(std::move(executor), std::move(pool));
}

// Of lines that say what failed.
std::string FirstOf(const std::string& failures) {
  std::string first;
  int shown = 0;
  for (absl::string_view line : absl::StrSplit(failures, '\n', absl::SkipEmpty())) {
    if (shown++ < kShown) absl::StrAppend(&first, "\n", line.substr(0, kShownBytes));
  }
  if (shown > kShown) absl::StrAppend(&first, "\nand ", shown - kShown, " lines more");
  return first;
}

CorpusOutcome RunOver(const Memory& memory, const std::vector<std::string>& files) {
  const auto executor = ExecutorOver(memory);
  if (!executor.ok()) return {memory.name, false, executor.status().ToString()};
  std::ostringstream failures;
  conformance::Report report(failures, /*verbose=*/false);
  const conformance::Target target = conformance::InProcess(*executor);
  conformance::Session session({}, target, report);
  for (const std::string& file : files) session.RunFile(file);
  return {memory.name, report.ok(), report.Totals() + FirstOf(failures.str())};
}

}  // namespace

absl::StatusOr<std::vector<CorpusOutcome>> RunCorpus(const std::string& folder) {
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(folder));
  std::vector<CorpusOutcome> outcomes;
  for (const Memory& memory : kMemories) outcomes.push_back(RunOver(memory, files));
  return outcomes;
}

}  // namespace cpshard
