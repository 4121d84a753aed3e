#include "client/verify/rank_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/safetensors.h"
#include "client/verify/wording.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

namespace fs = std::filesystem;

std::string FileOf(const std::string& dir, int64_t rank) {
  return absl::StrCat(dir, "/rank", rank, ".safetensors");
}

// The rank in "rank12.safetensors", written as FileOf writes it.
std::optional<int64_t> RankInName(const std::string& name) {
  absl::string_view digits = name;
  int64_t rank = 0;
  if (!absl::ConsumePrefix(&digits, "rank") || !absl::ConsumeSuffix(&digits, ".safetensors") ||
      !absl::SimpleAtoi(digits, &rank) || rank < 0 || absl::StrCat(rank) != digits) {
    return std::nullopt;
  }
  return rank;
}

absl::StatusOr<std::vector<int64_t>> RanksIn(const std::string& dir) {
  std::error_code error;
  std::vector<int64_t> ranks;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const std::optional<int64_t> rank = RankInName(at->path().filename().string());
    if (rank) ranks.push_back(*rank);
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("the folder '", dir, "' cannot be read: ", error.message()));
  }
  std::sort(ranks.begin(), ranks.end());
  if (!ranks.empty()) return ranks;
  return absl::NotFoundError(absl::StrCat(
      "'", dir, "' has no file rank0.safetensors, rank1.safetensors, ...: one per rank"));
}

absl::Status CheckPresent(const std::string& dir, absl::Span<const int64_t> asked,
                          const std::vector<int64_t>& present) {
  std::vector<int64_t> missing;
  for (const int64_t rank : asked) {
    if (!std::binary_search(present.begin(), present.end(), rank)) missing.push_back(rank);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "'", dir, "' has no file of ", RanksText(missing), "; there are files of ",
      RanksText(present), "; name the ranks to compare (--ranks), or check the group's size"));
}

}  // namespace

absl::StatusOr<RankFolder> RankFolder::Open(const std::string& dir,
                                            absl::Span<const int64_t> ranks) {
  RankFolder folder;
  folder.dir_ = dir;
  folder.ranks_.assign(ranks.begin(), ranks.end());
  CPSHARD_ASSIGN_OR_RETURN(folder.present_, RanksIn(dir));
  CPSHARD_RETURN_IF_ERROR(CheckPresent(dir, ranks, folder.present_));
  for (const int64_t rank : ranks) {
    CPSHARD_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(FileOf(dir, rank)));
    folder.specs_.push_back(file.tensors());
  }
  return folder;
}

std::vector<TensorSpec> RankFolder::Streams() const {
  std::map<std::string, TensorSpec> by_name;
  for (const std::vector<TensorSpec>& specs : specs_) {
    for (const TensorSpec& spec : specs) by_name.emplace(spec.name, spec);
  }
  std::vector<TensorSpec> streams;
  for (auto& [name, spec] : by_name) streams.push_back(std::move(spec));
  return streams;
}

const TensorSpec* RankFolder::Find(size_t k, const std::string& name) const {
  for (const TensorSpec& spec : specs_[k]) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

absl::StatusOr<Tensor> RankFolder::Read(size_t k, const std::string& name, BufferPool& pool) const {
  const std::string path = FileOf(dir_, ranks_[k]);
  CPSHARD_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    if (file.tensors()[i].name == name && file.tensors()[i] == *Find(k, name)) {
      return file.Read(i, pool);
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", path, "' has changed while it was compared"));
}

}  // namespace cpshard::verify
