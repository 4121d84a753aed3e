// Arguments that several subcommands share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/batch/batch.h"
#include "core/exec/shard.h"
#include "proto/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cpshard {

struct ShardArguments {
  std::string cp;       // "4" or "none"
  std::string options;  // JSON or the name of a file of it
  std::string ranks;    // "0,3"; empty = all
  std::string server;   // empty = in process
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

// NotFound: the file; InvalidArgument: what Options::FromJson refuses.
absl::StatusOr<Options> ReadOptions(const std::string& text_or_file);

// The shards, made by the server if one is named, else in process by the same code. Beside the
// errors of both: Unavailable, at once, when the server is not there.
absl::StatusOr<ShardResult> RunShard(const Batch& batch, const ShardArguments& arguments,
                                     BufferPool& pool);

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
