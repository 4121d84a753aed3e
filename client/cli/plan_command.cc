#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
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
  std::string documents;  // "8,4"
  bool json = false;
};

// A stand-in for a batch: one row of `length` tokens and labels, without bytes.
Batch RowOf(int64_t length) {
  Batch batch;
  for (const char* name : {"input_ids", "labels"}) {
    batch.tensors.push_back({{name, DType::kI64, {1, length}}, {}});
  }
  return batch;
}

// The row is packed with documents of these lengths, nothing of them being padding - if the layout
// reads lengths; for the others they describe the row, and are no streams.
absl::Status AddDocuments(absl::Span<const int64_t> lengths, const Options& options,
                          std::optional<int64_t> cp_size, BufferPool& pool, Batch& batch) {
  const size_t bytes = lengths.size() * sizeof(int64_t);
  CPSHARD_ASSIGN_OR_RETURN(const Buffer buffer, pool.Allocate(bytes));
  std::memcpy(buffer.data(), lengths.data(), bytes);
  Batch packed = batch;
  packed.tensors.push_back({{"position_ids", DType::kI64, batch.tensors.front().spec.dims}, {}});
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    const auto count = static_cast<int64_t>(lengths.size());
    packed.tensors.push_back({{name, DType::kI64, {1, count}}, buffer});
  }
  packed.scalars.push_back({"qkv_format", std::string("thd")});
  const absl::StatusOr<Sharder> sharder = options.MakeSharder();
  const bool read = !sharder.ok() || !sharder->Needs(SpecOf(packed, cp_size)).empty();
  if (read) batch = std::move(packed);
  return absl::OkStatus();
}

absl::StatusOr<Batch> ReadInput(const Arguments& arguments, const Options& options,
                                BufferPool& pool) {
  if (!arguments.length) return ReadBatch(arguments.in, ReadLimits(arguments.shard), pool);
  Batch batch = RowOf(*arguments.length);
  if (!arguments.documents.empty()) {
    CPSHARD_RETURN_IF_ERROR(AddDocuments(ParseIntegers(arguments.documents), options,
                                         arguments.shard.cp_size(), pool, batch));
  }
  return batch;
}

// A plan that reads values cannot do with a row of which only the length is known.
absl::Status CheckValues(absl::Span<const std::string> needs, const Batch& batch) {
  for (const std::string& name : needs) {
    const Tensor* tensor = batch.FindTensor(name);
    const bool there =
        tensor == nullptr || tensor->buffer.size() > 0 || NumElements(tensor->spec) == 0;
    if (there) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the layout reads the values of '", name,
                     "', which a length alone does not give; add --docs, or plan a batch (--in)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanSummary> PlanHere(const Batch& batch, const Options& options,
                                     const ShardArguments& shard) {
  const BatchSpec spec = SpecOf(batch, shard.cp_size());
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(spec, Limits()));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks,
                           ResolveRanks(shard.rank_list(), spec.num_ranks()));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  const std::vector<std::string> needs = sharder.Needs(spec);
  CPSHARD_RETURN_IF_ERROR(CheckValues(needs, batch));
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan, PlanBatch(sharder, batch, shard.cp_size()));
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary, Summarize(plan, ranks, Limits()));
  summary.needs = needs;
  return summary;
}

absl::StatusOr<PlanSummary> MakePlan(const Arguments& arguments) {
  BufferPool pool;
  const ShardArguments& shard = arguments.shard;
  CPSHARD_ASSIGN_OR_RETURN(Options options, ReadOptions(shard.options));
  if (arguments.length) options.SetDefaultPaddingTokenId(0);  // there are no tokens to be padded
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, ReadInput(arguments, options, pool));
  if (shard.server.empty()) return PlanHere(batch, options, shard);
  CPSHARD_ASSIGN_OR_RETURN(const auto client,
                           Client::Connect(shard.server, {.deadline = shard.deadline(0)}));
  CPSHARD_ASSIGN_OR_RETURN(const PlanSummary summary,
                           client->PlanLayout(batch, options, shard.cp_size(), shard.rank_list()));
  if (summary.layouts.empty()) CPSHARD_RETURN_IF_ERROR(CheckValues(summary.needs, batch));
  return summary;
}

void Print(const PlanSummary& summary) {
  if (summary.choice) {
    std::printf("resolved to layout %s: %s\n", summary.choice->layout.c_str(),
                summary.choice->reason.c_str());
  }
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
    const int64_t padded = *layout.padded_seq_len;
    std::printf("length %lld -> %lld, padding %lld of %lld columns (%.2f %%)\n",
                static_cast<long long>(layout.original_seq_len.value_or(padded)),
                static_cast<long long>(padded), static_cast<long long>(summary.pad_columns),
                static_cast<long long>(summary.padded_columns),
                summary.padded_columns == 0 ? 0.0
                                            : 100.0 * static_cast<double>(summary.pad_columns) /
                                                  static_cast<double>(summary.padded_columns));
  }
  if (summary.row_need) {
    std::printf("row need %lld columns (the maximum over a job's groups is min_padded_len)\n",
                static_cast<long long>(*summary.row_need));
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
  CLI::Option* length =
      input->add_option("--len", arguments->length, "one row of S tokens")->type_name("S");
  input->require_option(1);
  command->add_option("--docs", arguments->documents, "lengths of the documents of that row")
      ->needs(length)
      ->check(CLI::Validator(CheckLengths, "8,4,..."));
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{ShowPlan(*arguments)}; }; });
}

}  // namespace cpshard
