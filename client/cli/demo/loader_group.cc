#include "client/cli/demo/loader_group.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/demo/exit_status.h"
#include "client/cli/demo/report.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int64_t kMaxRestarts = 3;      // of one loader
constexpr int kCheckMilliseconds = 200;  // how often the server is looked at, at least

std::vector<std::string> CommandLine(const LoaderTask& task) {
  std::vector<std::string> words = {"demo-loader",
                                    absl::StrCat("--server=", task.server),
                                    absl::StrCat("--layout=", task.layout),
                                    absl::StrCat("--loader=", task.loader),
                                    absl::StrCat("--loaders=", task.loaders),
                                    absl::StrCat("--done=", task.done),
                                    absl::StrCat("--batches=", task.batches),
                                    absl::StrCat("--max-bytes=", task.max_bytes),
                                    "--"};
  words.insert(words.end(), task.files.begin(), task.files.end());
  return words;
}

// Of the signals that end a process: the others come from a mistake of its own.
bool IsSentByOthers(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

}  // namespace

LoaderGroup::LoaderGroup(const LoaderTask& task, std::optional<int64_t> kill,
                         const GroupListener& listener)
    : task_(task),
      kill_(kill),
      listener_(listener),
      tally_(task.layout, task.batches, task.loaders) {}

absl::StatusOr<ChildProcess> LoaderGroup::Start(int64_t index) const {
  LoaderTask task = task_;
  task.loader = index;
  task.done = tally_.ReportedBy(index);
  return ChildProcess::Start(CommandLine(task));
}

absl::StatusOr<Figures> LoaderGroup::Run() {
  if (kill_ && (*kill_ >= task_.loaders || tally_.ShareOf(*kill_) == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "loader ", *kill_, " has no batches and cannot be killed half-way: there are ",
        task_.loaders, " loaders, from 0, and ", task_.batches, " batches; give more text"));
  }
  for (int64_t i = 0; i < task_.loaders; ++i) {
    CPSHARD_ASSIGN_OR_RETURN(ChildProcess process, Start(i));
    loaders_.push_back({std::move(process)});
  }
  while (!AllDone()) {
    WaitForNews();
    for (int64_t i = 0; i < task_.loaders; ++i) CPSHARD_RETURN_IF_ERROR(Listen(i));
    CPSHARD_RETURN_IF_ERROR(listener_.check_server());
    listener_.progress(tally_);
  }
  return tally_.Sum();
}

bool LoaderGroup::AllDone() const {
  return std::all_of(loaders_.begin(), loaders_.end(),
                     [](const Loader& loader) { return loader.done; });
}

void LoaderGroup::WaitForNews() const {
  std::vector<pollfd> watched;
  for (const Loader& loader : loaders_) loader.process.AddTo(watched);
  poll(watched.data(), watched.size(), kCheckMilliseconds);
}

absl::Status LoaderGroup::Listen(int64_t index) {
  Loader& loader = loaders_[index];
  if (loader.done) return absl::OkStatus();
  for (const std::string& line : loader.process.ReadLines()) {
    CPSHARD_RETURN_IF_ERROR(Take(index, line));
  }
  return loader.process.ended() ? Ended(index) : absl::OkStatus();
}

absl::Status LoaderGroup::Take(int64_t index, const std::string& line) {
  CPSHARD_ASSIGN_OR_RETURN(const LoaderLine news, ParseLine(line));
  if (const auto* report = std::get_if<BatchReport>(&news)) {
    tally_.Add(index, *report);
    return absl::OkStatus();
  }
  // The round that takes the loader over the half of its share is on its way right now.
  const int64_t after = tally_.ReportedBy(index) + std::get<RoundBegun>(news).in_flight;
  if (kill_ == index && 2 * after > tally_.ShareOf(index)) {
    loaders_[index].process.Kill();
    kill_.reset();
  }
  return absl::OkStatus();
}

absl::Status LoaderGroup::Ended(int64_t index) {
  Loader& loader = loaders_[index];
  const int status = loader.process.WaitStatus();
  if (WIFEXITED(status)) {
    loader.done = true;
    return StatusOfEnd(absl::StrCat("loader ", index), status, loader.process.errors());
  }
  const int signal = WTERMSIG(status);
  const std::string when = absl::StrCat("(signal ", signal, ") after ", tally_.ReportedBy(index),
                                        " of its ", tally_.ShareOf(index), " batches");
  if (!IsSentByOthers(signal)) {
    return absl::InternalError(
        absl::StrCat("loader ", index, " crashed ", when, "; it said: ", loader.process.errors()));
  }
  const std::string text = absl::StrCat("loader ", index, " was killed ", when);
  if (loader.restarts == kMaxRestarts) {
    return absl::AbortedError(
        absl::StrCat(text, "; it was started again ", kMaxRestarts, " times already"));
  }
  ++loader.restarts;
  CPSHARD_ASSIGN_OR_RETURN(loader.process, Start(index));
  listener_.say(absl::StrCat(text, "; started again"));
  return absl::OkStatus();
}

}  // namespace cpshard::demo
