#include "client/rank_files.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/safetensors.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"
#include "proto/json.h"

namespace cpshard {
namespace {

namespace fs = std::filesystem;

constexpr char kDigestKey[] = "_cpshard.batch_digest";
constexpr char kStreamsKey[] = "_cpshard.streams";
constexpr char kPartial[] = ".partial";

std::string RankFile(const std::string& dir, int64_t rank) {
  return absl::StrCat(dir, "/rank", rank, ".safetensors");
}

const char* ExtentName(Extent extent) {
  return extent == Extent::kLocal ? "local" : extent == Extent::kPadded ? "padded" : "as_sent";
}

// {"input_ids": {"extent": "local", "seq_axis": 1}, ...}: what a gather needs to know.
std::string StreamsToJson(const RankShard& shard) {
  nlohmann::json streams = nlohmann::json::object();
  for (size_t i = 0; i < shard.cuts.size(); ++i) {
    nlohmann::json entry = {{"extent", ExtentName(shard.cuts[i].extent)}};
    if (shard.cuts[i].extent != Extent::kAsSent) entry["seq_axis"] = shard.cuts[i].seq_axis;
    streams[shard.batch.tensors[i].spec.name] = std::move(entry);
  }
  return streams.dump();
}

std::optional<StreamCut> CutFromJson(const std::string& json, const std::string& name) {
  const nlohmann::json streams = nlohmann::json::parse(json, nullptr, false);
  if (!streams.is_object() || !streams.contains(name)) return std::nullopt;
  const nlohmann::json& entry = streams[name];
  if (!entry.is_object() || !entry.contains("extent")) return std::nullopt;
  StreamCut cut;
  cut.extent = entry["extent"] == "local"    ? Extent::kLocal
               : entry["extent"] == "padded" ? Extent::kPadded
                                             : Extent::kAsSent;
  if (entry.contains("seq_axis") && entry["seq_axis"].is_number_integer()) {
    cut.seq_axis = entry["seq_axis"].get<int>();
  }
  return cut;
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", path, "'"));
}

absl::Status WritePartial(const std::string& dir, const std::vector<RankShard>& shards,
                          std::vector<std::string>& written) {
  std::vector<ShardLayout> layouts;
  for (const RankShard& shard : shards) {
    std::map<std::string, std::string> metadata = ScalarsToMetadata(shard.batch.scalars);
    metadata[kDigestKey] = absl::StrCat(shard.layout.batch_digest);
    metadata[kStreamsKey] = StreamsToJson(shard);
    written.push_back(RankFile(dir, shard.layout.cp_rank));
    CPSHARD_RETURN_IF_ERROR(
        WriteSafetensors(written.back() + kPartial, shard.batch.tensors, metadata));
    layouts.push_back(shard.layout);
  }
  written.push_back(dir + "/layouts.json");
  return WriteText(written.back() + kPartial, LayoutsToJson(layouts));
}

}  // namespace

absl::Status CheckOutputDir(const std::string& dir) {
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (status.type() == fs::file_type::directory && fs::is_empty(dir, error) && !error) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", dir, "' must be absent or an empty folder; nothing was written"));
}

absl::Status WriteRankFiles(const std::string& dir, const std::vector<RankShard>& shards) {
  CPSHARD_RETURN_IF_ERROR(CheckOutputDir(dir));
  std::error_code error;
  const bool made = fs::create_directories(dir, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder '", dir, "'"));
  }
  std::vector<std::string> written;
  absl::Status status = WritePartial(dir, shards, written);
  for (const std::string& path : written) {
    if (!status.ok()) break;
    fs::rename(path + kPartial, path, error);
    if (error) {
      status = absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write '", path, "'"));
    }
  }
  if (status.ok()) return status;
  for (const std::string& path : written) {
    fs::remove(path + kPartial, error);
    fs::remove(path, error);
  }
  if (made) fs::remove(dir, error);
  return status;
}

absl::StatusOr<std::vector<ShardLayout>> ReadLayouts(const std::string& path) {
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return LayoutsFromJson(text);
}

absl::StatusOr<RankStream> ReadRankStream(const std::string& dir, const ShardLayout& layout,
                                          const std::string& name, BufferPool& pool) {
  const std::string path = RankFile(dir, layout.cp_rank);
  CPSHARD_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  const auto digest = file.metadata().find(kDigestKey);
  if (digest != file.metadata().end() && digest->second != absl::StrCat(layout.batch_digest)) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is of batch ", digest->second,
                                                      ", the layout of batch ",
                                                      layout.batch_digest));
  }
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    if (file.tensors()[i].name != name) continue;
    RankStream stream;
    CPSHARD_ASSIGN_OR_RETURN(stream.tensor, file.Read(i, pool));
    const auto streams = file.metadata().find(kStreamsKey);
    if (streams != file.metadata().end()) stream.cut = CutFromJson(streams->second, name);
    return stream;
  }
  return absl::NotFoundError(absl::StrCat("'", path, "' has no stream '", name, "'"));
}

}  // namespace cpshard
