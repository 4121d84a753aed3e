#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/printable.h"
#include "client/cli/session/server.h"
#include "client/cli/session/state_file.h"
#include "client/rank_files.h"
#include "client/session/rank.h"
#include "core/batch/failpoint.h"
#include "core/plan/status_macros.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPeerPause = absl::Seconds(1);
constexpr absl::Duration kSilentClose = absl::Minutes(1);

struct Arguments {
  std::string server, group, stream = "train", attempt, options, state, out, executor;
  int64_t cp_size = 0, cp_rank = 0, generation = 1, passes = 1;
  int64_t max_step_bytes = RankStream().max_step_bytes;
  int64_t prefetch = RankOptions().prefetch;
  std::optional<int64_t> steps;
  std::optional<double> deadline_seconds;
  std::vector<std::string> keys;
};

// Where this process begins.
struct Start {
  std::optional<TrainState> position;  // nullopt: at the first step
  int64_t steps = 0;                   // pulled before
  bool finished = false;               // all that is wanted has been pulled
};

// As Rank::ClosePass leaves it.
StreamState BehindPass(const StreamState& at) {
  return {.pass = at.pass + 1, .resume = {.num_loaders = at.resume.num_loaders}};
}

absl::StatusOr<Start> FindStart(const Arguments& arguments) {
  Start start;
  if (arguments.state.empty()) return start;
  CPSHARD_ASSIGN_OR_RETURN(std::optional<PullState> saved, ReadState(arguments.state));
  if (!saved) return start;
  start.position = std::move(saved->train);
  const auto found = start.position->streams.find(arguments.stream);
  if (found == start.position->streams.end()) {
    const auto name = [](std::string* out, const auto& stream) {
      absl::StrAppend(out, "'", stream.first, "'");
    };
    return absl::FailedPreconditionError(
        absl::StrCat("'", arguments.state, "' is the state of data stream ",
                     absl::StrJoin(start.position->streams, ", ", name), ", not of '",
                     arguments.stream, "': name its --stream, or another --state"));
  }
  StreamState& at = found->second;
  start.steps = saved->pulled_steps;
  start.finished =
      at.pass >= arguments.passes || (arguments.steps && start.steps >= *arguments.steps);
  if (start.finished && at.next_step > 0) at = BehindPass(at);
  return start;
}

absl::StatusOr<RankOptions> ToRankOptions(const Arguments& arguments, const Start& start) {
  RankOptions options{.group = arguments.group,
                      .cp_size = arguments.cp_size,
                      .cp_rank = arguments.cp_rank,
                      .generation = arguments.generation,
                      .attempt = arguments.attempt,
                      .streams = {{.name = arguments.stream,
                                   .max_step_bytes = arguments.max_step_bytes,
                                   .finished = start.finished}},
                      .position = start.position,
                      .executor = ExecutorOr(arguments.executor, ExecutorKind::kAuto),
                      .prefetch = arguments.prefetch,
                      .keys = arguments.keys,
                      .on_lost = SayFirstLoss(arguments.server)};
  if (arguments.deadline_seconds) options.timeout = absl::Seconds(*arguments.deadline_seconds);
  CPSHARD_ASSIGN_OR_RETURN(options.options, ReadOptions(arguments.options));
  return options;
}

absl::Status CheckOut(const std::string& out) {
  std::error_code error;
  const fs::file_type type = fs::status(out, error).type();
  if (type == fs::file_type::directory || type == fs::file_type::not_found) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("'", out, "' is not a folder"));
}

// Reads the data stream and writes what comes.
class Puller {
 public:
  // `steps`: pulled before.
  Puller(const Arguments& arguments, Rank& rank, int64_t steps)
      : arguments_(arguments), rank_(rank), steps_(steps) {}

  absl::Status ReadAll() {
    for (int64_t pass = Pass(); pass < arguments_.passes; ++pass) {
      CPSHARD_ASSIGN_OR_RETURN(const bool ended, ReadPass());
      const bool last = !ended || pass + 1 == arguments_.passes;
      // Before the server hears of it: who is killed in between comes back in a later pass, and
      // has thereby closed this one. The other way round is too late once the ranks have gone on.
      if (ended) CPSHARD_RETURN_IF_ERROR(SavePassed());
      Failpoint("before_close_pass");
      rank_.ClosePass(arguments_.stream, /*finished=*/last);
      if (last) break;
      rank_.StartPass(arguments_.stream);
    }
    return absl::OkStatus();
  }

