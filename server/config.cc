#include "server/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"
#include "proto/config.h"
#include "server/address.h"
#include "server/session/sessions.h"

namespace cpshard {
namespace {

constexpr int64_t kMaxCudaDevice = 1023;

// More Runs at a time gain nothing: one's copies go on beside another one's kernel, and all share
// one bus.
constexpr int64_t kMostRuns = 4;

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be ", low, " ... ", high));
}

absl::Status ApplyPlace(const ConfigLayer& layer, PlaceOptions& place) {
  if (layer.executor) {
    CPSHARD_ASSIGN_OR_RETURN(place.executor, ParseExecutorKind(*layer.executor));
  }
  if (layer.cuda_device) {
    CPSHARD_RETURN_IF_ERROR(CheckRange("cuda_device", *layer.cuda_device, 0, kMaxCudaDevice));
    place.cuda_device = static_cast<int>(*layer.cuda_device);
  }
  if (layer.cuda_memory_bytes) place.cuda_memory_bytes = *layer.cuda_memory_bytes;
  if (layer.pinned_bytes) place.pinned_bytes = *layer.pinned_bytes;
  return absl::OkStatus();
}

// InvalidArgument: an executor or a device that cannot be named.
absl::Status Apply(const ConfigLayer& layer, ServerOptions& options) {
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
  SessionLimits& sessions = options.session_limits;
  if (layer.session_bytes) options.session_bytes = *layer.session_bytes;
  if (layer.replay_steps) sessions.replay_steps = *layer.replay_steps;
  if (layer.ahead_steps) sessions.ahead_steps = *layer.ahead_steps;
  if (layer.rank_timeout_seconds) sessions.rank_timeout_seconds = *layer.rank_timeout_seconds;
  if (layer.max_groups) sessions.max_groups = *layer.max_groups;
  if (layer.groups) options.groups = *layer.groups;
  if (layer.max_batch_bytes) options.limits.max_batch_bytes = *layer.max_batch_bytes;
  if (layer.max_tensors) options.limits.max_tensors = *layer.max_tensors;
  if (layer.max_ranks) options.limits.max_ranks = *layer.max_ranks;
  return ApplyPlace(layer, options.place);
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
  const SessionLimits& sessions = options.session_limits;
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("session_bytes", options.session_bytes.value_or(0), 0, options.pool_bytes));
  CPSHARD_RETURN_IF_ERROR(CheckRange("replay_steps", sessions.replay_steps, 1, 1 << 10));
  CPSHARD_RETURN_IF_ERROR(CheckRange("ahead_steps", sessions.ahead_steps, 2, 1 << 10));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("rank_timeout_seconds", sessions.rank_timeout_seconds, 1, 24 * 3600));
  CPSHARD_RETURN_IF_ERROR(CheckRange("max_groups", sessions.max_groups, 1, 1 << 16));
  CPSHARD_RETURN_IF_ERROR(CheckRange("socket_mode", options.socket_mode, 0, 0777));
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("max_batch_bytes", options.limits.max_batch_bytes, 1, int64_t{1} << 40));
  CPSHARD_RETURN_IF_ERROR(CheckRange("max_tensors", options.limits.max_tensors, 1, 1 << 16));
  CPSHARD_RETURN_IF_ERROR(CheckRange("max_ranks", options.limits.max_ranks, 1, 1 << 16));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CPSHARD_RETURN_IF_ERROR(
      CheckRange("cuda_memory_bytes", options.place.cuda_memory_bytes, 1 << 20, kMost));
  CPSHARD_RETURN_IF_ERROR(CheckRange("pinned_bytes", options.place.pinned_bytes, 0, kMost));
  SessionLimits limits = sessions;
  limits.session_bytes = options.session_bytes.value_or(options.pool_bytes / 2);
  return CheckGroups(options.groups, limits, options.limits);
}

// What is wrong only together, of all sources. What would never start is no valid configuration.
absl::Status ValidatePlace(const ServerOptions& options) {
  const PlaceOptions place = PlaceOf(options);
  if (place.executor == ExecutorKind::kCpu) {
    for (const DeclaredGroup& group : options.groups) {
      if (group.executor != ExecutorKind::kCuda) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("executor is cpu, but group '", group.group,
                       "' is declared with cuda: the server would have none"));
    }
    return absl::OkStatus();
  }
  const int64_t least = kLeastCudaMemoryOfARun * place.runs_at_once;
  if (place.cuda_memory_bytes >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cuda_memory_bytes is ", place.cuda_memory_bytes, "; it must be at least ", least, ": ",
      kLeastCudaMemoryOfARun, " for each of ", place.runs_at_once, " Runs at a time (workers is ",
      options.workers, ", at most ", kMostRuns, " count)"));
}

