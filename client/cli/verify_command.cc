#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/printable.h"
#include "client/safetensors.h"
#include "client/verify/report.h"
#include "client/verify/verify.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

struct Arguments {
  ShardArguments shard;
  std::string in, ranks_dir;
  std::vector<std::string> streams;
  bool json = false;
};

absl::StatusOr<bool> VerifyFiles(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(const Place place, PlaceOf(arguments.shard.executor));
  BufferPool pool({.blocks = place.blocks});
  CPSHARD_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments.shard.options));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, ReadBatch(arguments.in, Limits(), pool));
  const verify::Request request{.cp_size = arguments.shard.cp_size(),
                                .ranks = arguments.shard.rank_list(),
                                .dir = arguments.ranks_dir,
                                .streams = arguments.streams};
  CPSHARD_ASSIGN_OR_RETURN(const verify::Findings findings,
                           verify::Verify(batch, sharder, request, *place.executor, pool));
  SayExecutor(arguments.shard.executor, std::string(place.executor->name()), place.reason);
  const std::string text =
      arguments.json ? verify::ToJson(findings) + "\n" : Printable(verify::ToText(findings));
  std::printf("%s", text.c_str());
  return findings.different();
}

}  // namespace

void AddVerifyCommand(CLI::App& app, Command& run) {
  CLI::App* command =
      app.add_subcommand("verify", "compare somebody else's shards of a batch with ours");
  auto arguments = std::make_shared<Arguments>();
  DeclareLayoutArguments(*command, arguments->shard);
  command->add_option("--in", arguments->in, "the batch")
      ->required()
      ->type_name("BATCH.safetensors");
  command
      ->add_option("--ranks-dir", arguments->ranks_dir,
                   "their shards: rank0.safetensors, rank1.safetensors, ...")
      ->required()
      ->type_name("DIR");
  command->add_option("--stream", arguments->streams, "compare these alone; default all of ours")
      ->type_name("NAME...");
  DeclareExecutor(*command, arguments->shard.executor,
                  "who cuts ours; auto: cuda where a device can be used [default: cpu]");
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback([arguments, &run] {
    run = [arguments] {
      const absl::StatusOr<bool> different = VerifyFiles(*arguments);
      return Outcome{different.status(), different.ok() && *different};
    };
  });
}

}  // namespace cpshard
