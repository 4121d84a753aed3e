#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/plan_draw.h"
#include "client/cli/plan_print.h"
#include "client/cli/printable.h"
#include "client/client.h"
#include "client/safetensors.h"
#include "core/plan/pad_rule.h"
#include "core/plan/status_macros.h"
#include "proto/codec.h"
#include "proto/json.h"
#include "proto/plan_layout.h"

namespace cpshard {
namespace {

struct Arguments {
  ShardArguments shard;
  std::string in;
  std::optional<int64_t> length;
  std::string documents;  // "8,4"
  bool pads = false;      // the documents alone are given: what padding costs them
  bool json = false;
  DrawArguments drawing;

  PlanQuestions questions() const {
    return {pads ? ParseIntegers(documents) : std::vector<int64_t>(), {}};
  }
};

// A stand-in for a batch: one row of `length` tokens and labels, without bytes.
Batch RowOf(int64_t length) {
  Batch batch;
  for (const char* name : {"input_ids", "labels"}) {
    batch.tensors.push_back({{name, DType::kI64, {1, length}}, {}});
  }
  return batch;
}

// Adds an int64 stream of these values.
absl::Status AddStream(absl::string_view name, std::vector<int64_t> dims,
                       absl::Span<const int64_t> values, BufferPool& pool, Batch& batch) {
  const size_t bytes = values.size() * sizeof(int64_t);
  CPSHARD_ASSIGN_OR_RETURN(const Buffer buffer, pool.Allocate(bytes));
  if (bytes > 0) std::memcpy(buffer.data(), values.data(), bytes);
  batch.tensors.push_back({{std::string(name), DType::kI64, std::move(dims)}, buffer});
  return absl::OkStatus();
}

// Positions that begin again with every document: what a layout that reads no lengths is told.
absl::Status DescribeDocuments(absl::Span<const int64_t> lengths, BufferPool& pool, Batch& batch) {
  const std::vector<int64_t>& dims = batch.tensors.front().spec.dims;
  CPSHARD_ASSIGN_OR_RETURN(const int64_t sum, SumOfLengths(lengths));
  if (sum != dims[1]) {
    return absl::InvalidArgumentError(absl::StrCat("the documents have ", sum,
                                                   " tokens, but the row has ", dims[1],
                                                   "; their lengths must add up to it"));
  }
  std::vector<int64_t> positions;
  positions.reserve(sum);
  for (int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) positions.push_back(i);
  }
  return AddStream("position_ids", dims, positions, pool, batch);
}

// The row is packed with documents of these lengths, nothing of them being padding: if the layout
// reads lengths, as streams of them.
absl::Status AddDocuments(absl::Span<const int64_t> lengths, const Options& options,
                          std::optional<int64_t> cp_size, BufferPool& pool, Batch& batch) {
  Batch packed = batch;
  packed.tensors.push_back({{"position_ids", DType::kI64, batch.tensors.front().spec.dims}, {}});
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    CPSHARD_RETURN_IF_ERROR(
        AddStream(name, {1, static_cast<int64_t>(lengths.size())}, lengths, pool, packed));
  }
  packed.scalars.push_back({"qkv_format", std::string("thd")});
  const absl::StatusOr<Sharder> sharder = options.MakeSharder();
  const bool read = !sharder.ok() || !sharder->Needs(SpecOf(packed, cp_size)).empty();
  if (!read) return DescribeDocuments(lengths, pool, batch);
  batch = std::move(packed);
  return absl::OkStatus();
}

absl::StatusOr<Batch> ReadInput(const Arguments& arguments, const Options& options,
                                BufferPool& pool) {
  if (arguments.pads) return Batch();
  if (!arguments.length) return ReadBatch(arguments.in, ReadLimits(arguments.shard), pool);
  Batch batch = RowOf(*arguments.length);
  if (!arguments.documents.empty()) {
    // A length that is over the limits is not worth the memory of its positions.
    const std::optional<int64_t> cp_size = arguments.shard.cp_size();
    CPSHARD_RETURN_IF_ERROR(ValidateSpec(SpecOf(batch, cp_size), Limits()));
    CPSHARD_RETURN_IF_ERROR(
        AddDocuments(ParseIntegers(arguments.documents), options, cp_size, pool, batch));
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
                                     const ShardArguments& shard, const PlanQuestions& questions) {
  Request request{options, shard.cp_size(), {}, SpecOf(batch, shard.cp_size()), batch};
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(request.spec, Limits()));
  CPSHARD_ASSIGN_OR_RETURN(request.ranks,
                           ResolveRanks(shard.rank_list(), request.spec.num_ranks()));
  return PlanLayoutOf(request, questions, Limits(), PlanReply::kHere);
}