  // Everything is written. That the other ranks take their time is no failure of this one.
  absl::Status Close() {
    absl::Notification closed;
    std::thread word([&closed] {
      if (closed.WaitForNotificationWithTimeout(kSilentClose)) return;
      std::fprintf(stderr, "notice: CLOSING: all is written; waiting for the other ranks\n");
    });
    const absl::Status status =
        rank_.Close(arguments_.deadline_seconds ? absl::Seconds(*arguments_.deadline_seconds)
                                                : absl::InfiniteDuration());
    closed.Notify();
    word.join();
    if (!absl::IsDeadlineExceeded(status)) return status;
    std::fprintf(stderr,
                 "notice: CLOSING: all is written; other ranks have not ended within "
                 "--deadline, and are not waited for\n");
    return absl::OkStatus();
  }

  int64_t shards() const { return shards_; }

 private:
  int64_t Pass() const { return rank_.State().streams.at(arguments_.stream).pass; }

  // To the end of the pass (true), or until there are steps enough.
  absl::StatusOr<bool> ReadPass() {
    while (!arguments_.steps || steps_ < *arguments_.steps) {
      CPSHARD_ASSIGN_OR_RETURN(const std::optional<RankStep> step, Next());
      if (!step) return true;
      CPSHARD_RETURN_IF_ERROR(Write(*step));
      rank_.Consumed(arguments_.stream);
      ++steps_;
      CPSHARD_RETURN_IF_ERROR(SaveState(rank_.State()));
    }
    return false;
  }

  // A rank that has left may come back: its next process goes on where it was.
  absl::StatusOr<std::optional<RankStep>> Next() {
    const absl::Time begun = absl::Now();
    bool said = false;
    while (true) {
      absl::StatusOr<std::optional<RankStep>> step = rank_.Next(arguments_.stream);
      const auto details = step.ok() ? std::nullopt : DetailsOf(step.status());
      if (!details || details->reason != "PEER_LEFT" || Late(begun)) return step;
      if (!std::exchange(said, true)) {
        std::fprintf(stderr, "notice: PEER_LEFT: %s\n",
                     OneLine(std::string(step.status().message())).c_str());
      }
      absl::SleepFor(kPeerPause);
    }
  }

  bool Late(absl::Time begun) const {
    return arguments_.deadline_seconds &&
           absl::Now() - begun >= absl::Seconds(*arguments_.deadline_seconds);
  }

  absl::Status Write(const RankStep& step) {
    const std::string pass = step.pass == 0 ? "" : absl::StrCat("pass", step.pass, ".");
    for (size_t m = 0; m < step.microbatches.size(); ++m) {
      CPSHARD_RETURN_IF_ERROR(
          AddRankFile(absl::StrCat(arguments_.out, "/", pass, "step", step.step, ".mb", m),
                      step.microbatches[m].shard));
      ++shards_;
    }
    return absl::OkStatus();
  }

  absl::Status SavePassed() const {
    TrainState state = rank_.State();
    StreamState& at = state.streams.at(arguments_.stream);
    at = BehindPass(at);
    return SaveState(std::move(state));
  }

  absl::Status SaveState(TrainState state) const {
    if (arguments_.state.empty()) return absl::OkStatus();
    return WriteState(arguments_.state, {std::move(state), steps_});
  }

  const Arguments& arguments_;
  Rank& rank_;
  int64_t steps_;  // of all processes with this state
  int64_t shards_ = 0;
};

