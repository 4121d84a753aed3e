#include "client/cli/session/state_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"
#include "proto/session_checks.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

using Json = nlohmann::json;

constexpr char kPulledSteps[] = "pulled_steps";

absl::StatusOr<PullState> FromText(const std::string& text) {
  CPSHARD_RETURN_IF_ERROR(CheckStrictJson(text, "train state"));
  Json json = Json::parse(text, nullptr, false);
  PullState state;
  if (json.is_object() && json.contains(kPulledSteps)) {
    const Json value = json[kPulledSteps];
    if (!value.is_number_integer() || value < 0 || value > kMaxNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat(kPulledSteps, " is ", value.dump(), "; a number from 0 on is possible"));
    }
    state.pulled_steps = value.get<int64_t>();
    json.erase(kPulledSteps);
  }
  CPSHARD_ASSIGN_OR_RETURN(state.train, TrainState::FromJson(json.dump()));
  return state;
}

std::string ToText(const PullState& state) {
  Json json = Json::parse(state.train.ToJson());
  json[kPulledSteps] = state.pulled_steps;
  return json.dump();
}

}  // namespace

absl::StatusOr<std::optional<PullState>> ReadState(const std::string& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) {
    return std::nullopt;
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  absl::StatusOr<PullState> state = FromText(text);
  if (state.ok()) return *std::move(state);
  return absl::Status(state.status().code(),
                      absl::StrCat("'", path, "': ", state.status().message()));
}

absl::Status WriteState(const std::string& path, const PullState& state) {
  const std::string partial = absl::StrCat(path, ".partial");
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << ToText(state) << "\n";
  file.close();
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", partial, "'"));
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write '", path, "'"));
}

}  // namespace cpshard
