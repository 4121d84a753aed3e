#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/rank_files.h"
#include "client/safetensors.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

struct Arguments {
  ShardArguments shard;
  std::string in, out;
};

absl::Status ShardFile(const Arguments& arguments) {
  CPSHARD_RETURN_IF_ERROR(CheckOutputDir(arguments.out));
  CPSHARD_ASSIGN_OR_RETURN(
      const Place place,
      PlaceOf(arguments.shard.server.empty() ? arguments.shard.executor : "cpu"));
  BufferPool pool({.blocks = place.blocks});
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch,
                           ReadBatch(arguments.in, ReadLimits(arguments.shard), pool));
  CPSHARD_ASSIGN_OR_RETURN(const ShardResult result,
                           RunShard(batch, arguments.shard, *place.executor, pool));
  CPSHARD_RETURN_IF_ERROR(WriteRankFiles(arguments.out, result.shards));
  SayExecutor(arguments.shard.executor, result.executor,
              arguments.shard.server.empty() ? place.reason : "");
  for (const Notice& notice : result.notices) {  // not before: an error is the only line
    std::fprintf(stderr, "notice: %s: %s\n", notice.code.c_str(), notice.text.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddShardCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("shard", "cut a batch into the shards of every rank");
  auto arguments = std::make_shared<Arguments>();
  DeclareShardArguments(*command, arguments->shard);
  DeclareExecutor(*command, arguments->shard.executor,
                  "who does it; auto: cuda where a device can be used [default: cpu; a server: its "
                  "own choice]");
  command->add_option("--in", arguments->in, "the batch, whole rows")
      ->required()
      ->type_name("BATCH.safetensors")
      ->group("Files");
  command->add_option("--out", arguments->out, "folder for the shards, absent or empty")
      ->required()
      ->type_name("DIR")
      ->group("Files");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{ShardFile(*arguments)}; }; });
}

}  // namespace cpshard
