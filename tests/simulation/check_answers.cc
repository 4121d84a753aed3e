// What a correct client is never told, and what loaders are never asked for.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checker.h"

namespace cpshard::simulation {
namespace {

struct Standing {
  int64_t pass = 0, next_step = 0;
  bool finished = false;
};

// What a seat has said of itself, in one generation.
struct Seat {
  int process = -1;  // the latest to open
  std::map<int, Standing> streams;
};

using SeatKey = std::tuple<int, int64_t, std::string>;  // group, generation, reader

class AnswerCheck {
 public:
  AnswerCheck(const History& history, Violations& found) : history_(history), found_(found) {}

  void Run() {
    for (const Record& record : history_.records) {
      switch (record.kind) {
        case Kind::kServerStarted:
          here_.clear();
          open_.clear();
          break;
        case Kind::kOpened:
          record.code == absl::StatusCode::kOk ? Opened(record) : Refused(record);
          break;
        case Kind::kCommitted:
          Committed(record);
          break;
        case Kind::kPassClosed:
          PassClosed(record);
          break;
        case Kind::kClosed:  // what it still asks for does not matter
          Closed(record);
          break;
        case Kind::kWanted:
          if (record.again) once_more_.insert(record.call);
          break;
        case Kind::kStatus:
          Status(record);
          break;
        case Kind::kReleased:
          Released(record);
          break;
        default:
          break;
      }
    }
  }

 private:
  const Process& Of(const Record& record) const { return history_.processes[record.process]; }
  SeatKey KeyOf(const Record& record) const {
    const Process& process = Of(record);
    return {process.group, process.generation, process.name};
  }

  // Whether the process has its seat here, in the generation that is open.
  bool Seated(const Record& record) const {
    const Process& process = Of(record);
    const auto open = open_.find(process.group);
    if (open == open_.end() || open->second != process.generation) return false;
    if (ever_open_.at(process.group) > process.generation) return false;
    const auto seat = here_.find(KeyOf(record));
    return seat != here_.end() && seat->second.process == record.process;
  }

  void Opened(const Record& record) {
    const Process& process = Of(record);
    int64_t& open = open_[process.group];
    open = std::max(open, process.generation);
    ever_open_[process.group] = std::max(ever_open_[process.group], open);
    const Job& job = history_.jobs[process.group];
    for (auto* seats : {&here_, &ever_}) {
      Seat& seat = (*seats)[KeyOf(record)];
      seat.process = record.process;
      for (const ReaderStream& stream : record.asked) {
        Advance(seat.streams[StreamOf(job, stream.name)],
                {stream.pass, stream.next_step, stream.finished}, seats == &ever_);
      }
    }
  }

  // `only_up`: what was said stays said.
  static void Advance(Standing& standing, const Standing& to, bool only_up) {
    if (only_up && std::tie(to.pass, to.next_step) < std::tie(standing.pass, standing.next_step)) {
      return;
    }
    standing = to;
  }

  void Refused(const Record& record) {
    const Process& process = Of(record);
    const Job& job = history_.jobs[process.group];
    if (record.reason == "STALE_GENERATION") {
      const bool over = closed_.contains({process.group, process.generation});
      if (!over &&
          !Launched([&](const Process& other) { return other.generation > process.generation; },
                    process)) {
        found_.Add("refused", record, "there is no higher generation");
      }
    } else if (record.reason == "TERMS_DIFFER") {
      if (!Launched(
              [&](const Process& other) {
                return other.generation == process.generation && other.attempt != process.attempt;
              },
              process)) {
        found_.Add("refused", record, "there is no other attempt");
      }
    } else if (record.reason == "STALE_INCARNATION") {
      const auto seat = here_.find(KeyOf(record));
      if (seat == here_.end() ||
          history_.processes[seat->second.process].incarnation <= process.incarnation) {
        found_.Add("refused", record, "no later process has its seat");
      }
    } else if (record.reason == "ZOMBIE") {
      Seat& seat = ever_[KeyOf(record)];
      for (const ReaderStream& stream : record.asked) {
        const Standing& was = seat.streams[StreamOf(job, stream.name)];
        // It has said itself that it is behind.
        if (std::tie(stream.pass, stream.next_step) < std::tie(was.pass, was.next_step)) return;
      }
      found_.Add("refused", record, "a live reader that does not go back");
    } else if (record.reason != "BUDGET" && record.reason != "DRAINING") {
      if (history_.same_content) found_.Add("refused", record, "a correct open");
    }
  }