absl::Status PullShards(const Arguments& arguments) {
  CPSHARD_RETURN_IF_ERROR(CheckOut(arguments.out));
  CPSHARD_ASSIGN_OR_RETURN(const Start start, FindStart(arguments));
  CPSHARD_ASSIGN_OR_RETURN(RankOptions options, ToRankOptions(arguments, start));
  CPSHARD_RETURN_IF_ERROR(AskServer(arguments.server).status());
  const absl::Time begun = absl::Now();
  CPSHARD_ASSIGN_OR_RETURN(const auto rank, Rank::Open(arguments.server, std::move(options)));
  Puller puller(arguments, *rank, start.steps);
  if (!start.finished) CPSHARD_RETURN_IF_ERROR(puller.ReadAll());
  CPSHARD_RETURN_IF_ERROR(puller.Close());
  const RankStats stats = rank->stats();
  SayExecutor(arguments.executor, stats.executor, "");
  std::printf("pulled %lld steps: %lld shards, %lld bytes in %.2f s\n",
              static_cast<long long>(stats.steps), static_cast<long long>(puller.shards()),
              static_cast<long long>(stats.received_bytes),
              absl::ToDoubleSeconds(absl::Now() - begun));
  std::printf("waited %.2f s: loaders %.2f, ranks %.2f, server %.2f, copying %.2f\n",
              absl::ToDoubleSeconds(stats.all.total()), absl::ToDoubleSeconds(stats.all.loader),
              absl::ToDoubleSeconds(stats.all.peer), absl::ToDoubleSeconds(stats.all.server),
              absl::ToDoubleSeconds(stats.all.copy));
  return absl::OkStatus();
}

void DeclareSession(CLI::App& command, Arguments& arguments) {
  DeclareGroup(command, arguments.group)->required();
  command
      .add_option("--generation", arguments.generation,
                  "higher at every start of the whole group, alike for its ranks")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group("Session");
  command
      .add_option("--attempt", arguments.attempt,
                  "of the launcher: two that start one generation differ here")
      ->type_name("A")
      ->group("Session");
  DeclareDataStream(command, arguments.stream);
}

void DeclareSteps(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--steps", arguments.steps,
                  "stop after so many, those before a restart with --state counted "
                  "[default: at the end]")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62).description(""))
      ->type_name("K")
      ->group("Steps");
  command.add_option("--passes", arguments.passes, "so many passes of the data stream")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group("Steps");
  command
      .add_option("--max-step-bytes", arguments.max_step_bytes,
                  "of the batches of a step, whole; the server keeps room for some, and all ranks "
                  "say the same")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62).description(""))
      ->type_name("BYTES")
      ->capture_default_str()
      ->group("Steps");
  command.add_option("--prefetch", arguments.prefetch, "steps ahead of the one that is written")
      ->check(CLI::Range(0, 1023))
      ->type_name("P")
      ->capture_default_str()
      ->group("Steps");
  command
      .add_option("--keys", arguments.keys,
                  "these streams of the batch alone, e.g. input_ids,labels")
      ->delimiter(',')
      ->type_name("NAME,NAME,...")
      ->group("Steps");
}

void DeclareRank(CLI::App& command, Arguments& arguments) {
  command.add_option("--cp", arguments.cp_size, "ranks of the group")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31).description(""))
      ->type_name("N")
      ->group("Layout");
  command.add_option("--rank", arguments.cp_rank, "this one")
      ->required()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31).description(""))
      ->type_name("R")
      ->group("Layout");
  command
      .add_option("--options", arguments.options,
                  "the layout and its options as JSON (see below), or a file of it")
      ->required()
      ->type_name("FILE|JSON")
      ->group("Layout");
  DeclareExecutor(command, arguments.executor,
                  "who shards at the server; all ranks say the same [default: its own choice]")
      ->group("Layout");
}

}  // namespace

void AddPullCommand(CLI::App& app, Command& run) {
  CLI::App* command =
      app.add_subcommand("pull", "be a rank: get its shards of every step, as files");
  auto arguments = std::make_shared<Arguments>();
  DeclareServer(*command, arguments->server);
  DeclareSession(*command, *arguments);
  DeclareRank(*command, *arguments);
  DeclareSteps(*command, *arguments);
  command->add_option("--out", arguments->out, "folder for the steps; of all ranks")
      ->required()
      ->type_name("DIR")
      ->group("Files");
  command
      ->add_option("--state", arguments->state,
                   "where this rank is, written after every step; if it is there, go on from it")
      ->type_name("FILE")
      ->group("Files");
  command
      ->add_option("--deadline", arguments->deadline_seconds,
                   "to wait for a step, and at the end for the other ranks "
                   "[default: for ever]")
      ->check(CLI::Range(0.001, 1e6).description(""))
      ->type_name("SECONDS")
      ->group("Server");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{PullShards(*arguments)}; }; });
}

}  // namespace cpshard
