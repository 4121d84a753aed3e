#include "client/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/client.h"
#include "client/rank_files.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

std::string CheckCp(const std::string& text) {
  int64_t number;
  if (text == "none" || absl::SimpleAtoi(text, &number)) return "";
  return absl::StrCat("--cp '", text, "' is neither a number nor none");
}

}  // namespace

std::optional<int64_t> ShardArguments::cp_size() const {
  int64_t number;
  if (!absl::SimpleAtoi(cp, &number)) return std::nullopt;
  return number;
}

void DeclareShardArguments(CLI::App& command, ShardArguments& arguments) {
  command.add_option("--cp", arguments.cp, "size of the context-parallel group, or none")
      ->required()
      ->check(CLI::Validator(CheckCp, "N|none"));
  command.add_option("--options", arguments.options, "sharding options: JSON, or a file of it")
      ->required()
      ->type_name("FILE|JSON");
  command.add_option("--ranks", arguments.ranks, "ranks to make, e.g. 0,3; default all")
      ->delimiter(',')
      ->type_name("R,R,...");
  command.add_option("--server", arguments.server, "host:port or unix:/path; default in process")
      ->type_name("ADDR");
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
                                     BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments.options));
  if (!arguments.server.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(const auto client, Client::Connect(arguments.server));
    return client->ShardBatch(batch, options, arguments.cp_size(), arguments.ranks);
  }
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  return ShardBatch(sharder, batch, arguments.cp_size(), arguments.ranks, Limits(), *executor,
                    pool);
}

std::optional<Number> ParseNumber(const std::string& text) {
  int64_t integer;
  double real;
  if (absl::SimpleAtoi(text, &integer)) return integer;
  if (absl::SimpleAtod(text, &real)) return real;
  return std::nullopt;
}

}  // namespace cpshard
