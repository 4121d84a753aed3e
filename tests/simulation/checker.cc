#include "tests/simulation/checker.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/random.h"

namespace cpshard::simulation {
namespace {

constexpr size_t kMostOfRule = 3;

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kServerStarted:
      return "server started";
    case Kind::kOpened:
      return "open";
    case Kind::kWanted:
      return "want";
    case Kind::kCommitted:
      return "commit";
    case Kind::kPassClosed:
      return "pass closed";
    case Kind::kClosed:
      return "close";
    case Kind::kPushed:
      return "landed";
    case Kind::kDelivered:
      return "delivered";
    case Kind::kStatus:
      return "status";
    case Kind::kEnded:
      return "call ended";
    case Kind::kEndDeclared:
      return "end declared";
    case Kind::kPosition:
      return "position";
    case Kind::kReleased:
      return "released";
    case Kind::kMemory:
      return "memory";
    case Kind::kTold:
      return "loader told";
    case Kind::kRewound:
      return "source rewound";
    case Kind::kTrained:
      return "trained";
    case Kind::kTrainedEnd:
      return "end of the pass";
    case Kind::kCheckpoint:
      return "checkpoint";
    case Kind::kClientFault:
      return "client fault";
    case Kind::kFinished:
      return "finished";
    case Kind::kStuck:
      return "stuck";
  }
  return "?";
}

}  // namespace

std::string Describe(const History& history, const Record& record) {
  std::string text =
      absl::StrCat(record.at_us, " us, server ", record.instance, ": ", NameOf(record.kind));
  if (record.process >= 0) {
    const Process& process = history.processes[record.process];
    absl::StrAppend(&text, " #", record.process, " group ", process.group,
                    process.reader ? absl::StrCat(" reader ", process.name, " of generation ",
                                                  process.generation, " ", process.attempt)
                                   : absl::StrCat(" loader ", process.loader));
    if (record.stream >= 0) {
      absl::StrAppend(&text, " ", history.jobs[process.group].streams[record.stream].name, "/",
                      record.pass, "/", record.step, ".", record.microbatch);
    }
  }
  if (record.call != 0) absl::StrAppend(&text, " call ", record.call);
  if (record.id != 0) absl::StrAppend(&text, " id ", record.id);
  if (record.epoch != 0) absl::StrAppend(&text, " epoch ", record.epoch);
  if (record.value >= 0) absl::StrAppend(&text, " value ", record.value);
  if (record.last) absl::StrAppend(&text, " last");
  if (record.state) absl::StrAppend(&text, " state ", record.state->state);
  if (record.kind == Kind::kMemory) {
    absl::StrAppend(&text, " used ", record.used, " live ", record.live);
  }
  for (const ReaderStream& stream : record.asked) {
    absl::StrAppend(&text, " [", stream.name, "/", stream.pass, " next ", stream.next_step,
                    " received ", stream.received, stream.closed ? " closed" : "",
                    stream.finished ? " finished" : "", "]");
  }
  for (const OpenedStream& stream : record.answered) {
    absl::StrAppend(&text, " -> [", stream.name, "/", stream.pass, " floor ",
                    stream.floor.value_or(-1), "]");
  }
  if (record.code != absl::StatusCode::kOk) {
    absl::StrAppend(&text, " ", absl::StatusCodeToString(record.code), " ", record.reason);
  }
  if (!record.text.empty()) absl::StrAppend(&text, " '", record.text, "'");
  return text;
}

void Violations::Add(const char* rule, const Record& record, const std::string& text) {
  const auto same = [&](const Violation& violation) { return violation.rule == rule; };
  if (std::count_if(found_.begin(), found_.end(), same) >= static_cast<int64_t>(kMostOfRule))
    return;
  const size_t number = &record - history_.records.data();
  found_.push_back({rule, number,
                    absl::StrCat(text, "\n    record ", number, ": ", Describe(history_, record))});
}

std::vector<Violation> Check(const History& history) {
  Violations found(history);
  CheckOrder(history, found);
  CheckShards(history, found);
  CheckTraining(history, found);
  CheckStates(history, found);
  CheckMemory(history, found);
  CheckFence(history, found);
  CheckEnds(history, found);
  CheckAnswers(history, found);
  CheckLoaders(history, found);
  CheckFinish(history, found);
  return found.Take();
}

void CheckMemory(const History& history, Violations& found) {
  for (const Record& record : history.records) {
    if (record.kind != Kind::kMemory) continue;
    if (record.used > history.budget_bytes || record.live > history.budget_bytes) {
      found.Add("I6", record,
                absl::StrCat("of a budget of ", history.budget_bytes, " bytes ", record.used,
                             " are counted and ", record.live, " there"));
    } else if (record.live > record.used) {
      found.Add("I6", record, "there are more bytes than are counted");
    }
  }
}

// Nothing is sent to readers of a generation once a higher one is open on this server.
void CheckFence(const History& history, Violations& found) {
  std::map<int, int64_t> open;  // group -> generation
  for (const Record& record : history.records) {
    if (record.kind == Kind::kServerStarted) open.clear();
    if (record.process < 0) continue;
    const Process& process = history.processes[record.process];
    int64_t& generation = open[process.group];
    if (record.kind == Kind::kOpened && record.code == absl::StatusCode::kOk) {
      if (process.generation < generation) {
        found.Add("I7", record, absl::StrCat("generation ", generation, " is open already"));
      }
      generation = std::max(generation, process.generation);
    }
    if (record.kind == Kind::kDelivered && process.generation < generation) {
      found.Add("I7", record,
                absl::StrCat("a delivery for generation ", process.generation, " while ",
                             generation, " is open"));
    }
  }
}

// All readers learn of the end of a pass at the step at which its loaders have none.
void CheckEnds(const History& history, Violations& found) {
  std::map<std::pair<uint64_t, uint64_t>, const Record*> wants;  // (call, id)
  for (const Record& record : history.records) {
    if (record.kind == Kind::kWanted) wants[{record.call, record.id}] = &record;
    if (record.kind == Kind::kDelivered) {
      const Job& job = history.jobs[history.processes[record.process].group];
      if (record.step >= job.streams[record.stream].length) {
        found.Add("I8", record, "a step is delivered that there is not");
      }
    }
    if (record.kind != Kind::kStatus || record.reason != "END_OF_STREAM") continue;
    const Record* want = wants[{record.call, record.id}];
    if (want == nullptr) {
      found.Add("I8", record, "an answer to a request that was not made");
      continue;
    }
    const Job& job = history.jobs[history.processes[record.process].group];
    const int64_t length = job.streams[want->stream].length;
    if (record.value != length || want->step < length ||
        record.code != absl::StatusCode::kOutOfRange) {
      found.Add("I8", record,
                absl::StrCat("step ", want->step, " is answered with an end, which is ", length));
    }
  }
}

void CheckFinish(const History& history, Violations& found) {
  for (const Record& record : history.records) {
    if (record.kind == Kind::kStuck) found.Add("I10", record, "the schedule does not finish");
    if (record.kind == Kind::kClientFault) found.Add("client", record, "a client cannot go on");
  }
}

}  // namespace cpshard::simulation
