#include "client/cli/demo/chaos_loader.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/loader.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int64_t kDeclareEvery = 3;  // steps of a loader: totals are declared beforehand

std::string StateBehind(int64_t pass, int64_t step) { return absl::StrCat(pass, "/", step); }

// Could go anywhere, but holds the library to its word: steps in order, and the right states.
class TextSource : public StepSource {
 public:
  TextSource(std::string stream, const ChaosWork& work, int64_t loader, const ChaosBatches& batches,
             const ChaosReporter& reporter)
      : stream_(std::move(stream)),
        work_(work),
        loader_(loader),
        batches_(batches),
        reporter_(reporter),
        next_{0, loader} {}

  absl::StatusOr<std::optional<SourceStep>> Make(int64_t pass, int64_t step) override {
    if (Place{pass, step} != next_) {
      return absl::InternalError(absl::StrCat("asked for pass ", pass, ", step ", step, "; pass ",
                                              next_.first, ", step ", next_.second, " follows"));
    }
    if (step >= EndStep(pass)) return std::nullopt;
    const StepAddress at{stream_, pass, step};
    CPSHARD_RETURN_IF_ERROR(reporter_.Say({.event = kMaking, .at = at}));
    CPSHARD_ASSIGN_OR_RETURN(ChaosBatches::Step made, batches_.Make(at, pool_));
    next_.second += work_.loaders;
    SourceStep result{.microbatches = std::move(made.microbatches),
                      .state = StateBehind(pass, step)};
    if (step / work_.loaders % kDeclareEvery == 0) result.totals = made.totals;
    return result;
  }

  int64_t EndStep(int64_t /*pass*/) override { return work_.StepsOf(stream_); }

  absl::Status Rewind(int64_t pass, int64_t step,
                      const std::optional<LoaderState>& state) override {
    std::optional<LoaderState> want;
    const int64_t before = step - work_.loaders;
    if (before >= 0) want = {before, StateBehind(pass, before)};
    if (state != want) {
      return absl::InternalError(absl::StrCat("rewound with the state of ", Name(state),
                                              ", expected that of ", Name(want)));
    }
    next_ = {pass, step};
    return absl::OkStatus();
  }

 private:
  using Place = std::pair<int64_t, int64_t>;  // pass, step

  static std::string Name(const std::optional<LoaderState>& state) {
    if (!state) return "no step";
    return absl::StrCat("step ", state->step, " (", state->state, ")");
  }

  const std::string stream_;
  const ChaosWork& work_;
  const int64_t loader_;
  const ChaosBatches& batches_;
  const ChaosReporter& reporter_;
  BufferPool pool_;
  Place next_;
};

}  // namespace

absl::Status RunChaosLoader(const ChaosWork& work, int64_t loader, const ChaosReporter& reporter) {
  CPSHARD_ASSIGN_OR_RETURN(const auto batches, ChaosBatches::Read(work));
  TextSource train(kTrain, work, loader, *batches, reporter);
  TextSource validation(kValidation, work, loader, *batches, reporter);
  std::map<std::string, StepSource*> sources = {{kTrain, &train}};
  if (work.validates()) sources[kValidation] = &validation;
  CPSHARD_ASSIGN_OR_RETURN(
      const auto pushing,
      Loader::Start(work.server,
                    {.group = work.group, .loader = loader, .num_loaders = work.loaders},
                    std::move(sources)));
  return pushing->Wait();
}

}  // namespace cpshard::demo