  template <class Test>
  bool Launched(Test test, const Process& than) const {
    return std::any_of(history_.processes.begin(), history_.processes.end(),
                       [&](const Process& other) {
                         return other.reader && other.group == than.group && test(other);
                       });
  }

  void Committed(const Record& record) {
    if (record.code == absl::StatusCode::kOk) {
      for (auto* seats : {&here_, &ever_}) {
        Seat& seat = (*seats)[KeyOf(record)];
        if (seats == &here_ && seat.process != record.process) continue;
        Standing& standing = seat.streams[record.stream];
        if (standing.pass == record.pass) {
          standing.next_step = std::max(standing.next_step, record.step + 1);
        }
      }
    } else if (Seated(record)) {
      found_.Add("commit", record, "a correct commit is refused");
    }
  }

  void Closed(const Record& record) {
    closed_.insert({Of(record).group, Of(record).generation});
    Seat& seat = here_[KeyOf(record)];
    if (seat.process != record.process) return;
    seat.process = -1;
    for (auto& [stream, standing] : seat.streams) standing.finished = true;
  }

  void PassClosed(const Record& record) {
    if (record.code != absl::StatusCode::kOk) {
      if (Seated(record)) found_.Add("commit", record, "a pass that is left is refused");
      return;
    }
    for (auto* seats : {&here_, &ever_}) {
      Seat& seat = (*seats)[KeyOf(record)];
      if (seats == &here_ && seat.process != record.process) continue;
      Advance(seat.streams[record.stream], {record.pass + 1, 0}, true);
    }
  }

  void Status(const Record& record) {
    // What is asked for once more may be gone: the trainer goes on meanwhile.
    if (!Seated(record) || once_more_.contains(record.call)) return;
    if (record.reason == "BELOW_FLOOR") {
      found_.Add("refused", record, "a live reader is told that its step is gone");
    }
    const bool fatal = record.code == absl::StatusCode::kFailedPrecondition ||
                       record.code == absl::StatusCode::kInvalidArgument ||
                       record.code == absl::StatusCode::kInternal ||
                       record.code == absl::StatusCode::kNotFound;
    if (fatal && history_.same_content) found_.Add("refused", record, "a correct request");
  }

  // A step is not released while a reader may ask for it.
  void Released(const Record& record) {
    const int group = Of(record).group;
    const auto open = open_.find(group);
    if (open == open_.end()) return;
    for (const auto& [key, seat] : here_) {
      if (std::get<0>(key) != group || std::get<1>(key) != open->second) continue;
      const auto it = seat.streams.find(record.stream);
      if (it == seat.streams.end()) continue;
      const Standing& standing = it->second;
      if (standing.finished || standing.pass > record.pass || standing.next_step >= record.step) {
        continue;
      }
      found_.Add("released", record,
                 absl::StrCat("reader ", std::get<2>(key), " has not committed step ",
                              standing.next_step));
    }
  }

  const History& history_;
  Violations& found_;
  std::map<int, int64_t> open_;               // group -> generation, on this server
  std::map<int, int64_t> ever_open_;          // ... or another
  std::set<std::pair<int, int64_t>> closed_;  // (group, generation): somebody has closed
  std::set<uint64_t> once_more_;              // calls
  std::map<SeatKey, Seat> here_;              // on this server
  std::map<SeatKey, Seat> ever_;              // the furthest
};

struct Told {
  int64_t generation = 0, released = 0;
};

}  // namespace

void CheckAnswers(const History& history, Violations& found) { AnswerCheck(history, found).Run(); }

void CheckLoaders(const History& history, Violations& found) {
  std::map<std::tuple<int, int, int64_t>, Told> told;  // process, stream, pass
  for (const Record& record : history.records) {
    if (record.kind != Kind::kTold && record.kind != Kind::kRewound) continue;
    Told& was = told[{record.process, record.stream, record.pass}];
    if (record.kind == Kind::kRewound) {
      if (record.last && !history.processes[record.process].rewinds) {
        found.Add("loader", record, "a source that cannot go back is asked to");
      }
      if (record.step < was.released) {
        found.Add("loader", record, absl::StrCat("steps before ", was.released, " are released"));
      }
      continue;
    }
    if (record.generation > was.generation) was = {record.generation, 0};
    if (record.value >= 0 && record.value < was.released) {
      found.Add("loader", record,
                absl::StrCat("asked for from step ", record.value, " on, while steps before ",
                             was.released, " are released"));
    }
    was.released = std::max(was.released, record.step);
  }
}

}  // namespace cpshard::simulation
