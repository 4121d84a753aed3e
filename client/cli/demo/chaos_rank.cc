#include "client/cli/demo/chaos_rank.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/demo/check.h"
#include "client/session/rank.h"
#include "core/plan/status_macros.h"
#include "proto/error_details.h"

namespace cpshard::demo {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kPeerPause = absl::Milliseconds(20);

bool PeerIsAway(const absl::Status& status) {
  return absl::IsAborted(status) &&
         DetailsOf(status).value_or(ErrorDetails()).reason == "PEER_LEFT";
}

class Trainer {
 public:
  Trainer(const ChaosWork& work, const RankTask& task, const ChaosBatches& batches,
          const ChaosReporter& reporter, Rank& rank)
      : work_(work), task_(task), batches_(batches), reporter_(reporter), rank_(rank) {}

  absl::Status Run() {
    CPSHARD_RETURN_IF_ERROR(reporter_.Say({.event = kOpened, .state = rank_.State().ToJson()}));
    while (!trained()) {
      CPSHARD_RETURN_IF_ERROR(ValidationIsDue() ? Validate() : TrainOneStep());
    }
    if (work_.validates()) rank_.ClosePass(kValidation, true);
    return rank_.Close(kPatience);
  }

 private:
  bool trained() const { return rank_.State().streams.at(kTrain).pass > 0; }

  bool ValidationIsDue() const {
    if (!work_.validates()) return false;
    const TrainState state = rank_.State();
    return state.streams.at(kValidation).pass <
           work_.PassesAfter(state.streams.at(kTrain).next_step);
  }

  absl::Status Validate() {
    rank_.StartPass(kValidation);
    while (true) {
      CPSHARD_ASSIGN_OR_RETURN(const bool more, TakeStep(kValidation));
      if (!more) return Leave(kValidation, false);
    }
  }

  absl::Status TrainOneStep() {
    CPSHARD_ASSIGN_OR_RETURN(const bool more, TakeStep(kTrain));
    if (!more) return Leave(kTrain, true);
    absl::SleepFor(absl::Milliseconds(task_.step_milliseconds));
    return absl::OkStatus();
  }

  // The process could be killed between any two of these lines; the report decides what counts.
  absl::StatusOr<bool> TakeStep(const std::string& stream) {
    const StreamState before = rank_.State().streams.at(stream);
    ChaosLine line{.event = kEnd, .at = {stream, before.pass, before.next_step}};
    CPSHARD_ASSIGN_OR_RETURN(const std::optional<RankStep> step, Next(stream));
    if (step && StepAddress{step->stream, step->pass, step->step} != line.at) {
      return absl::InternalError(absl::StrCat("pass ", step->pass, ", step ", step->step, " of '",
                                              stream, "' has come; ", MomentOf(line),
                                              " was to come"));
    }
    if (!step && before.next_step != work_.StepsOf(stream)) {
      return absl::InternalError(absl::StrCat("'", stream, "' ends at step ", before.next_step,
                                              ", it has ", work_.StepsOf(stream)));
    }
    line.waited = absl::ToDoubleSeconds(rank_.stats().last.total());
    if (step) {
      line.event = kStep;
      CPSHARD_RETURN_IF_ERROR(Check(*step, line));
      rank_.Consumed(stream);
    }
    line.state = rank_.State().ToJson();
    CPSHARD_RETURN_IF_ERROR(reporter_.Say(line));
    return step.has_value();
  }

  absl::StatusOr<std::optional<RankStep>> Next(const std::string& stream) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (true) {
      absl::StatusOr<std::optional<RankStep>> step = rank_.Next(stream);
      if (!PeerIsAway(step.status()) || absl::Now() > give_up) return step;
      absl::SleepFor(kPeerPause);
    }
  }

  absl::Status Check(const RankStep& step, ChaosLine& line) {
    CPSHARD_ASSIGN_OR_RETURN(const ChaosBatches::Step want, batches_.Make(line.at, pool_));
    if (step.totals != want.totals) line.difference = "the totals are not those of the batches";
    if (step.microbatches.size() != want.microbatches.size()) {
      line.difference = absl::StrCat(step.microbatches.size(), " microbatches came, expected ",
                                     want.microbatches.size());
      return absl::OkStatus();
    }
    for (size_t i = 0; i < want.microbatches.size(); ++i) {
      const RankMicrobatch& got = step.microbatches[i];
      line.batches.push_back(NameOfDigest(got.digest));
      line.shards.push_back(NameOfDigest(DigestOf(got.shard.batch)));
      const std::string text = DifferenceOfShard(want.microbatches[i], batches_.layout().restated,
                                                 kCpSize, task_.rank, got.shard);
      if (line.difference.empty() && !text.empty()) {
        line.difference = absl::StrCat("microbatch ", i, ": ", text);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Leave(const std::string& stream, bool finished) {
    const int64_t pass = rank_.State().streams.at(stream).pass;
    rank_.ClosePass(stream, finished);
    return reporter_.Say(
        {.event = kLeft, .at = {stream, pass, 0}, .state = rank_.State().ToJson()});
  }

  const ChaosWork& work_;
  const RankTask& task_;
  const ChaosBatches& batches_;
  const ChaosReporter& reporter_;
  Rank& rank_;
  BufferPool pool_;
};

absl::StatusOr<RankOptions> OptionsOf(const ChaosWork& work, const RankTask& task,
                                      const ChaosBatches& batches) {
  RankOptions options{.group = work.group,
                      .cp_size = kCpSize,
                      .cp_rank = task.rank,
                      .streams = {{.name = kTrain, .max_step_bytes = kMaxChaosStepBytes}},
                      .timeout = kPatience};
  if (work.validates()) {
    options.streams.push_back(
        {.name = kValidation, .max_step_bytes = kMaxChaosStepBytes, .closed = true});
  }
  CPSHARD_ASSIGN_OR_RETURN(options.options, Options::FromJson(batches.layout().options));
  if (!task.state.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(options.position, TrainState::FromJson(task.state));
    const bool trained = options.position->streams[kTrain].pass > 0;
    for (RankStream& stream : options.streams) stream.finished = trained;
  }
  return options;
}

}  // namespace

absl::Status RunChaosRank(const ChaosWork& work, const RankTask& task,
                          const ChaosReporter& reporter) {
  CPSHARD_ASSIGN_OR_RETURN(const auto batches, ChaosBatches::Read(work));
  CPSHARD_ASSIGN_OR_RETURN(RankOptions options, OptionsOf(work, task, *batches));
  CPSHARD_ASSIGN_OR_RETURN(const auto rank, Rank::Open(work.server, std::move(options)));
  return Trainer(work, task, *batches, reporter, *rank).Run();
}

}  // namespace cpshard::demo
