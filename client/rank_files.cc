#include "client/rank_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"
#include "proto/json.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

namespace fs = std::filesystem;

constexpr char kDigestKey[] = "_cpshard.batch_digest";
constexpr char kStreamsKey[] = "_cpshard.streams";
constexpr char kLayoutsFile[] = "layouts.json";

std::string FileOf(int64_t rank) { return absl::StrCat("rank", rank, ".safetensors"); }

// {"input_ids": {"extent": "local", "seq_axis": 1}, ...}: what a gather needs to know.
std::string StreamsToJson(const RankShard& shard) {
  nlohmann::json streams = nlohmann::json::object();
  for (size_t i = 0; i < shard.cuts.size(); ++i) {
    nlohmann::json entry = {{"extent", std::string(ExtentName(shard.cuts[i].extent))}};
    if (shard.cuts[i].extent != Extent::kWhole) entry["seq_axis"] = shard.cuts[i].seq_axis;
    streams[shard.batch.tensors[i].spec.name] = std::move(entry);
  }
  return streams.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What the file says of `name`; nullopt when it says nothing.
absl::StatusOr<std::optional<StreamCut>> CutFromJson(const std::string& path,
                                                     const std::string& json,
                                                     const std::string& name) {
  CPSHARD_RETURN_IF_ERROR(CheckStrictJson(json, absl::StrCat("'", path, "': ", kStreamsKey)));
  const nlohmann::json streams = nlohmann::json::parse(json, nullptr, false);
  if (streams.is_object() && !streams.contains(name)) return std::nullopt;
  const nlohmann::json entry = streams.is_object() ? streams[name] : nlohmann::json();
  for (Extent extent : {Extent::kLocal, Extent::kPadded, Extent::kWhole}) {
    if (!entry.is_object() ||
        entry.value("extent", nlohmann::json()) != std::string(ExtentName(extent))) {
      continue;
    }
    StreamCut cut{extent};
    if (extent == Extent::kWhole) return cut;
    const nlohmann::json axis = entry.value("seq_axis", nlohmann::json());
    if (!axis.is_number_unsigned() || axis.get<uint64_t>() > 64) break;
    cut.seq_axis = axis.get<int>();
    return cut;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "': ", kStreamsKey, " does not say how stream '", name, "' was cut"));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", path, "'"));
}

absl::Status WriteShard(const std::string& path, const RankShard& shard) {
  std::map<std::string, std::string> metadata = ScalarsToMetadata(shard.batch.scalars);
  metadata[kDigestKey] = absl::StrCat(shard.layout.batch_digest);
  metadata[kStreamsKey] = StreamsToJson(shard);
  return WriteSafetensors(path, shard.batch.tensors, metadata);
}

// Writes all files into `folder`; `names` receives their names.
absl::Status WriteAll(const std::string& folder, const std::vector<RankShard>& shards,
                      std::vector<std::string>& names) {
  std::vector<ShardLayout> layouts;
  for (const RankShard& shard : shards) {
    names.push_back(FileOf(shard.layout.cp_rank));
    CPSHARD_RETURN_IF_ERROR(WriteShard(absl::StrCat(folder, "/", names.back()), shard));
    layouts.push_back(shard.layout);
  }
  names.push_back(kLayoutsFile);
  return WriteText(absl::StrCat(folder, "/", names.back()), LayoutsToJson(layouts));
}

absl::Status MoveAll(const std::string& from, const std::string& to,
                     const std::vector<std::string>& names) {
  std::error_code error;
  for (const std::string& name : names) {
    fs::rename(fs::path(from) / name, fs::path(to) / name, error);
    if (error) {
      return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write '", to, "/", name, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status NotEmpty(const std::string& dir) {
  return absl::FailedPreconditionError(
      absl::StrCat("'", dir, "' must be absent or an empty folder; nothing was written"));
}

// Makes `dir` and what is missing above it; `made` receives what was made, deepest last.
absl::Status MakeFolders(const fs::path& dir, std::vector<fs::path>& made) {
  std::error_code error;
  if (fs::is_directory(dir, error)) return absl::OkStatus();
  if (dir.has_parent_path() && dir.parent_path() != dir) {
    CPSHARD_RETURN_IF_ERROR(MakeFolders(dir.parent_path(), made));
  }
  if (fs::create_directory(dir, error)) made.push_back(dir);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make the folder '", dir.string(), "': ", error.message()));
}

// Holds a folder for its lifetime against others who do so too. It ends with the process.
class HeldFolder {
 public:
  static absl::StatusOr<HeldFolder> Hold(const std::string& dir) {
    HeldFolder held(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held.fd_ < 0 || flock(held.fd_, LOCK_EX) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock the folder '", dir, "'"));
    }
    return held;
  }
  HeldFolder(HeldFolder&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HeldFolder& operator=(HeldFolder&&) = delete;
  ~HeldFolder() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit HeldFolder(int fd) : fd_(fd) {}
  int fd_;
};

// The layouts of `dir` with that of another rank, by rank.
absl::StatusOr<std::vector<ShardLayout>> WithLayout(const std::string& dir,
                                                    const ShardLayout& layout) {
  std::vector<ShardLayout> layouts;
  const std::string path = absl::StrCat(dir, "/", kLayoutsFile);
  std::error_code error;
  if (fs::exists(path, error)) {
    CPSHARD_ASSIGN_OR_RETURN(layouts, ReadLayouts(path));
  }
  std::erase_if(layouts, [&](const auto& other) { return other.cp_rank == layout.cp_rank; });
  for (const ShardLayout& other : layouts) {
    if (other.batch_digest == layout.batch_digest && other.cp_size == layout.cp_size) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "'", dir, "' has rank ", other.cp_rank, " of ", other.cp_size, " of batch ",
        other.batch_digest, ", and rank ", layout.cp_rank, " of ", layout.cp_size, " of batch ",
        layout.batch_digest, " does not go with it; use another folder"));
  }
  const auto behind = std::find_if(layouts.begin(), layouts.end(), [&](const auto& other) {
    return other.cp_rank > layout.cp_rank;
  });
  layouts.insert(behind, layout);
  return layouts;
}

}  // namespace

