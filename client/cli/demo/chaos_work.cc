#include "client/cli/demo/chaos_work.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int64_t kPassesApart = 7;  // batches between those of two passes

// The numbers and names of the work, by option.
template <typename Work, typename Visit>
void ForEach(Work& work, Visit visit) {
  visit("--server", work.server);
  visit("--group", work.group);
  visit("--layout", work.layout);
  visit("--loaders", work.loaders);
  visit("--steps", work.steps);
  visit("--microbatches", work.microbatches);
  visit("--length", work.length);
  visit("--validate-every", work.validate_every);
  visit("--validation-steps", work.validation_steps);
  visit("--max-bytes", work.max_bytes);
}

absl::StatusOr<DemoLayout> FindLayout(const ChaosWork& work) {
  for (DemoLayout& layout : Layouts()) {
    if (layout.name != work.layout || layout.pack.document_multiple) continue;
    layout.pack.length = work.length;
    layout.pack.last_length = work.length + 2;
    return std::move(layout);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the demo has no layout '", work.layout, "' with sessions"));
}

}  // namespace

std::vector<std::string> ToWords(const ChaosWork& work) {
  std::vector<std::string> words;
  ForEach(work, [&words](const char* option, const auto& value) {
    words.push_back(absl::StrCat(option, "=", value));
  });
  return words;
}

void AddOptions(CLI::App& command, ChaosWork& work) {
  ForEach(work, [&command](const char* option, auto& value) { command.add_option(option, value); });
  command.get_option("--server")->required();
  command.get_option("--loaders")->check(CLI::PositiveNumber);
  command.get_option("--microbatches")->check(CLI::PositiveNumber);
  command.get_option("--length")->check(CLI::Range(8, 1 << 20));
  command.add_option("files", work.files);
}

absl::StatusOr<std::unique_ptr<const ChaosBatches>> ChaosBatches::Read(const ChaosWork& work) {
  CPSHARD_ASSIGN_OR_RETURN(DemoLayout layout, FindLayout(work));
  constexpr int64_t kBytesOfToken = 3 * 8 + 1;
  const int64_t step_bytes =
      work.microbatches * layout.pack.rows * layout.pack.last_length * kBytesOfToken;
  if (step_bytes > kMaxChaosStepBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step has ", step_bytes, " bytes; ", kMaxChaosStepBytes, " are possible"));
  }
  CPSHARD_ASSIGN_OR_RETURN(std::vector<Document> documents,
                           ReadDocuments(work.files, work.max_bytes));
  return std::unique_ptr<const ChaosBatches>(
      new ChaosBatches(work, std::move(layout), std::move(documents)));
}

ChaosBatches::ChaosBatches(const ChaosWork& work, DemoLayout layout,
                           std::vector<Document> documents)
    : microbatches_(work.microbatches),
      layout_(std::move(layout)),
      documents_(std::move(documents)),
      packing_(documents_, layout_.pack) {}

// Around the text again where it ends; a pass begins elsewhere than the one before it.
absl::StatusOr<ChaosBatches::Step> ChaosBatches::Make(const StepAddress& at,
                                                      BufferPool& pool) const {
  const int64_t shift = at.stream == kTrain ? 0 : (at.pass + 1) * kPassesApart;
  int64_t label_tokens = 0, tokens_excl_tail_pad = 0;
  Step step;
  for (int64_t i = 0; i < microbatches_; ++i) {
    const int64_t index = at.step * microbatches_ + i + shift;
    CPSHARD_ASSIGN_OR_RETURN(PackedBatch packed,
                             packing_.Make(index % packing_.num_batches(), pool));
    label_tokens += packed.label_tokens;
    tokens_excl_tail_pad += packed.tokens_excl_tail_pad;
    step.microbatches.push_back(std::move(packed.batch));
  }
  step.totals = {microbatches_, label_tokens, tokens_excl_tail_pad};
  return step;
}

}  // namespace cpshard::demo
