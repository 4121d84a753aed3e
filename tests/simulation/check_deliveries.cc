// I1 - I4: what readers are sent, in the order of sending.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checker.h"

namespace cpshard::simulation {
namespace {

// A pass of a data stream as one process was sent it by one server.
using PassKey = std::tuple<int, int, int, int64_t>;  // instance, process, stream, pass

struct Sent {
  int64_t first = 0;        // the first step that it lacks, as it said when it opened
  std::set<int64_t> steps;  // sent whole, or refused
};

struct Wanted {
  size_t record = 0;
  int stream = -1;
  int64_t pass = 0, step = 0;
  int64_t from = 0;  // microbatch: what is before it is said to be there
  bool alone = false;
  int64_t next_microbatch = -1;  // none has come
};

class OrderCheck {
 public:
  OrderCheck(const History& history, Violations& found) : history_(history), found_(found) {}

  void Run() {
    for (size_t r = 0; r < history_.records.size(); ++r) {
      const Record& record = history_.records[r];
      switch (record.kind) {
        case Kind::kOpened:
          if (record.code == absl::StatusCode::kOk) Opened(record);
          break;
        case Kind::kWanted:
          wants_[{record.call, record.id}] = {r,           record.stream,     record.pass,
                                              record.step, record.microbatch, record.alone};
          break;
        case Kind::kStatus:
          Status(record);
          break;
        case Kind::kDelivered:
          Delivered(r, record);
          break;
        default:
          break;
      }
    }
  }

 private:
  void Opened(const Record& record) {
    const Job& job = history_.jobs[history_.processes[record.process].group];
    for (const ReaderStream& stream : record.asked) {
      Sent& sent =
          sent_[{record.instance, record.process, StreamOf(job, stream.name), stream.pass}];
      sent.first = std::max(sent.first, std::max(stream.next_step, stream.received + 1));
    }
  }

  void Status(const Record& record) {
    const auto it = wants_.find({record.call, record.id});
    if (it == wants_.end()) return found_.Add("I3", record, "an answer to no request");
    const Wanted& want = it->second;
    sent_[{record.instance, record.process, want.stream, want.pass}].steps.insert(want.step);
    wants_.erase(it);
  }

  void Delivered(size_t number, const Record& record) {
    const auto it = wants_.find({record.call, record.id});
    if (it == wants_.end()) return found_.Add("I3", record, "a delivery that nobody asked for");
    Wanted& want = it->second;
    if (std::tie(want.stream, want.pass, want.step) !=
        std::tie(record.stream, record.pass, record.step)) {
      found_.Add("I3", record, absl::StrCat("step ", want.step, " was asked for"));
    }
    if (want.next_microbatch < 0) want.next_microbatch = FirstOf(want, record);
    if (want.next_microbatch++ != record.microbatch) {
      found_.Add("I3", record, absl::StrCat("microbatch ", want.next_microbatch - 1, " is due"));
    }
    parts_[{record.call, record.stream, record.pass, record.step, record.epoch}] =
        want.next_microbatch;
    // Steps of one connection do not overtake each other, unless one is asked for again.
    auto& order = order_[{record.call, record.stream, record.pass}];
    for (auto sent = order.rbegin(); sent != order.rend() && sent->first > want.record; ++sent) {
      if (sent->second <= record.step) continue;
      found_.Add("I1", record, absl::StrCat("step ", sent->second, " was sent before"));
      break;
    }
    order.emplace_back(number, record.step);
    Sent& sent = sent_[{record.instance, record.process, record.stream, record.pass}];
    for (int64_t step = sent.first; step < record.step; ++step) {
      if (sent.steps.contains(step)) continue;
      found_.Add("I3", record, absl::StrCat("step ", step, " has not been sent"));
      break;
    }
    if (want.alone) {
      wants_.erase(it);
      return;
    }
    if (!record.last) return;
    const Job& job = history_.jobs[history_.processes[record.process].group];
    const int64_t microbatches = Microbatches(job, record.stream, record.pass, record.step);
    if (want.next_microbatch != microbatches) {
      found_.Add("I3", record, absl::StrCat("the step has ", microbatches, " microbatches"));
    }
    sent.steps.insert(record.step);
    wants_.erase(it);
  }

  // An answer begins with microbatch 0, or behind what was sent on the same call in this epoch, as
  // far as the request says that it is there.
  int64_t FirstOf(const Wanted& want, const Record& record) const {
    const auto sent =
        parts_.find({record.call, record.stream, record.pass, record.step, record.epoch});
    const int64_t there = sent == parts_.end() ? 0 : std::min(sent->second, want.from);
    return record.microbatch <= there ? record.microbatch : 0;
  }

