#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "client/cli/commands.h"
#include "client/cli/explain/report.h"
#include "client/cli/printable.h"
#include "client/rank_files.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

using explain::ShardFiles;

struct Arguments {
  std::string layouts, in;
  std::optional<int64_t> row, token, rank, slot;
  bool json = false;
};

absl::StatusOr<std::string> ExplainFiles(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(std::vector<ShardLayout> layouts, ReadLayouts(arguments.layouts));
  CPSHARD_ASSIGN_OR_RETURN(ShardFiles files, ShardFiles::Open(arguments.in, std::move(layouts)));
  if (!arguments.token && !arguments.rank) {
    return arguments.json ? SummaryJson(files) : SummaryText(files);
  }
  TokenPlace place;
  std::optional<RankSlot> asked;
  if (arguments.token) {
    CPSHARD_ASSIGN_OR_RETURN(place, files.trace().OfToken({*arguments.row, *arguments.token}));
  } else {
    asked = {*arguments.rank, *arguments.slot};
    CPSHARD_ASSIGN_OR_RETURN(place, files.trace().OfSlot(*asked, arguments.row.value_or(0)));
  }
  CPSHARD_ASSIGN_OR_RETURN(const explain::TokenReport report,
                           ReportOn(files, std::move(place), asked));
  return arguments.json ? ToJson(files.trace(), report) : ToText(files.trace(), report);
}

absl::Status ShowExplanation(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ExplainFiles(arguments));
  std::printf("%s", Printable(text).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddExplainCommand(CLI::App& app, Command& run) {
  CLI::App* command =
      app.add_subcommand("explain", "where a token went, or where a slot came from");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--layouts", arguments->layouts, "the layouts.json of the shards")
      ->required()
      ->type_name("FILE");
  command->add_option("--in", arguments->in, "the folder of the shards")
      ->required()
      ->type_name("DIR");
  CLI::Option* row =
      command->add_option("--row", arguments->row, "the row of the token, or of the slot (then 0)")
          ->type_name("R");
  CLI::Option* token =
      command->add_option("--token", arguments->token, "a token of that row, as it was sent")
          ->type_name("T");
  CLI::Option* rank =
      command->add_option("--rank", arguments->rank, "the rank of the slot")->type_name("R");
  CLI::Option* slot =
      command->add_option("--slot", arguments->slot, "a slot of that rank; chunks are counted on")
          ->type_name("I");
  token->needs(row)->excludes(rank)->excludes(slot);
  rank->needs(slot);
  slot->needs(rank);
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback([arguments, &run] {
    if (arguments->row && !arguments->token && !arguments->slot) {
      throw CLI::ValidationError("--row", "give --token with it, or --rank and --slot");
    }
    run = [arguments] { return Outcome{ShowExplanation(*arguments)}; };
  });
}

}  // namespace cpshard
