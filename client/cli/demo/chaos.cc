#include "client/cli/demo/chaos.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/demo/exit_status.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int kLookMilliseconds = 200;
constexpr absl::Duration kSilence = absl::Seconds(60);  // of all of them
constexpr int64_t kStepMilliseconds = 10;               // that a rank trains

// Where `gate` waits for the kills.
void AddHolds(const std::vector<Kill>& kills, int64_t gate, std::vector<std::string>& words) {
  for (const Kill& kill : kills) {
    if (kill.gate != gate) continue;
    const ChaosLine line{.event = kStep, .at = {kTrain, 0, kill.step}};
    words.push_back(absl::StrCat("--hold=", MomentOf(line)));
  }
}

std::vector<std::string> WordsOf(const char* command, const ChaosWork& work) {
  std::vector<std::string> words = ToWords(work);
  words.insert(words.begin(), command);
  return words;
}

}  // namespace

ChaosRun::ChaosRun(ChaosWork work, std::vector<Kill> kills, ChaosTally tally, ServerProcess& server)
    : work_(std::move(work)), kills_(std::move(kills)), tally_(std::move(tally)), server_(server) {
  for (int64_t i = 0; i < work_.loaders; ++i) {
    Member loader{.name = absl::StrCat("loader ", i), .words = WordsOf("demo-chaos-loader", work_)};
    loader.words.push_back(absl::StrCat("--loader=", i));
    loaders_.push_back(std::move(loader));
  }
  for (int64_t i = 0; i < kCpSize; ++i) {
    Member rank{
        .name = absl::StrCat("rank ", i), .words = WordsOf("demo-chaos-rank", work_), .rank = i};
    rank.words.push_back(absl::StrCat("--rank=", i));
    rank.words.push_back(absl::StrCat("--step-milliseconds=", kStepMilliseconds));
    AddHolds(kills_, i, rank.words);
    ranks_.push_back(std::move(rank));
  }
}

absl::StatusOr<ChaosFigures> ChaosRun::Run() {
  const absl::Time begin = heard_ = absl::Now();
  for (auto* members : {&loaders_, &ranks_}) {
    for (Member& member : *members) CPSHARD_RETURN_IF_ERROR(Start(member));
  }
  while (!AllDone()) {
    WaitForNews();
    for (auto* members : {&loaders_, &ranks_}) {
      for (Member& member : *members) CPSHARD_RETURN_IF_ERROR(Listen(member));
    }
    CPSHARD_RETURN_IF_ERROR(server_.CheckAlive());
    if (absl::Now() - heard_ > kSilence) {
      return absl::DeadlineExceededError(
          absl::StrCat("no rank and no loader has said a word for ", absl::FormatDuration(kSilence),
                       "; ", tally_.Difference(), "; the server said: ", server_.Log()));
    }
  }
  return ChaosFigures{done_, tally_.Difference(), absl::Now() - begin};
}

absl::Status ChaosRun::Start(Member& member) const {
  std::vector<std::string> words = member.words;
  if (!member.state.empty()) words.push_back(absl::StrCat("--state=", member.state));
  words.push_back("--");
  words.insert(words.end(), work_.files.begin(), work_.files.end());
  member.process.reset();
  CPSHARD_ASSIGN_OR_RETURN(member.process, ChildProcess::Start(std::move(words)));
  return absl::OkStatus();
}

bool ChaosRun::AllDone() const {
  const auto done = [](const Member& member) { return member.done; };
  return std::all_of(loaders_.begin(), loaders_.end(), done) &&
         std::all_of(ranks_.begin(), ranks_.end(), done);
}

void ChaosRun::WaitForNews() {
  std::vector<pollfd> watched;
  for (const auto* members : {&loaders_, &ranks_}) {
    for (const Member& member : *members) member.process->AddTo(watched);
  }
  if (poll(watched.data(), watched.size(), kLookMilliseconds) > 0) heard_ = absl::Now();
}

absl::Status ChaosRun::Listen(Member& member) {
  if (member.done) return absl::OkStatus();
  for (const std::string& line : member.process->ReadLines()) {
    CPSHARD_RETURN_IF_ERROR(Take(member, line));
  }
  return member.process->ended() ? Ended(member) : absl::OkStatus();
}

absl::Status ChaosRun::Take(Member& member, const std::string& text) {
  CPSHARD_ASSIGN_OR_RETURN(const ChaosLine line, ParseChaosLine(text));
  if (awaited_ == &member) {
    done_.back().back = absl::Now() - killed_;
    awaited_ = nullptr;
  }
  if (!member.rank) return absl::OkStatus();
  member.state = line.state;
  tally_.Add(*member.rank, line);
  if (line.event != kStep) return absl::OkStatus();
  if (!done_.empty()) {
    done_.back().longest = std::max(done_.back().longest, absl::Seconds(line.waited));
  }
  for (const Kill& kill : kills_) {
    if (kill.gate != member.rank || kill.step != line.at.step) continue;
    CPSHARD_RETURN_IF_ERROR(Carry(kill));
    member.process->GoOn();
  }
  return absl::OkStatus();
}

absl::Status ChaosRun::Carry(const Kill& kill) {
  done_.push_back({.kill = kill});
  killed_ = absl::Now();
  if (kill.victim == Victim::kLoader) return KillMember(loaders_[kill.index]);
  if (kill.victim == Victim::kRank) return KillMember(ranks_[kill.index]);
  CPSHARD_RETURN_IF_ERROR(server_.KillAndStartAgain());
  CPSHARD_RETURN_IF_ERROR(server_.WaitUntilReady().status());
  done_.back().back = absl::Now() - killed_;
  return absl::OkStatus();
}

// What it has said before it was killed counts.
absl::Status ChaosRun::KillMember(Member& member) {
  member.process->Kill();
  while (!member.process->ended()) {
    std::vector<pollfd> watched;
    member.process->AddTo(watched);
    poll(watched.data(), watched.size(), kLookMilliseconds);
    for (const std::string& line : member.process->ReadLines()) {
      CPSHARD_RETURN_IF_ERROR(Take(member, line));
    }
  }
  awaited_ = &member;
  return Start(member);
}

absl::Status ChaosRun::Ended(Member& member) {
  member.done = true;
  return StatusOfEnd(member.name, member.process->WaitStatus(), member.process->errors());
}

}  // namespace cpshard::demo
