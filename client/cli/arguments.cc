#include "client/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/deadline.h"
#include "client/client.h"
#include "client/shard_stream.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Digits with an optional minus, nothing around them.
std::optional<int64_t> ParseInteger(absl::string_view text) {
  int64_t number;
  const absl::string_view digits = absl::StripPrefix(text, "-");
  if (digits.empty() || digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &number)) {
    return std::nullopt;
  }
  return number;
}

std::string CheckCp(const std::string& text) {
  if (text == "none" || ParseInteger(text)) return "";
  return absl::StrCat("'", text, "' is neither a number nor none");
}

std::string CheckRanks(const std::string& text) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (!ParseInteger(part)) return absl::StrCat("'", part, "' is not a rank; give e.g. 0,3");
  }
  return "";
}

std::string CheckExecutorName(const std::string& text) {
  return std::string(ParseExecutorKind(text).status().message());
}

std::string CheckNotEmpty(const std::string& text) {
  return text.empty() ? "the value is empty" : "";
}

int64_t BytesOf(const Batch& batch) {
  int64_t bytes = 0;
  for (const Tensor& tensor : batch.tensors) bytes += static_cast<int64_t>(tensor.buffer.size());
  return bytes;
}

// Before anything is sent. A stream waits for its server, but who types a command wants to hear at
// once that there is none; and a batch over the server's limits is told which of its streams is.
absl::Status CheckServerTakes(const Batch& batch, const Options& options,
                              const ShardArguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(
      const auto client,
      Client::Connect(arguments.server,
                      {.deadline = std::min(ClientOptions().deadline, arguments.deadline(0))}));
  CPSHARD_ASSIGN_OR_RETURN(const ServerInfo server, client->GetServerInfo());
  if (!options.MakeSharder().ok()) return absl::OkStatus();  // for the server to refuse
  return ValidateSpec(SpecOf(batch, arguments.cp_size()), server.limits);
}

}  // namespace

std::optional<int64_t> ShardArguments::cp_size() const { return ParseInteger(cp); }

absl::Duration ShardArguments::deadline(int64_t bytes) const {
  return deadline_seconds ? absl::Seconds(*deadline_seconds) : DeadlineFor(bytes);
}

std::vector<int64_t> ShardArguments::rank_list() const {
  return ranks.empty() ? std::vector<int64_t>() : ParseIntegers(ranks);
}

void DeclareLayoutArguments(CLI::App& command, ShardArguments& arguments) {
  command
      .add_option("--cp", arguments.cp,
                  "ranks of the context-parallel group; none: no group, one shard of it all")
      ->required()
      ->check(CLI::Validator(CheckCp, "N|none"))
      ->group("Layout");
  command
      .add_option("--options", arguments.options,
                  "the layout and its options as JSON (see below), or a file of it")
      ->required()
      ->type_name("FILE|JSON")
      ->group("Layout");
  command.add_option("--ranks", arguments.ranks, "these ranks alone, e.g. 0,3 [default: all]")
      ->check(CLI::Validator(CheckRanks, "R,R,..."))
      ->group("Layout");
}

void DeclareShardArguments(CLI::App& command, ShardArguments& arguments) {
  DeclareLayoutArguments(command, arguments);
  command
      .add_option("--server", arguments.server,
                  "let this cpshardd do it, host:port or unix:/path [default: in process]")
      ->check(CLI::Validator(CheckNotEmpty, "ADDR"))
      ->group("Server");
  command
      .add_option("--deadline", arguments.deadline_seconds,
                  "to wait for the server's answer [default: 60, and 1 more for every 10 MB of the "
                  "batch]")
      ->check(CLI::Range(0.001, 1e6).description(""))
      ->type_name("SECONDS")
      ->group("Server");
}

CLI::Option* DeclareExecutor(CLI::App& command, std::string& executor, const std::string& text) {
  return command.add_option("--executor", executor, text)
      ->check(CLI::Validator(CheckExecutorName, "auto|cpu|cuda"));
}

ExecutorKind ExecutorOr(const std::string& executor, ExecutorKind unnamed) {
  return executor.empty() ? unnamed : ParseExecutorKind(executor).value();
}

absl::StatusOr<Place> PlaceOf(const std::string& executor) {
  return MakePlace({.executor = ExecutorOr(executor, ExecutorKind::kCpu)});
}

void SayExecutor(const std::string& executor, const std::string& chosen,
                 const std::string& reason) {
  if (ExecutorOr(executor, ExecutorKind::kCpu) != ExecutorKind::kAuto || chosen.empty()) return;
  std::fprintf(stderr, "executor: %s%s%s\n", chosen.c_str(), reason.empty() ? "" : ": ",
               reason.c_str());
}

absl::StatusOr<Options> ReadOptions(const std::string& text_or_file) {
  const size_t first = text_or_file.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text_or_file[first] == '{') {
    return Options::FromJson(text_or_file);
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(text_or_file));
  return Options::FromJson(text);
}

absl::StatusOr<ShardResult> RunShard(const Batch& batch, const ShardArguments& arguments,
                                     Executor& executor, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments.options));
  if (!arguments.server.empty()) {
    CPSHARD_RETURN_IF_ERROR(CheckServerTakes(batch, options, arguments));
    CPSHARD_ASSIGN_OR_RETURN(
        const auto stream,
        ShardStream::Open(arguments.server,
                          {.deadline = arguments.deadline(BytesOf(batch)),
                           .executor = ExecutorOr(arguments.executor, ExecutorKind::kAuto)}));
    return stream->Submit(batch, options, arguments.cp_size(), arguments.rank_list()).Wait();
  }
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  return ShardBatch(sharder, batch, arguments.cp_size(), arguments.rank_list(), Limits(), executor,
                    pool);
}

Limits ReadLimits(const ShardArguments& arguments) {
  if (arguments.server.empty()) return Limits();
  return {.max_tensors = 1 << 16, .max_dims = 1 << 10, .max_name_bytes = 1 << 20};
}

std::string CheckLengths(const std::string& text) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (ParseInteger(part).value_or(-1) < 0) {
      return absl::StrCat("'", part, "' is not a length; give e.g. 8,4");
    }
  }
  return "";
}

std::vector<int64_t> ParseIntegers(absl::string_view text) {
  std::vector<int64_t> list;
  for (absl::string_view part : absl::StrSplit(text, ',')) list.push_back(*ParseInteger(part));
  return list;
}

std::optional<Number> ParseNumber(const std::string& text) {
  int64_t integer;
  double real;
  if (absl::SimpleAtoi(text, &integer)) return integer;
  if (absl::SimpleAtod(text, &real)) return real;
  return std::nullopt;
}

}  // namespace cpshard
