#include "client/session/train_state.h"

#include <xxhash.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/session/rank.h"
#include "core/plan/status_macros.h"
#include "proto/session_checks.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

using Json = nlohmann::json;

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("train state: ", parts...));
}

// A JSON object whose fields are taken one by one; none may be left over or missing.
class Fields {
 public:
  static absl::StatusOr<Fields> Of(const Json& json, std::string where) {
    if (json.is_object()) return Fields(json, std::move(where));
    return Wrong(where.empty() ? "the whole" : where, " is no JSON object");
  }

  absl::StatusOr<std::string> Text(const std::string& name) {
    const Json value = Take(name);
    if (value.is_string()) return value.get<std::string>();
    return Wrong(At(name), " is no string");
  }

  absl::StatusOr<int64_t> Number(const std::string& name, int64_t least = 0) {
    const Json value = Take(name);
    if (value.is_number_integer() && value >= least && value <= kMaxNumber) {
      return value.get<int64_t>();
    }
    return Wrong(At(name), " is ", value.dump(), "; a number from ", least, " on is possible");
  }

  // Calls read(key, fields of the value) for every entry of an object of objects.
  template <typename Read>
  absl::Status Objects(const std::string& name, Read read) {
    const Json value = Take(name);
    CPSHARD_RETURN_IF_ERROR(Of(value, At(name)).status());
    for (const auto& [key, entry] : value.items()) {
      CPSHARD_ASSIGN_OR_RETURN(Fields fields, Of(entry, absl::StrCat(At(name), "['", key, "']")));
      CPSHARD_RETURN_IF_ERROR(read(key, fields));
      CPSHARD_RETURN_IF_ERROR(fields.CheckAllTaken());
    }
    return absl::OkStatus();
  }

  absl::Status CheckAllTaken() const {
    if (json_.empty()) return absl::OkStatus();
    return Wrong(At(json_.begin().key()), " is not known");
  }

 private:
  Fields(Json json, std::string where) : json_(std::move(json)), where_(std::move(where)) {}

  std::string At(const std::string& name) const {
    return where_.empty() ? name : absl::StrCat(where_, ".", name);
  }

  Json Take(const std::string& name) {
    Json value = json_.value(name, Json());
    json_.erase(name);
    return value;
  }

  Json json_;
  std::string where_;
};

Json ToObject(const StreamState& stream) {
  Json loaders = Json::object();
  for (const auto& [loader, state] : stream.resume.loaders) {
    loaders[absl::StrCat(loader)] = {{"step", state.step},
                                     {"state", absl::Base64Escape(state.state)}};
  }
  return {{"pass", stream.pass},
          {"next_step", stream.next_step},
          {"num_loaders", stream.resume.num_loaders},
          {"loaders", std::move(loaders)}};
}

absl::Status ReadLoader(const std::string& key, Fields& fields, ResumeState* resume) {
  int64_t loader = 0;
  if (!absl::SimpleAtoi(key, &loader) || loader < 0 || loader >= resume->num_loaders) {
    return Wrong("a state of loader '", key, "', of ", resume->num_loaders, " loaders");
  }
  LoaderState& state = resume->loaders[loader];
  CPSHARD_ASSIGN_OR_RETURN(state.step, fields.Number("step"));
  CPSHARD_ASSIGN_OR_RETURN(const std::string encoded, fields.Text("state"));
  if (!absl::Base64Unescape(encoded, &state.state)) {
    return Wrong("the state of loader ", loader, " is not base64");
  }
  if (static_cast<int64_t>(state.state.size()) > kMaxLoaderStateBytes) {
    return Wrong("the state of loader ", loader, " has ", state.state.size(), " bytes; at most ",
                 kMaxLoaderStateBytes, " can be");
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamState> ReadStream(Fields& fields) {
  StreamState stream;
  CPSHARD_ASSIGN_OR_RETURN(stream.pass, fields.Number("pass"));
  CPSHARD_ASSIGN_OR_RETURN(stream.next_step, fields.Number("next_step"));
  CPSHARD_ASSIGN_OR_RETURN(stream.resume.num_loaders, fields.Number("num_loaders"));
  CPSHARD_RETURN_IF_ERROR(fields.Objects("loaders", [&](const auto& key, Fields& loader) {
    return ReadLoader(key, loader, &stream.resume);
  }));
  return stream;
}

}  // namespace

std::string HashOf(const Options& options) {
  const std::string bytes = options.ToBytes();
  return absl::StrCat(absl::Hex(XXH3_64bits(bytes.data(), bytes.size()), absl::kZeroPad16));
}

std::string TrainState::ToJson() const {
  Json named = Json::object();
  for (const auto& [name, stream] : streams) named[name] = ToObject(stream);
  const Json json = {{"streams", std::move(named)},
                     {"fingerprint", fingerprint},
                     {"data_epoch", data_epoch},
                     {"cp_size", cp_size},
                     {"options_hash", options_hash}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<TrainState> TrainState::FromJson(absl::string_view json) {
  CPSHARD_RETURN_IF_ERROR(CheckStrictJson(json, "train state"));
  CPSHARD_ASSIGN_OR_RETURN(Fields fields, Fields::Of(Json::parse(json, nullptr, false), ""));
  TrainState state;
  CPSHARD_RETURN_IF_ERROR(fields.Objects("streams", [&](const auto& name, Fields& stream) {
    absl::StatusOr<StreamState> read = ReadStream(stream);
    if (read.ok()) state.streams[name] = *std::move(read);
    return read.status();
  }));
  CPSHARD_ASSIGN_OR_RETURN(state.fingerprint, fields.Text("fingerprint"));
  CPSHARD_ASSIGN_OR_RETURN(state.data_epoch, fields.Number("data_epoch"));
  CPSHARD_ASSIGN_OR_RETURN(state.cp_size, fields.Number("cp_size", 1));
  CPSHARD_ASSIGN_OR_RETURN(state.options_hash, fields.Text("options_hash"));
  CPSHARD_RETURN_IF_ERROR(fields.CheckAllTaken());
  return state;
}

}  // namespace cpshard