  const History& history_;
  Violations& found_;
  std::map<std::pair<uint64_t, uint64_t>, Wanted> wants_;  // (call, id), unanswered
  // (call, stream, pass, step, epoch) -> microbatches sent, from the first on
  std::map<std::tuple<uint64_t, int, int64_t, int64_t, int64_t>, int64_t> parts_;
  std::map<PassKey, Sent> sent_;
  // (call, stream, pass) -> (record, step)
  std::map<std::tuple<uint64_t, int, int64_t>, std::vector<std::pair<size_t, int64_t>>> order_;
};

// instance, group, generation, epoch, stream, pass, step, microbatch
using ShardKey = std::tuple<int, int, int64_t, int64_t, int, int64_t, int64_t, int64_t>;

// Which process of its loader made it; -1: none.
int64_t VariantOf(const Job& job, const Record& record) {
  for (int64_t variant = 0; variant < kMostVariants; ++variant) {
    if (record.content ==
        Content(job, record.stream, record.pass, record.step, record.microbatch, variant)) {
      return variant;
    }
  }
  return -1;
}

void CheckShard(const History& history, const Record& record, Violations& found) {
  const Process& process = history.processes[record.process];
  const Job& job = history.jobs[process.group];
  const StreamFacts& stream = job.streams[record.stream];
  if (record.cp_size != process.cp_size || record.cp_rank != process.cp_rank ||
      record.generation != process.generation) {
    found.Add(
        "I4", record,
        absl::StrCat("a shard of rank ", record.cp_rank, " of ", record.cp_size, " in generation ",
                     record.generation, " for rank ", process.cp_rank, " of ", process.cp_size));
  }
  if (record.digest != record.content) found.Add("I2", record, "bytes of another digest");
  if (history.same_content && record.content != Content(job, record.stream, record.pass,
                                                        record.step, record.microbatch, 0)) {
    found.Add("I2", record, "bytes of another step");
  }
  if (record.owner != record.step % stream.num_loaders ||
      record.num_loaders != stream.num_loaders) {
    found.Add("I5", record,
              absl::StrCat("said to be of loader ", record.owner, " of ", record.num_loaders));
  }
  if (record.totals && *record.totals != Totals(job, record.stream, record.pass, record.step)) {
    found.Add("I5", record, "other totals than its loader's");
  }
  const auto state = StateBehind(job, record.stream, record.pass, record.step);
  const bool due = record.last && state;
  if (record.state.has_value() != due || (due && record.state->state != *state)) {
    found.Add("I5", record, absl::StrCat("the state behind it is ", state.value_or("none")));
  }
}

// Groups of a job pad a step to the largest need of all. One that has left the pass without it does
// not count; but what is said to several groups is alike.
void CheckPadding(const History& history, Violations& found) {
  std::map<ShardKey, int64_t> said;
  for (const Record& record : history.records) {
    if (record.kind != Kind::kDelivered) continue;
    const Job& job = history.jobs[history.processes[record.process].group];
    if (job.name.empty()) {
      if (record.value != -1) found.Add("D14", record, "its group is of no job");
      continue;
    }
    const auto need_of = [&](const Job& of) {
      return RowNeed(of, record.stream, record.pass, record.step, record.microbatch);
    };
    const int64_t all = std::max(need_of(history.jobs[0]), need_of(history.jobs[1]));
    const int64_t value = said.try_emplace({record.instance, 0, 0, 0, record.stream, record.pass,
                                            record.step, record.microbatch},
                                           record.value)
                              .first->second;
    if (record.value != value) {
      found.Add("D14", record, absl::StrCat("another reader was told ", value));
    } else if (value != all && value != need_of(job)) {
      found.Add("D14", record, absl::StrCat("the groups of its job need ", all));
    }
  }
}

}  // namespace

void CheckOrder(const History& history, Violations& found) { OrderCheck(history, found).Run(); }

void CheckShards(const History& history, Violations& found) {
  CheckPadding(history, found);
  std::map<ShardKey, uint64_t> seen;  // content
  std::map<ShardKey, int64_t> made;   // of the step's microbatch that was sent first
  for (const Record& record : history.records) {
    if (record.kind != Kind::kDelivered) continue;
    CheckShard(history, record, found);
    if (history.same_content) continue;  // then it is alike, or found out above
    const Process& process = history.processes[record.process];
    const int64_t variant = VariantOf(history.jobs[process.group], record);
    const auto [whole, began] =
        made.try_emplace({record.instance, process.group, record.generation, record.epoch,
                          record.stream, record.pass, record.step, 0},
                         variant);
    if (variant < 0 || whole->second != variant) {
      found.Add("I2", record, "microbatches of two makings");
    }
    const auto [it, added] = seen.try_emplace(
        {record.instance, history.processes[record.process].group, record.generation, record.epoch,
         record.stream, record.pass, record.step, record.microbatch},
        record.content);
    if (it->second != record.content) {
      found.Add("I2", record, "another reader was sent other bytes");
    }
  }
}

}  // namespace cpshard::simulation
