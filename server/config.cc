#include "server/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"
#include "proto/config.h"
#include "server/address.h"

namespace cpshard {
namespace {

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be ", low, " ... ", high));
}

void Apply(const ConfigLayer& layer, ServerOptions& options) {
  if (layer.listen) options.listen = *layer.listen;
  if (layer.workers) options.workers = *layer.workers;
  if (layer.queue) options.queue = *layer.queue;
  if (layer.shutdown_seconds) options.shutdown_grace = absl::Seconds(*layer.shutdown_seconds);
  if (layer.pool_bytes) options.pool_bytes = *layer.pool_bytes;
  if (layer.socket_mode) options.socket_mode = *layer.socket_mode;
  if (layer.stall_seconds) options.stall = absl::Seconds(*layer.stall_seconds);
  if (layer.max_connections) options.max_connections = *layer.max_connections;
  StreamLimits& stream = options.stream_limits;
  if (layer.max_inflight_bytes) stream.max_inflight_bytes = *layer.max_inflight_bytes;
  if (layer.max_inflight_batches) stream.max_inflight_batches = *layer.max_inflight_batches;
  if (layer.max_batch_bytes) options.limits.max_batch_bytes = *layer.max_batch_bytes;
  if (layer.max_tensors) options.limits.max_tensors = *layer.max_tensors;
  if (layer.max_ranks) options.limits.max_ranks = *layer.max_ranks;
}

absl::Status CheckListen(const std::vector<std::string>& listen) {
  if (listen.empty()) return absl::InvalidArgumentError("listen names no address");
  std::set<std::string> seen;
  for (const std::string& address : listen) {
    CPSHARD_RETURN_IF_ERROR(CheckAddress(address));
    if (!seen.insert(address).second && !absl::EndsWith(address, ":0")) {
      return absl::InvalidArgumentError(absl::StrCat("listen names '", address, "' twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const ServerOptions& options) {
  CPSHARD_RETURN_IF_ERROR(CheckListen(options.listen));
  CPSHARD_RETURN_IF_ERROR(CheckRange("workers", options.workers, 1, 1024));
  CPSHARD_RETURN_IF_ERROR(CheckRange("queue", options.queue, 1, 1 << 20));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("shutdown_seconds", absl::ToInt64Seconds(options.shutdown_grace), 0, 24 * 3600));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("pool_bytes", options.pool_bytes, 1 << 20, std::numeric_limits<int64_t>::max()));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("stall_seconds", absl::ToInt64Seconds(options.stall), 1, 24 * 3600));
  CPSHARD_RETURN_IF_ERROR(CheckRange("max_connections", options.max_connections, 1, 1 << 16));
  const StreamLimits& stream = options.stream_limits;
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("max_inflight_bytes", stream.max_inflight_bytes, 1, int64_t{1} << 40));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("max_inflight_batches", stream.max_inflight_batches, 1, 1 << 16));
  CPSHARD_RETURN_IF_ERROR(CheckRange("socket_mode", options.socket_mode, 0, 0777));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("max_batch_bytes", options.limits.max_batch_bytes, 1, int64_t{1} << 40));
  CPSHARD_RETURN_IF_ERROR(CheckRange("max_tensors", options.limits.max_tensors, 1, 1 << 16));
  return CheckRange("max_ranks", options.limits.max_ranks, 1, 1 << 16);
}

// What the flags and the environment state, and where the file is.
struct Flags {
  std::string config_file;
  bool check_config = false;
  bool version = false;
  ConfigLayer layer;
};