// What the flags and the environment state, and where the file is.
struct Flags {
  std::string config_file;
  bool check_config = false;
  bool version = false;
  ConfigLayer layer;
};

// A flag, the variable of the same name, and what --help says of them; `flag` is --a-name.
template <typename T>
CLI::Option* Add(CLI::App& app, const std::string& flag, T& value, const std::string& unit,
                 const std::string& text) {
  const std::string name = absl::StrReplaceAll(flag.substr(2), {{"-", "_"}});
  return app.add_option(flag, value, text)
      ->option_text(unit)
      ->envname(absl::StrCat("CPSHARD_", absl::AsciiStrToUpper(name)));
}

constexpr size_t kTextColumns = 50;  // beside CLI11's 30 for the name

// With the default behind it, on a line of its own where it does not fit.
std::string Default(const std::string& text, int64_t value) {
  const std::string note = absl::StrCat("[default: ", value, "]");
  const size_t line = text.size() - (text.rfind('\n') + 1);  // npos + 1 is 0
  return absl::StrCat(text, line + 1 + note.size() > kTextColumns ? "\n" : " ", note);
}

void DeclareConfiguration(CLI::App& app, Flags& flags) {
  Add(app, "--config", flags.config_file, "FILE", "JSON; proto/cpshard/config.proto has the keys")
      ->group("Configuration");
  app.add_flag("--check-config", flags.check_config, "check file, variables and flags, then exit")
      ->group("Configuration");
}

void DeclareListeners(CLI::App& app, Flags& flags, std::optional<std::string>& socket_mode) {
  const ServerOptions defaults;
  Add(app, "--listen", flags.layer.listen, "ADDR,ADDR,...",
      absl::StrCat("host:port (port 0: any free one) or unix:/path;\nmay be repeated [default: ",
                   absl::StrJoin(defaults.listen, ","), "]"))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Listeners");
  Add(app, "--socket-mode", socket_mode, "MODE",
      absl::StrFormat("mode of unix sockets, octal [default: %04o]", defaults.socket_mode))
      ->group("Listeners");
  Add(app, "--max-connections", flags.layer.max_connections, "N",
      Default("connections; more are refused", defaults.max_connections))
      ->group("Listeners");
  Add(app, "--stall-seconds", flags.layer.stall_seconds, "SECONDS",
      Default("a call that makes no progress for so long is cut\noff",
              absl::ToInt64Seconds(defaults.stall)))
      ->group("Listeners");
  Add(app, "--shutdown-seconds", flags.layer.shutdown_seconds, "SECONDS",
      Default("grace for what is in progress at SIGTERM",
              absl::ToInt64Seconds(defaults.shutdown_grace)))
      ->group("Listeners");
}

void DeclareLimits(CLI::App& app, ConfigLayer& layer) {
  const ServerOptions defaults;
  const auto add = [&app](const std::string& flag, std::optional<int64_t>& value,
                          const std::string& unit, const std::string& text, int64_t by_default) {
    Add(app, flag, value, unit, Default(text, by_default))->group("Limits");
  };
  add("--workers", layer.workers, "N", "threads that plan and shard", defaults.workers);
  add("--queue", layer.queue, "N", "calls that may wait for a worker; more are refused",
      defaults.queue);
  add("--pool-bytes", layer.pool_bytes, "BYTES", "memory of batches and answers, in use or kept",
      defaults.pool_bytes);
  add("--max-inflight-bytes", layer.max_inflight_bytes, "BYTES",
      "of the unanswered batches of a stream", defaults.stream_limits.max_inflight_bytes);
  add("--max-inflight-batches", layer.max_inflight_batches, "N", "unanswered batches of a stream",
      defaults.stream_limits.max_inflight_batches);
  add("--max-batch-bytes", layer.max_batch_bytes, "BYTES", "of a batch, and of all its shards",
      defaults.limits.max_batch_bytes);
  add("--max-tensors", layer.max_tensors, "N", "tensors and scalars of a batch",
      defaults.limits.max_tensors);
  add("--max-ranks", layer.max_ranks, "N", "ranks of a group (cp_size)", defaults.limits.max_ranks);
}

