#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/client.h"
#include "client/safetensors.h"
#include "core/plan/status_macros.h"
#include "proto/json.h"

namespace cpshard {
namespace {

struct Arguments {
  ShardArguments shard;
  std::string in;
  std::optional<int64_t> length;
  bool json = false;
};

// The batch, or a stand-in without bytes: one row of `length` tokens and labels.
struct Planned {
  BatchSpec spec;
  Batch batch;
};

absl::StatusOr<Planned> ReadInput(const Arguments& arguments, BufferPool& pool) {
  Planned planned;
  if (arguments.length) {
    planned.spec.tensors = {{"input_ids", DType::kI64, {1, *arguments.length}},
                            {"labels", DType::kI64, {1, *arguments.length}}};
    planned.spec.cp_size = arguments.shard.cp_size();
    return planned;
  }
  CPSHARD_ASSIGN_OR_RETURN(planned.batch,
                           ReadBatch(arguments.in, ReadLimits(arguments.shard), pool));
  planned.spec = SpecOf(planned.batch, arguments.shard.cp_size());
  return planned;
}

absl::StatusOr<PlanSummary> MakePlan(const Arguments& arguments) {
  BufferPool pool;
  const ShardArguments& shard = arguments.shard;
  CPSHARD_ASSIGN_OR_RETURN(const Planned planned, ReadInput(arguments, pool));
  CPSHARD_ASSIGN_OR_RETURN(Options options, ReadOptions(shard.options));
  if (arguments.length) options.SetDefaultPaddingTokenId(0);  // there are no tokens to be padded
  if (!shard.server.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(const auto client,
                             Client::Connect(shard.server, {.deadline = shard.deadline(0)}));
    return client->PlanLayout(planned.spec, options, shard.rank_list());
  }
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(planned.spec, Limits()));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks,
                           ResolveRanks(shard.rank_list(), planned.spec.num_ranks()));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  absl::StatusOr<ShardPlan> plan = arguments.length
                                       ? sharder.Plan(planned.spec, {})
                                       : PlanBatch(sharder, planned.batch, shard.cp_size());
  CPSHARD_RETURN_IF_ERROR(plan.status());
  return Summarize(*plan, ranks, Limits());
}

void Print(const PlanSummary& summary) {
  for (const ShardLayout& layout : summary.layouts) {
    IndexMap map;
    for (const Run& run : layout.runs) map.Append(run);
    std::printf("rank %lld of %lld: %lld slots = columns", static_cast<long long>(layout.cp_rank),
                static_cast<long long>(layout.cp_size), static_cast<long long>(map.size()));
    for (const Run& run : map.runs()) {
      std::printf(" %lld..%lld", static_cast<long long>(run.source),
                  static_cast<long long>(run.source + run.length - 1));
    }
    std::printf("\n");
  }
  if (!summary.layouts.empty() && summary.layouts.front().padded_seq_len) {
    const ShardLayout& layout = summary.layouts.front();
    std::printf("length %lld -> %lld, padding %lld of %lld columns (%.2f %%)\n",
                static_cast<long long>(layout.original_seq_len.value_or(-1)),
                static_cast<long long>(*layout.padded_seq_len),
                static_cast<long long>(summary.pad_columns),
                static_cast<long long>(summary.padded_columns),
                summary.padded_columns == 0 ? 0.0
                                            : 100.0 * static_cast<double>(summary.pad_columns) /
                                                  static_cast<double>(summary.padded_columns));
  }
  for (const StreamSummary& stream : summary.streams) {
    std::printf("stream %-24s %-5s %-20s %s\n", stream.spec.name.c_str(),
                std::string(DTypeName(stream.spec.dtype)).c_str(),
                DimsString(stream.spec.dims).c_str(),
                std::string(ExtentName(stream.cut.extent)).c_str());
  }
  for (const Notice& notice : summary.notices) {
    std::printf("notice: %s: %s\n", notice.code.c_str(), notice.text.c_str());
  }
}

absl::Status ShowPlan(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(const PlanSummary summary, MakePlan(arguments));
  if (!arguments.json) {
    Print(summary);
    return absl::OkStatus();
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::string json, SummaryToJson(summary));
  std::printf("%s\n", json.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("plan", "show the layout of a batch or of a length");
  auto arguments = std::make_shared<Arguments>();
  DeclareShardArguments(*command, arguments->shard);
  CLI::Option_group* input = command->add_option_group("input");
  input->add_option("--in", arguments->in, "the batch")->type_name("BATCH.safetensors");
  input->add_option("--len", arguments->length, "one row of S tokens")->type_name("S");
  input->require_option(1);
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{ShowPlan(*arguments)}; }; });
}

}  // namespace cpshard
