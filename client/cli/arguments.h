// Arguments that several subcommands share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/batch/batch.h"
#include "core/exec/place.h"
#include "core/exec/shard.h"
#include "proto/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cpshard {

struct ShardArguments {
  std::string cp;        // "4" or "none"
  std::string options;   // JSON or the name of a file of it
  std::string ranks;     // "0,3"; empty = all
  std::string server;    // empty = in process
  std::string executor;  // of DeclareExecutor
  std::optional<double> deadline_seconds;

  // The numbers behind --cp and --ranks; the checks of their range are the plan's.
  std::optional<int64_t> cp_size() const;
  std::vector<int64_t> rank_list() const;

  // For a server's answer to a batch of so many bytes: what the user says, else DeadlineFor.
  absl::Duration deadline(int64_t bytes) const;
};

// --cp, --options, --ranks: of a command that works in process alone. Numbers that are none, and
// empty values, are usage errors.
void DeclareLayoutArguments(CLI::App& command, ShardArguments& arguments);

// ... and --server, --deadline.
void DeclareShardArguments(CLI::App& command, ShardArguments& arguments);

// --executor: "auto", "cpu", "cuda", or empty, as long as nobody names one. Another one is a usage
// error.
CLI::Option* DeclareExecutor(CLI::App& command, std::string& executor, const std::string& text);

// What `executor` names, or `unnamed`. Precondition: it is of DeclareExecutor.
ExecutorKind ExecutorOr(const std::string& executor, ExecutorKind unnamed);

// Where a command shards in process: on the CPU unless another one is named, since a command that
// runs once does not open a device unasked. Errors of MakePlace.
absl::StatusOr<Place> PlaceOf(const std::string& executor);

// On stderr, where the choice was left to the program (auto): what it chose, and why.
void SayExecutor(const std::string& executor, const std::string& chosen, const std::string& reason);

// NotFound: the file; InvalidArgument: what Options::FromJson refuses.
absl::StatusOr<Options> ReadOptions(const std::string& text_or_file);

// The shards, made by the server if one is named, else in process by the same code, with
// `executor`. Beside the errors of both: Unavailable, at once, when the server is not there.
absl::StatusOr<ShardResult> RunShard(const Batch& batch, const ShardArguments& arguments,
                                     Executor& executor, BufferPool& pool);

// The limits that a batch is read under: those of the plan in process; a server has its own, so
// there only what cannot be is refused.
Limits ReadLimits(const ShardArguments& arguments);

// Numbers between commas. "" or a message that quotes what is no such number.
std::string CheckLengths(const std::string& text);
// Precondition: every part is an integer.
std::vector<int64_t> ParseIntegers(absl::string_view text);

// A number as an option states it: an integer, or else a float. nullopt: neither.
std::optional<Number> ParseNumber(const std::string& text);

}  // namespace cpshard
