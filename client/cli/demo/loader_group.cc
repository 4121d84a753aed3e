#include "client/cli/demo/loader_group.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/demo/report.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int64_t kMaxRestarts = 3;      // of one loader
constexpr int kCheckMilliseconds = 200;  // how often the server is looked at, at least

// The loader's exit status is the number of its status code, as that of every cpshard.
absl::Status StatusOfExit(int64_t loader, int exit_status, const std::string& words) {
  const bool is_code = exit_status > 1 && exit_status <= 16;
  return absl::Status(
      is_code ? static_cast<absl::StatusCode>(exit_status) : absl::StatusCode::kInternal,
      absl::StrCat("loader ", loader, " ended with exit status ", exit_status,
                   "; it said: ", words));
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

absl::StatusOr<LoaderProcess> LoaderGroup::Start(int64_t index) const {
  LoaderTask task = task_;
  task.loader = index;
  task.done = tally_.ReportedBy(index);
  return LoaderProcess::Start(task);
}

absl::StatusOr<Figures> LoaderGroup::Run() {
  if (kill_ && (*kill_ >= task_.loaders || tally_.ShareOf(*kill_) == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "loader ", *kill_, " has no batches and cannot be killed half-way: there are ",
        task_.loaders, " loaders, from 0, and ", task_.batches, " batches; give more text"));
  }
  for (int64_t i = 0; i < task_.loaders; ++i) {
    CPSHARD_ASSIGN_OR_RETURN(LoaderProcess process, Start(i));
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
    if (WEXITSTATUS(status) == 0) return absl::OkStatus();
    return StatusOfExit(index, WEXITSTATUS(status), loader.process.errors());
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
