#include "tests/conformance/run.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/backends.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/expectation.h"
#include "tests/conformance/gradient.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

using Question = std::function<Answer()>;

Outcome Failed(absl::string_view text) {
  return {.kind = Outcome::Kind::kFailed, .text = std::string(text)};
}

Outcome Skipped(absl::string_view why) {
  return {.kind = Outcome::Kind::kSkipped, .text = std::string(why)};
}

// Why this runner cannot drive the input.
std::optional<std::string> SkipReason(const Input& input, const Backend& backend, bool on_wire) {
  if (!backend.built()) return absl::StrCat("not built yet: backend ", backend.name);
  if (backend.library != nullptr && on_wire) return "verb not on the wire";
  if (input.replicas) return "not built yet: data-parallel replicas";
  if (FindPerRank(input.batch)) return "cannot be sent: a value differs between ranks";
  return std::nullopt;
}

absl::StatusOr<Batch> BatchOf(const Input& input) {
  CPSHARD_ASSIGN_OR_RETURN(Batch batch, DecodeValues(input.batch, std::nullopt));
  if (!input.loss_mask_arg) return batch;
  const bool resident = batch.FindTensor("loss_mask") != nullptr;
  if (resident)
    return absl::InvalidArgumentError("a loss_mask both in batch and as argument (D17)");
  CPSHARD_RETURN_IF_ERROR(AppendValue("loss_mask", *input.loss_mask_arg, std::nullopt, batch));
  return batch;
}

// The product's answer to `input`, ready to be asked for. InvalidArgument: the case is malformed.
absl::StatusOr<Question> Prepare(const Input& input, const Backend& backend, const Target& target) {
  if (backend.library != nullptr) return ReadLibraryCall(backend, input);
  CPSHARD_ASSIGN_OR_RETURN(ShardArgs args, ReadShardArgs(backend, input.args));
  CPSHARD_ASSIGN_OR_RETURN(Batch batch, BatchOf(input));
  const bool gradient = args.wants_gradient && !target.on_wire;
  ShardCall call{std::move(batch), std::move(args.options), input.cp_size};
  return Question([call = std::move(call), gradient, &target]() -> Answer {
    Answer answer = target.shard(call);
    if (!gradient || !answer.ok()) return answer;
    for (RankAnswer& rank : *answer) AddGradientOfSum(call.batch, rank);
    return answer;
  });
}

Outcome Compare(const Answer& answer, const SealedExpectation& sealed, bool on_wire) {
  Outcome outcome;
  outcome.answer = Describe(answer);
  absl::StatusOr<Expectation> expectation = Open(sealed, answer);
  if (!expectation.ok()) {
    outcome.kind = Outcome::Kind::kFailed;
    outcome.text = absl::StrCat("cannot compare: ", expectation.status().message());
    return outcome;
  }
  outcome.keys_not_compared = DropGradients(on_wire, *expectation);
  if (std::optional<std::string> difference = FirstDifference(answer, *expectation)) {
    outcome.kind = Outcome::Kind::kFailed;
    outcome.text = *std::move(difference);
  }
  return outcome;
}

}  // namespace

Outcome RunCase(const Case& item, const Target& target) {
  if (!item.skip.empty()) return Skipped(item.skip);
  const Backend* backend = FindBackend(item.input.backend);
  if (backend == nullptr) return Failed(absl::StrCat("unknown backend '", item.input.backend, "'"));
  if (const auto why = SkipReason(item.input, *backend, target.on_wire)) return Skipped(*why);
  const absl::StatusOr<Question> question = Prepare(item.input, *backend, target);
  if (!question.ok()) return Failed(absl::StrCat("malformed case: ", question.status().message()));
  const Answer answer = (*question)();
  return Compare(answer, item.expectation, target.on_wire);
}

}  // namespace cpshard::conformance
