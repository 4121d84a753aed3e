#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/session/file_source.h"
#include "client/cli/session/server.h"
#include "client/session/loader.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

struct Arguments {
  std::string server, group, loader, stream = "train";
  int64_t microbatches = 1, passes = 1, generation = 0;
  std::vector<std::string> files;
};

struct LoaderSeat {
  int64_t loader = 0, num_loaders = 1;
};

std::optional<LoaderSeat> ParseLoader(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  LoaderSeat seat;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &seat.loader) ||
      !absl::SimpleAtoi(parts[1], &seat.num_loaders)) {
    return std::nullopt;
  }
  const bool is_one_of_them = seat.loader >= 0 && seat.loader < seat.num_loaders;
  return is_one_of_them ? std::optional(seat) : std::nullopt;
}

std::string CheckLoader(const std::string& text) {
  if (ParseLoader(text)) return "";
  return absl::StrCat("'", text, "' is no loader; of two loaders one is 0/2, the other 1/2");
}

absl::Status PushFiles(const Arguments& arguments) {
  const int64_t num_files = arguments.files.size();
  if (num_files % arguments.microbatches != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        num_files, " files are no whole steps of ", arguments.microbatches, " microbatches; give ",
        arguments.microbatches - num_files % arguments.microbatches, " more, or fewer"));
  }
  const LoaderSeat seat = *ParseLoader(arguments.loader);
  CPSHARD_ASSIGN_OR_RETURN(const ServerInfo server, AskServer(arguments.server));
  FileSource source(arguments.files, arguments.microbatches, arguments.passes, server.limits);
  CPSHARD_RETURN_IF_ERROR(source.Check(seat.loader, seat.num_loaders));
  CPSHARD_ASSIGN_OR_RETURN(const auto loader,
                           Loader::Start(arguments.server,
                                         {.group = arguments.group,
                                          .loader = seat.loader,
                                          .num_loaders = seat.num_loaders,
                                          .generation = arguments.generation,
                                          .on_lost = SayFirstLoss(arguments.server)},
                                         {{arguments.stream, &source}}));
  CPSHARD_RETURN_IF_ERROR(loader->Wait());
  const LoaderStats stats = loader->stats();
  if (stats.pushed == 0 && source.steps() == 0) {
    std::fprintf(stderr,
                 "note: the group had ended when this loader came; for its next generation "
                 "name it (--generation)\n");
  }
  std::printf("%s\n",
              absl::StrCat("pushed ", source.steps(), " steps: ", stats.pushed - stats.pushed_again,
                           " batches, ", source.bytes(), " bytes; ", stats.pushed_again,
                           " pushed again, ", stats.rewinds, " rewinds")
                  .c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPushCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("push", "be a loader: push files to the ranks of a group");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("files", arguments->files, "batches, in the order of their steps")
      ->required()
      ->type_name("BATCH.safetensors");
  DeclareServer(*command, arguments->server);
  DeclareGroup(*command, arguments->group)->required();
  command->add_option("--loader", arguments->loader, "which loader this is, and of how many")
      ->required()
      ->check(CLI::Validator(CheckLoader, "I/L"))
      ->group("Session");
  command
      ->add_option("--generation", arguments->generation,
                   "of the ranks that it is for: to be started before them where one has ended")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("G")
      ->group("Session");
  DeclareDataStream(*command, arguments->stream);
  command->add_option("--microbatches", arguments->microbatches, "so many files make a step")
      ->check(CLI::Range(1, 4096))
      ->type_name("M")
      ->capture_default_str()
      ->group("Steps");
  command
      ->add_option("--passes", arguments->passes,
                   "the files so many times, as far as readers want; a later pass is empty")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N")
      ->capture_default_str()
      ->group("Steps");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{PushFiles(*arguments)}; }; });
}

}  // namespace cpshard
