#include "server/config.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"
#include "proto/config.h"

namespace cpshard {
namespace {

// "host:port" or "unix:/path"; gRPC itself would take more, and wrap a port that is out of range.
absl::Status CheckAddress(const std::string& address) {
  const auto refuse = [&address](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("listen '", address, "': ", why,
                                                   "; give host:port (port 0 = any free one) or "
                                                   "unix:/path"));
  };
  if (absl::StartsWith(address, "unix:")) {
    return address.size() > 5 ? absl::OkStatus() : refuse("no path");
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return refuse("no host and port");
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find(':') != std::string::npos) return refuse("not a host");
  int number;
  const bool digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &number) || number > 65535) {
    return refuse(absl::StrCat("port '", port, "' is not 0 ... 65535"));
  }
  return absl::OkStatus();
}

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
  if (layer.max_batch_bytes) options.limits.max_batch_bytes = *layer.max_batch_bytes;
  if (layer.max_tensors) options.limits.max_tensors = *layer.max_tensors;
  if (layer.max_ranks) options.limits.max_ranks = *layer.max_ranks;
}

absl::Status Validate(const ServerOptions& options) {
  if (options.listen.empty()) return absl::InvalidArgumentError("no address to listen on");
  for (const std::string& address : options.listen) {
    CPSHARD_RETURN_IF_ERROR(CheckAddress(address));
  }
  CPSHARD_RETURN_IF_ERROR(CheckRange("workers", options.workers, 1, 1024));
  CPSHARD_RETURN_IF_ERROR(CheckRange("queue", options.queue, 1, 1 << 20));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("shutdown_seconds", absl::ToInt64Seconds(options.shutdown_grace), 0, 24 * 3600));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("pool_bytes", options.pool_bytes, 1 << 20, std::numeric_limits<int64_t>::max()));
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

void Declare(CLI::App& app, Flags& flags, std::string& socket_mode) {
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
  app.add_option("--max-batch-bytes", flags.layer.max_batch_bytes, "of a batch and of its shards")
      ->envname("CPSHARD_MAX_BATCH_BYTES");
  app.add_option("--max-tensors", flags.layer.max_tensors, "entries of a batch")
      ->envname("CPSHARD_MAX_TENSORS");
  app.add_option("--max-ranks", flags.layer.max_ranks, "cp_size")->envname("CPSHARD_MAX_RANKS");
  app.add_flag("--check-config", flags.check_config, "read and check the configuration, then exit");
  app.add_flag("--version", flags.version, "print the version, then exit");
}

absl::Status ParseMode(const std::string& text, ConfigLayer& layer) {
  if (text.empty()) return absl::OkStatus();
  char* end = nullptr;
  const int64_t mode = std::strtoll(text.c_str(), &end, 8);
  if (end == nullptr || *end != '\0') {
    return absl::InvalidArgumentError(absl::StrCat("socket_mode '", text, "' is not octal"));
  }
  layer.socket_mode = mode;
  return absl::OkStatus();
}

// "CPSHARD_WORKERS: " where the value at fault came from the environment.
std::string SourceOf(const CLI::App& app, const std::string& message) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string variable = option->get_envname();
    if (!variable.empty() && std::getenv(variable.c_str()) != nullptr &&
        absl::StrContains(message, option->get_name())) {
      return variable + ": ";
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app{"cpshardd: shards batches for context-parallel training, over gRPC", "cpshardd"};
  Flags flags;
  std::string socket_mode;
  Declare(app, flags, socket_mode);
  try {  // CLI11 reports by exceptions; they stop here
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return CommandLine{Action::kPrintHelp, {}, app.help()};
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(SourceOf(app, error.what()), error.what()));
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
  }
  CPSHARD_RETURN_IF_ERROR(ParseMode(socket_mode, flags.layer));
  Apply(flags.layer, line.options);
  CPSHARD_RETURN_IF_ERROR(Validate(line.options));
  return line;
}

}  // namespace cpshard