absl::StatusOr<PlanSummary> PlanThere(const Batch& batch, const Options& options,
                                      const ShardArguments& shard, const PlanQuestions& questions) {
  CPSHARD_ASSIGN_OR_RETURN(const auto client,
                           Client::Connect(shard.server, {.deadline = shard.deadline(0)}));
  return client->PlanLayout(batch, options, shard.cp_size(), shard.rank_list(), questions);
}

absl::StatusOr<PlanSummary> MakePlan(const Arguments& arguments) {
  BufferPool pool;
  const ShardArguments& shard = arguments.shard;
  CPSHARD_ASSIGN_OR_RETURN(Options options, ReadOptions(shard.options));
  if (arguments.length) options.SetDefaultPaddingTokenId(0);  // there are no tokens to be padded
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, ReadInput(arguments, options, pool));
  const PlanQuestions questions = arguments.questions();
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary, shard.server.empty()
                                                    ? PlanHere(batch, options, shard, questions)
                                                    : PlanThere(batch, options, shard, questions));
  if (summary.layouts.empty()) CPSHARD_RETURN_IF_ERROR(CheckValues(summary.needs, batch));
  return summary;
}

absl::StatusOr<std::string> TextOf(const Arguments& arguments, const PlanSummary& summary) {
  if (arguments.json) {
    CPSHARD_ASSIGN_OR_RETURN(const std::string json, SummaryToJson(summary));
    return json + "\n";
  }
  if (arguments.pads) return PadText(summary, arguments.questions().document_lengths);
  return Printable(PlanText(summary));
}

// The picture for the terminal, if one is asked for; files are written.
absl::StatusOr<std::string> Draw(const Arguments& arguments, PlanSummary summary) {
  const PlanWith plan = [&](const std::string& options) {
    Arguments other = arguments;
    other.shard.options = options;
    return MakePlan(other);
  };
  return DrawPlans(arguments.drawing, arguments.shard.options, std::move(summary), plan);
}

absl::Status ShowPlan(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary, MakePlan(arguments));
  std::string text;
  if (!arguments.drawing.draw) {
    CPSHARD_ASSIGN_OR_RETURN(text, TextOf(arguments, summary));
  }
  if (arguments.drawing.wanted()) {
    CPSHARD_ASSIGN_OR_RETURN(const std::string picture, Draw(arguments, std::move(summary)));
    text += picture;
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand(
      "plan", "show the layout of a batch or of a length, or what padding costs documents");
  auto arguments = std::make_shared<Arguments>();
  DeclareShardArguments(*command, arguments->shard);
  CLI::Option* in =
      command->add_option("--in", arguments->in, "the batch")->type_name("BATCH.safetensors");
  CLI::Option* length = command->add_option("--len", arguments->length, "one row of S tokens")
                            ->type_name("S")
                            ->excludes(in);
  CLI::Option* documents =
      command
          ->add_option("--docs", arguments->documents,
                       "lengths of the documents of that row; alone: what padding costs them")
          ->excludes(in)
          ->check(CLI::Validator(CheckLengths, "8,4,..."));
  CLI::Option* json = command->add_flag("--json", arguments->json, "as JSON");
  DeclareDrawArguments(*command, arguments->drawing);
  command->get_option("--draw")->excludes(json);
  command->callback([=, &run] {
    if (in->empty() && length->empty() && documents->empty()) {
      throw CLI::RequiredError("--in, --len or --docs");
    }
    arguments->pads = in->empty() && length->empty();
    CheckDrawArguments(arguments->drawing, /*has_batch=*/!arguments->pads);
    run = [arguments] { return Outcome{ShowPlan(*arguments)}; };
  });
}

}  // namespace cpshard
