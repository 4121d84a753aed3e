// I5: what trainers get is what they would get without faults, and what can be resumed from is
// exact.
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/random.h"

namespace cpshard::simulation {
namespace {

uint64_t Fold(const Job& job, const Item& item, int64_t variant) {
  uint64_t fold = 0;
  for (int64_t m = 0; m < Microbatches(job, item.stream, item.pass, item.step); ++m) {
    fold = Mix(fold ^ Content(job, item.stream, item.pass, item.step, m, variant));
  }
  return fold;
}

// Whether the bytes are those of one making of the step.
bool IsWhole(const History& history, const Job& job, const Item& item, uint64_t fold) {
  if (history.same_content) return fold == Fold(job, item, 0);
  for (int64_t variant = 0; variant < kMostVariants; ++variant) {
    if (fold == Fold(job, item, variant)) return true;
  }
  return false;
}

bool Empty(const std::optional<ResumeState>& resume) { return !resume || resume->loaders.empty(); }

// A resume state is as good as another without entries: nothing has to be known at a start.
bool Alike(const std::optional<ResumeState>& got, const ResumeState& want) {
  if (want.loaders.empty()) return Empty(got);
  return got && *got == want;
}

std::string Text(const std::optional<ResumeState>& resume) {
  if (!resume) return "none";
  std::string text = absl::StrCat("of ", resume->num_loaders, " loaders:");
  for (const auto& [loader, state] : resume->loaders) {
    absl::StrAppend(&text, " ", loader, "=", state.state);
  }
  return text;
}

// Where a trainer stands in a data stream once it is done with its first `items` items.
ReaderStream StandingAfter(const Job& job, int stream, size_t items) {
  ReaderStream standing{.name = job.streams[stream].name, .closed = stream != kTrain};
  for (size_t i = 0; i < items; ++i) {
    const Item& item = job.items[i];
    if (item.stream != stream) continue;
    standing.closed = item.closes;
    standing.next_step = item.ends ? item.step : item.step + 1;
    if (item.finishes) standing.finished = true;
    if (!item.closes) continue;
    ++standing.pass;
    standing.next_step = 0;
  }
  return standing;
}

void CheckCheckpoint(const History& history, const Record& record, Violations& found) {
  const Job& job = history.jobs[history.processes[record.process].group];
  for (size_t s = 0; s < record.asked.size(); ++s) {
    const ReaderStream& got = record.asked[s];
    const ReaderStream want = StandingAfter(job, static_cast<int>(s), record.step);
    // After the last pass its number is of no use.
    if (got.name != want.name || got.closed != want.closed || got.finished != want.finished ||
        (!got.finished && (got.pass != want.pass || got.next_step != want.next_step))) {
      found.Add("I5", record,
                absl::StrCat("a checkpoint has ", want.name, " at ", got.pass, "/", got.next_step,
                             " in place of ", want.pass, "/", want.next_step));
    }
    if (got.finished) continue;
    const ResumeState exact = ResumeAt(job, static_cast<int>(s), want.pass, want.next_step);
    if (!Alike(got.resume, exact)) {
      found.Add("I5", record,
                absl::StrCat("a checkpoint's state of ", want.name, " is ", Text(got.resume),
                             "; exact is ", Text(exact)));
    }
  }
}

void CheckOpened(const History& history, const Record& record, Violations& found) {
  const Job& job = history.jobs[history.processes[record.process].group];
  for (const OpenedStream& answer : record.answered) {
    if (!answer.resume) continue;
    for (const ReaderStream& asked : record.asked) {
      if (asked.name != answer.name || asked.pass != answer.pass) continue;
      const ResumeState exact =
          ResumeAt(job, StreamOf(job, asked.name), asked.pass, asked.next_step);
      if (!Alike(answer.resume, exact)) {
        found.Add("I5", record,
                  absl::StrCat("the state of ", asked.name, " before ", asked.next_step, " is ",
                               Text(answer.resume), "; exact is ", Text(exact)));
      }
    }
  }
}

void CheckPosition(const History& history, const Record& record, Violations& found) {
  const Process& process = history.processes[record.process];
  const auto exact = LatestState(history.jobs[process.group], record.stream, record.pass,
                                 process.loader, record.step);
  if (record.state == exact) return;
  found.Add("I5", record,
            absl::StrCat("the loader's latest state below it is ",
                         exact ? exact->state : std::string("none")));
}

}  // namespace

void CheckTraining(const History& history, Violations& found) {
  std::map<int, size_t> next;  // process -> item
  for (const Record& record : history.records) {
    if (record.kind != Kind::kTrained && record.kind != Kind::kTrainedEnd) continue;
    const Process& process = history.processes[record.process];
    const Job& job = history.jobs[process.group];
    const size_t number = next.try_emplace(record.process, process.first_item).first->second++;
    if (number >= job.items.size()) {
      found.Add("I5", record, "behind the end of training");
      continue;
    }
    const Item& item = job.items[number];
    if (record.stream != item.stream || record.pass != item.pass || record.step != item.step ||
        (record.kind == Kind::kTrainedEnd) != item.ends) {
      found.Add("I5", record,
                absl::StrCat("due is ", job.streams[item.stream].name, "/", item.pass, "/",
                             item.step, item.ends ? ", its end" : ""));
      continue;
    }
    if (item.ends) continue;
    if (record.microbatch != Microbatches(job, item.stream, item.pass, item.step) ||
        record.totals != Totals(job, item.stream, item.pass, item.step)) {
      found.Add("I5", record, "other microbatches or totals than its loader's");
    }
    if (!IsWhole(history, job, item, record.content)) {
      found.Add("I5", record, "other bytes than without faults");
    }
  }
}

void CheckStates(const History& history, Violations& found) {
  for (const Record& record : history.records) {
    if (record.kind == Kind::kCheckpoint) CheckCheckpoint(history, record, found);
    if (record.kind == Kind::kOpened) CheckOpened(history, record, found);
    if (record.kind == Kind::kPosition) CheckPosition(history, record, found);
  }
}

}  // namespace cpshard::simulation