void DeclareSessions(CLI::App& app, ConfigLayer& layer) {
  const SessionLimits defaults;
  const auto add = [&app](const std::string& flag, std::optional<int64_t>& value,
                          const std::string& unit, const std::string& text) {
    Add(app, flag, value, unit, text)->group("Sessions");
  };
  add("--session-bytes", layer.session_bytes, "BYTES",
      Default("of pool-bytes, for what loaders push; 0: no\nsessions; not given: half of them",
              ServerOptions().pool_bytes / 2));
  add("--replay-steps", layer.replay_steps, "N",
      Default("committed steps that stay in memory", defaults.replay_steps));
  add("--ahead-steps", layer.ahead_steps, "N",
      Default("steps beyond them that loaders may push", defaults.ahead_steps));
  add("--rank-timeout-seconds", layer.rank_timeout_seconds, "SECONDS",
      Default("a reader without a connection has left then", defaults.rank_timeout_seconds));
  add("--max-groups", layer.max_groups, "N", Default("groups of readers", defaults.max_groups));
}

void DeclareExecutor(CLI::App& app, ConfigLayer& layer) {
  const PlaceOptions defaults;
  Add(app, "--executor", layer.executor, "auto|cpu|cuda",
      absl::StrCat(
          "who shards; auto: a CUDA device where one can be\nused, else the CPU [default: ",
          ToString(defaults.executor), "]"))
      ->group("Executor");
  const auto add = [&app](const std::string& flag, std::optional<int64_t>& value,
                          const std::string& unit, const std::string& text, int64_t by_default) {
    Add(app, flag, value, unit, Default(text, by_default))->group("Executor");
  };
  add("--cuda-device", layer.cuda_device, "N", "which one, as the process sees them",
      defaults.cuda_device);
  add("--cuda-memory-bytes", layer.cuda_memory_bytes, "BYTES", "of the device",
      defaults.cuda_memory_bytes);
  add("--pinned-bytes", layer.pinned_bytes, "BYTES",
      "of the host, taken at once, reached by the\ndevice: batches lie there; 0: none",
      defaults.pinned_bytes);
}

constexpr char kFooter[] =
    R"(Every setting also has a variable, CPSHARD_MAX_RANKS for --max-ranks, and a key
in the file, max_ranks (there max_batch_bytes, max_tensors and max_ranks stand
under "limits", and socket_mode is a decimal number). Flags win over variables,
variables over the file; a variable that is empty is none. What the file alone
can name is groups: each with its options, cp_size, data streams and loaders,
known before anybody opens it.

Examples:
  cpshardd --listen unix:/run/cpshard.sock,127.0.0.1:7070
  cpshardd --listen 127.0.0.1:0 --workers 8 --pool-bytes 17179869184
  CPSHARD_MAX_RANKS=64 cpshardd --config cpshardd.json --check-config

Once it serves it prints `listening on ADDR` per address; SIGTERM or SIGINT ends
it, a second one at once. There is no TLS and no token: listen where only your
job can reach it.

Exit status: 0 stopped by a signal; 64 configuration; 70 internal; 75 an address
or other resource is not to be had; 86 the CUDA device is lost: start it again.

Read on: README.md, docs/DEPLOY.md (beside a training job), docs/WIRE.md)";

void Declare(CLI::App& app, Flags& flags, std::optional<std::string>& socket_mode) {
  app.set_help_flag("-h,--help", "print this help");
  app.footer(kFooter);
  DeclareConfiguration(app, flags);
  DeclareListeners(app, flags, socket_mode);
  DeclareLimits(app, flags.layer);
  DeclareSessions(app, flags.layer);
  DeclareExecutor(app, flags.layer);
  app.add_flag("--version", flags.version, "print the version and what this build was made of");
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

PlaceOptions PlaceOf(const ServerOptions& options) {
  PlaceOptions place = options.place;
  place.runs_at_once = std::min(options.workers, kMostRuns);
  return place;
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app{"cpshardd: shards batches for context-parallel training, over gRPC", "cpshardd"};
  Flags flags;
  std::optional<std::string> socket_mode;
  Declare(app, flags, socket_mode);
  try {  // CLI11 reports by exceptions; they stop here
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return CommandLine{
        Action::kPrintHelp, {}, absl::StrReplaceAll(app.help(), {{"\n\n\n", "\n\n"}})};
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(SourceOf(app, argc, argv, error.what()),
                                                   error.what(), "; see cpshardd --help"));
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
    absl::Status status = Apply(*file, line.options);
    if (status.ok()) status = Validate(line.options);
    CPSHARD_RETURN_IF_ERROR(Named(absl::StrCat("'", flags.config_file, "': "), status));
  }
  if (socket_mode) CPSHARD_RETURN_IF_ERROR(ParseMode(*socket_mode, flags.layer));
  absl::Status status = Apply(flags.layer, line.options);
  if (status.ok()) status = Validate(line.options);
  if (status.ok()) status = ValidatePlace(line.options);
  CPSHARD_RETURN_IF_ERROR(Named(SourceOf(app, argc, argv, status.message()), status));
  return line;
}

}  // namespace cpshard
