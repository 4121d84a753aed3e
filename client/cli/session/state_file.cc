#include "client/cli/session/state_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"

namespace cpshard {

absl::StatusOr<std::optional<TrainState>> ReadState(const std::string& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) {
    return std::nullopt;
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  absl::StatusOr<TrainState> state = TrainState::FromJson(text);
  if (state.ok()) return *std::move(state);
  return absl::Status(state.status().code(),
                      absl::StrCat("'", path, "': ", state.status().message()));
}

absl::Status WriteState(const std::string& path, const TrainState& state) {
  const std::string partial = absl::StrCat(path, ".partial");
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << state.ToJson() << "\n";
  file.close();
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", partial, "'"));
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write '", path, "'"));
}

}  // namespace cpshard