absl::Status CheckOutputDir(const std::string& dir) {
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  if (status.type() == fs::file_type::not_found) {
    fs::path above = fs::absolute(dir).lexically_normal();
    while (!fs::exists(above, error) && above.has_relative_path()) above = above.parent_path();
    if (fs::is_directory(above, error)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("'", dir, "' cannot be made: '", above.string(), "' is not a folder"));
  }
  const bool empty = status.type() == fs::file_type::directory && fs::is_empty(dir, error);
  return empty && !error ? absl::OkStatus() : NotEmpty(dir);
}

absl::Status WriteRankFiles(const std::string& dir, const std::vector<RankShard>& shards) {
  CPSHARD_RETURN_IF_ERROR(CheckOutputDir(dir));
  std::vector<fs::path> made;
  absl::Status status = MakeFolders(fs::absolute(dir).lexically_normal(), made);
  // A folder inside the target is both where files are complete before they take their names, and
  // the claim of this writer: of two that found the target empty only one can make it.
  const std::string partial = absl::StrCat(dir, "/.partial");
  std::error_code error;
  bool claimed = false;
  std::vector<std::string> names;
  if (status.ok()) {
    claimed = fs::create_directory(partial, error);
    if (error) status = absl::ErrnoToStatus(error.value(), absl::StrCat("'", dir, "'"));
  }
  if (status.ok()) {
    const auto entries = std::distance(fs::directory_iterator(dir, error), {});
    status = claimed && entries == 1 ? WriteAll(partial, shards, names) : NotEmpty(dir);
  }
  if (status.ok()) {
    status = MoveAll(partial, dir, names);
    for (const std::string& name : names) {
      if (!status.ok()) fs::remove(fs::path(dir) / name, error);
    }
  }
  if (claimed) fs::remove_all(partial, error);
  if (!status.ok()) {  // a folder that another writer has filled meanwhile is not empty and stays
    for (auto it = made.rbegin(); it != made.rend(); ++it) fs::remove(*it, error);
  }
  return status;
}

absl::Status AddRankFile(const std::string& dir, const RankShard& shard) {
  std::vector<fs::path> made;
  CPSHARD_RETURN_IF_ERROR(MakeFolders(fs::absolute(dir).lexically_normal(), made));
  CPSHARD_ASSIGN_OR_RETURN(const HeldFolder held, HeldFolder::Hold(dir));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<ShardLayout> layouts, WithLayout(dir, shard.layout));
  const std::string partial = absl::StrCat(dir, "/.partial");  // one a folder: it is held
  std::error_code error;
  fs::create_directory(partial, error);
  std::vector<std::string> names = {FileOf(shard.layout.cp_rank), kLayoutsFile};
  absl::Status status = WriteShard(absl::StrCat(partial, "/", names[0]), shard);
  if (status.ok()) {
    status = WriteText(absl::StrCat(partial, "/", names[1]), LayoutsToJson(layouts));
  }
  if (status.ok()) status = MoveAll(partial, dir, names);
  fs::remove_all(partial, error);
  return status;
}

absl::StatusOr<std::vector<ShardLayout>> ReadLayouts(const std::string& path) {
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  absl::StatusOr<std::vector<ShardLayout>> layouts = LayoutsFromJson(text);
  if (layouts.ok()) return layouts;
  return absl::Status(layouts.status().code(),
                      absl::StrCat("'", path, "': ", layouts.status().message()));
}

absl::StatusOr<RankFile> RankFile::Open(const std::string& dir, const ShardLayout& layout) {
  std::string path = absl::StrCat(dir, "/", FileOf(layout.cp_rank));
  CPSHARD_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  const auto digest = file.metadata().find(kDigestKey);
  if (digest != file.metadata().end() && digest->second != absl::StrCat(layout.batch_digest)) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is of batch ", digest->second,
                                                      ", the layout of batch ",
                                                      layout.batch_digest));
  }
  return RankFile(std::move(path), std::move(file));
}

absl::StatusOr<std::optional<StreamCut>> RankFile::CutOf(size_t index) const {
  const auto streams = file_.metadata().find(kStreamsKey);
  if (streams == file_.metadata().end()) return std::nullopt;
  return CutFromJson(path_, streams->second, file_.tensors()[index].name);
}

absl::StatusOr<RankFileStream> ReadRankStream(const std::string& dir, const ShardLayout& layout,
                                              const std::string& name, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(RankFile file, RankFile::Open(dir, layout));
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    if (file.tensors()[i].name != name) continue;
    RankFileStream stream;
    CPSHARD_ASSIGN_OR_RETURN(stream.tensor, file.Read(i, pool));
    CPSHARD_ASSIGN_OR_RETURN(stream.cut, file.CutOf(i));
    return stream;
  }
  return absl::NotFoundError(absl::StrCat("'", file.path(), "' has no stream '", name, "'"));
}

}  // namespace cpshard