void Declare(CLI::App& app, Flags& flags, std::optional<std::string>& socket_mode) {
  app.add_option("--config", flags.config_file, "JSON file, see proto/cpshard/config.proto")
      ->envname("CPSHARD_CONFIG");
  app.add_option("--listen", flags.layer.listen, "host:port (port 0 = any free) or unix:/path")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->envname("CPSHARD_LISTEN");
  app.add_option("--workers", flags.layer.workers, "threads that plan and shard")
      ->envname("CPSHARD_WORKERS");
  app.add_option("--queue", flags.layer.queue, "calls that may wait for a worker")
      ->envname("CPSHARD_QUEUE");
  app.add_option("--shutdown-seconds", flags.layer.shutdown_seconds,
                 "grace for calls in progress at SIGTERM")
      ->envname("CPSHARD_SHUTDOWN_SECONDS");
  app.add_option("--pool-bytes", flags.layer.pool_bytes, "buffers in use and kept for reuse")
      ->envname("CPSHARD_POOL_BYTES");
  app.add_option("--socket-mode", socket_mode, "mode of unix sockets, octal, e.g. 0660")
      ->envname("CPSHARD_SOCKET_MODE");
  app.add_option("--stall-seconds", flags.layer.stall_seconds,
                 "a stream that makes no progress for so long is cut off")
      ->envname("CPSHARD_STALL_SECONDS");
  app.add_option("--max-connections", flags.layer.max_connections, "more are refused")
      ->envname("CPSHARD_MAX_CONNECTIONS");
  app.add_option("--max-inflight-bytes", flags.layer.max_inflight_bytes,
                 "of the unanswered batches of a stream")
      ->envname("CPSHARD_MAX_INFLIGHT_BYTES");
  app.add_option("--max-inflight-batches", flags.layer.max_inflight_batches,
                 "unanswered batches of a stream")
      ->envname("CPSHARD_MAX_INFLIGHT_BATCHES");
  app.add_option("--max-batch-bytes", flags.layer.max_batch_bytes, "of a batch and of its shards")
      ->envname("CPSHARD_MAX_BATCH_BYTES");
  app.add_option("--max-tensors", flags.layer.max_tensors, "entries of a batch")
      ->envname("CPSHARD_MAX_TENSORS");
  app.add_option("--max-ranks", flags.layer.max_ranks, "cp_size")->envname("CPSHARD_MAX_RANKS");
  app.add_flag("--check-config", flags.check_config, "read and check the configuration, then exit");
  app.add_flag("--version", flags.version, "print the version, then exit");
}

absl::Status ParseMode(const std::string& text, ConfigLayer& layer) {
  char* end = nullptr;
  const int64_t mode = std::strtoll(text.c_str(), &end, 8);
  if (text.empty() || *end != '\0') {
    return absl::InvalidArgumentError(absl::StrCat("socket_mode '", text, "' is not octal"));
  }
  layer.socket_mode = mode;
  return absl::OkStatus();
}

// "CPSHARD_WORKERS: " where the option that the message is about was set by the environment alone.
std::string SourceOf(const CLI::App& app, int argc, const char* const* argv,
                     absl::string_view message) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string variable = option->get_envname(), flag = option->get_name();
    if (variable.empty() || std::getenv(variable.c_str()) == nullptr) continue;
    const bool on_command_line = std::any_of(
        argv + 1, argv + argc, [&flag](const char* text) { return absl::StartsWith(text, flag); });
    // Messages call --max-ranks that, or max_ranks.
    const std::string name = absl::StrReplaceAll(flag.substr(2), {{"-", "_"}});
    const bool is_named =
        absl::StrContains(message, flag) || absl::StartsWith(message, absl::StrCat(name, " "));
    if (is_named && !on_command_line) return variable + ": ";
  }
  return "";
}

absl::Status Named(absl::string_view source, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(source, status.message()));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app{"cpshardd: shards batches for context-parallel training, over gRPC", "cpshardd"};
  Flags flags;
  std::optional<std::string> socket_mode;
  Declare(app, flags, socket_mode);
  try {  // CLI11 reports by exceptions; they stop here
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return CommandLine{Action::kPrintHelp, {}, app.help()};
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(SourceOf(app, argc, argv, error.what()), error.what()));
  }
  CommandLine line;
  if (flags.version) line.action = Action::kPrintVersion;
  if (flags.check_config) line.action = Action::kCheckOnly;
  if (!flags.config_file.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.config_file));
    const absl::StatusOr<ConfigLayer> file = ConfigFromJson(text);
    if (!file.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", flags.config_file, "': ", file.status().message()));
    }
    Apply(*file, line.options);
    CPSHARD_RETURN_IF_ERROR(
        Named(absl::StrCat("'", flags.config_file, "': "), Validate(line.options)));
  }
  if (socket_mode) CPSHARD_RETURN_IF_ERROR(ParseMode(*socket_mode, flags.layer));
  Apply(flags.layer, line.options);
  const absl::Status status = Validate(line.options);
  CPSHARD_RETURN_IF_ERROR(Named(SourceOf(app, argc, argv, status.message()), status));
  return line;
}

}  // namespace cpshard
