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
#include "tests/conformance/readable.h"
#include "tests/conformance/values.h"

namespace cpshard::conformance {
namespace {

using Question = std::function<Answer()>;

Outcome Failed(absl::string_view text) {
  return {.kind = Outcome::Kind::kFailed, .text = std::string(text)};
}

// A case that cannot be read fails, whether it would be run or not.
Outcome Skipped(const Case& item, absl::string_view why) {
  const absl::Status readable = item.words ? absl::OkStatus() : CheckReadable(item);
  if (!readable.ok()) return Failed(absl::StrCat("malformed case: ", readable.message()));
  return {.kind = Outcome::Kind::kSkipped, .text = std::string(why)};
}

// Why this runner cannot drive the input.
std::optional<std::string> SkipReason(const Input& input, const Backend& backend, bool on_wire) {
  if (!backend.built()) return absl::StrCat("not built yet: backend ", backend.name);
  if (backend.library != nullptr && on_wire) return "verb not on the wire";
  // A verb is called by every rank with its own part; a batch is one for all.
  if (backend.library == nullptr && FindPerRank(input.batch))
    return "cannot be sent: a value differs between ranks";
  return std::nullopt;
}

absl::StatusOr<Batch> BatchOf(const Input& input, const Pick& pick) {
  CPSHARD_ASSIGN_OR_RETURN(Batch batch, DecodeValues(input.batch, pick));
  if (!input.loss_mask_arg) return batch;
  const bool resident = batch.FindTensor("loss_mask") != nullptr;
  if (resident)
    return absl::InvalidArgumentError("a loss_mask both in batch and as argument (D17)");
  CPSHARD_RETURN_IF_ERROR(AppendValue("loss_mask", *input.loss_mask_arg, pick, batch));
  return batch;
}

// One call, or one for every data-parallel replica.
absl::StatusOr<std::vector<ShardCall>> CallsOf(const Input& input, const std::string& options) {
  std::vector<ShardCall> calls;
  for (int64_t replica = 0; replica < input.dp_size.value_or(1); ++replica) {
    Pick pick;
    if (input.dp_size) pick.replica = replica;
    CPSHARD_ASSIGN_OR_RETURN(Batch batch, BatchOf(input, pick));
    calls.push_back({std::move(batch), options, input.cp_size});
  }
  return calls;
}

// The ranks of all calls, one after the other; or the first refusal.
Answer Ask(const Target& target, const Backend& backend, const std::vector<ShardCall>& calls,
           bool gradient) {
  std::vector<RankAnswer> ranks;
  for (const ShardCall& call : calls) {
    CPSHARD_ASSIGN_OR_RETURN(std::vector<RankAnswer> answer, target.shard(call));
    if (backend.add_state != nullptr && !target.on_wire) backend.add_state(call, answer);
    for (RankAnswer& rank : answer) {
      if (gradient) AddGradientOfSum(call.batch, rank);
      if (backend.adapt != nullptr) backend.adapt(call.batch, rank);
      ranks.push_back(std::move(rank));
    }
  }
  return ranks;
}

// The product's answer to `input`, ready to be asked for. InvalidArgument: the case is malformed.
absl::StatusOr<Question> Prepare(const Input& input, const Backend& backend, const Target& target) {
  if (backend.library != nullptr) {
    CPSHARD_ASSIGN_OR_RETURN(LibraryCall call, ReadLibraryCall(backend, input));
    return Question([call = std::move(call), &target] { return call(*target.executor); });
  }
  CPSHARD_ASSIGN_OR_RETURN(const ShardArgs args, ReadShardArgs(backend, input.args));
  if (backend.no_mesh && input.cp_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(backend.name, " has no mesh, cp_size must be null"));
  }
  CPSHARD_ASSIGN_OR_RETURN(std::vector<ShardCall> calls, CallsOf(input, args.options));
  const bool gradient = args.wants_gradient && !target.on_wire;
  return Question([calls = std::move(calls), gradient, &backend, &target] {
    return Ask(target, backend, calls, gradient);
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
  outcome.keys_not_compared = DropUnavailable(on_wire, *expectation);
  if (std::optional<std::string> difference = FirstDifference(answer, *expectation)) {
    outcome.kind = Outcome::Kind::kFailed;
    outcome.text = *std::move(difference);
  }
  return outcome;
}

}  // namespace

Outcome RunCase(const Case& item, const Target& target) {
  if (!item.skip.empty()) return Skipped(item, item.skip);
  const Backend* backend = FindBackend(item.input.backend);
  if (backend == nullptr) return Failed(absl::StrCat("unknown backend '", item.input.backend, "'"));
  if (const auto why = SkipReason(item.input, *backend, target.on_wire)) {
    return Skipped(item, *why);
  }
  const absl::StatusOr<Question> question = Prepare(item.input, *backend, target);
  if (!question.ok()) return Failed(absl::StrCat("malformed case: ", question.status().message()));
  const Answer answer = (*question)();
  return Compare(answer, item.expectation, target.on_wire);
}

}  // namespace cpshard::conformance
