#include "tests/simulation/scenario.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/random.h"

namespace cpshard::simulation {
namespace {

constexpr int64_t kMillisecond = 1000;

StreamFacts DrawStream(Random& random, const char* name, int64_t least, int64_t most) {
  StreamFacts stream{.name = name, .length = random.Between(least, most)};
  stream.num_loaders = random.Between(1, 4);
  stream.state_every = random.OneIn(4) ? random.Between(2, 3) : 1;
  stream.most_microbatches = random.Between(1, 3);
  stream.declares_totals = random.OneIn(2);
  stream.max_step_bytes = random.Between(2, 6) * 30;
  return stream;
}

GroupScenario DrawGroup(Random& random, int number) {
  GroupScenario group;
  Job& job = group.job;
  job.group = absl::StrCat("g", number);
  job.number = random.Next() >> 8;
  job.shape = job.number;
  job.streams.push_back(DrawStream(random, "train", 4, 14));
  if (!random.OneIn(3)) {
    job.streams.push_back(DrawStream(random, "validation", 1, 4));
    job.validate_every = random.Between(2, 5);
    job.validation_steps = random.OneIn(3) ? random.Between(1, 3) : 1000;
  }
  if (random.OneIn(5)) {
    job.train_passes = 2;
    job.streams[kTrain].length = std::min<int64_t>(job.streams[kTrain].length, 7);
  }
  group.cp_size = random.Between(1, 4);
  group.readers_per_rank = group.cp_size <= 2 && random.OneIn(4) ? 2 : 1;
  group.prefetch = random.Between(0, 3);
  group.checkpoint_every = random.Between(1, 5);
  group.shared_loaders = random.OneIn(2);
  if (group.shared_loaders && job.streams.size() > 1) {
    job.streams[kValidation].num_loaders = job.streams[kTrain].num_loaders;
  }
  group.train_us = random.Between(100, 2000);
  group.make_us = random.Between(50, 1200);
  group.loader_latency_us = random.OneIn(3) ? random.Between(500, 3000) : 0;
  const int64_t kind = random.Below(9);
  group.rewinds = kind != 0;
  group.same_content = kind > 4;
  if (!group.rewinds) {
    for (StreamFacts& stream : job.streams) stream.state_every = 0;
  }
  if (!group.rewinds) group.same_content = true;
  if (!group.same_content) {
    group.land_us = 5000;
    // What is told apart only where a step can be seen before it is there whole.
    for (StreamFacts& stream : job.streams) {
      stream.declares_totals = true;
      stream.most_microbatches = 3;
    }
  }
  return group;
}

int64_t Guaranteed(const Scenario& scenario, const GroupScenario& group) {
  int64_t bytes = 0;
  for (const StreamFacts& stream : group.job.streams) {
    bytes += (scenario.server.replay_steps + 2) * stream.max_step_bytes;
  }
  return bytes;
}

// Nothing beyond what is guaranteed, or something, or plenty; or room for one group at a time.
int64_t DrawBudget(Random& random, const Scenario& scenario) {
  int64_t all = 0, most = 0;
  for (const GroupScenario& group : scenario.groups) {
    const int64_t bytes = Guaranteed(scenario, group);
    all += bytes;
    most = std::max(most, bytes);
  }
  const bool apart = scenario.groups.size() > 1 && scenario.groups[0].job.name.empty();
  if (apart && random.OneIn(2)) return most;
  switch (random.Below(3)) {
    case 0:
      return all;
    case 1:
      return all + random.Below(all);
    default:
      return 100 * all;
  }
}

FaultKind DrawKind(Random& random, const GroupScenario& group) {
  while (true) {
    // Those that hold the rarest events come more often.
    static constexpr FaultKind kRarest[] = {FaultKind::kRestartFrozen, FaultKind::kRestartFrozen,
                                            FaultKind::kRestartTwice,  FaultKind::kRestartTwice,
                                            FaultKind::kReaderCrash,   FaultKind::kReaderCrash,
                                            FaultKind::kReaderAway,    FaultKind::kLoaderDamages,
                                            FaultKind::kLoaderRepeats, FaultKind::kRestartFrozen};
    const int64_t drawn = random.Below(static_cast<int>(FaultKind::kCount) + std::size(kRarest));
    const int64_t extra = drawn - static_cast<int>(FaultKind::kCount);
    const FaultKind kind = extra >= 0 ? kRarest[extra] : static_cast<FaultKind>(drawn);
    // A source that cannot go back does not survive its own end, nor that of its trainers.
    const bool goes_back = kind == FaultKind::kLoaderCrash || kind == FaultKind::kLoaderReplaced ||
                           kind == FaultKind::kRestart || kind == FaultKind::kRestartTwice ||
                           kind == FaultKind::kRestartFrozen || kind == FaultKind::kTwoLaunchers;
    // Groups of a job start again together, or pad what they have had in another way.
    const bool restarts =
        goes_back && kind != FaultKind::kLoaderCrash && kind != FaultKind::kLoaderReplaced;
    if (restarts && !group.job.name.empty()) continue;
    if (!goes_back || group.rewinds) return kind;
  }
}

Fault DrawFault(Random& random, const Scenario& scenario) {
  Fault fault;
  fault.group = static_cast<int>(random.Below(scenario.groups.size()));
  const GroupScenario& group = scenario.groups[fault.group];
  fault.kind = DrawKind(random, group);
  if (!group.same_content && !random.OneIn(3)) {
    fault.kind = random.OneIn(2) ? FaultKind::kLoaderReplaced : FaultKind::kLoaderCrash;
  }
  const int64_t span = std::max<int64_t>(
      3 * kMillisecond, static_cast<int64_t>(group.job.items.size()) *
                            std::max(group.train_us + 4 * scenario.latency_us, group.make_us));
  fault.at_us = random.Below(span * 3 / 4);
  fault.duration_us = random.Between(500, 20 * kMillisecond);
  if (fault.kind == FaultKind::kReaderAway) fault.duration_us += 30 * kMillisecond;
  fault.who = random.Next() >> 8;
  fault.value = random.Below(64);
  return fault;
}

}  // namespace

Scenario Draw(uint64_t seed) {
  Random random(Hash({seed, 77}));
  Scenario scenario{.seed = seed};
  scenario.latency_us = random.OneIn(3) ? random.Between(500, 1500) : random.Between(20, 300);
  const int groups = random.OneIn(5) ? 2 : 1;
  for (int g = 0; g < groups; ++g) scenario.groups.push_back(DrawGroup(random, g));
  if (groups == 2 && random.OneIn(3)) {
    // One job: the groups go through the same steps, with data and loaders of their own.
    GroupScenario& first = scenario.groups[0];
    first.job.name = "job";
    first.same_content = first.rewinds = true;
    const Job other = scenario.groups[1].job;
    scenario.groups[1] = first;
    scenario.groups[1].job.group = other.group;
    scenario.groups[1].job.number = other.number;
  }
  DeliveryOptions& server = scenario.server;
  server.replay_steps = random.Between(1, 2);
  int64_t prefetch = 0;
  for (const GroupScenario& group : scenario.groups) prefetch = std::max(prefetch, group.prefetch);
  server.ahead_steps = prefetch + 1 + random.Between(0, 3);
  server.rank_timeout = absl::Milliseconds(20);
  for (GroupScenario& group : scenario.groups) group.job.items = ItemsOf(group.job);
  server.budget_bytes = DrawBudget(random, scenario);
  int64_t all = 0;
  for (const GroupScenario& group : scenario.groups) all += Guaranteed(scenario, group);
  for (GroupScenario& group : scenario.groups) {
    group.declared = all <= server.budget_bytes && Hash({group.job.number, 78}) % 8 == 0;
  }
  const int64_t faults = random.Between(1, 7);
  for (int64_t f = 0; f < faults; ++f) scenario.faults.push_back(DrawFault(random, scenario));
  std::sort(scenario.faults.begin(), scenario.faults.end(),
            [](const Fault& a, const Fault& b) { return a.at_us < b.at_us; });
  for (const Fault& fault : scenario.faults) {
    scenario.quiet_from_us =
        std::max(scenario.quiet_from_us, fault.at_us + fault.duration_us + kMillisecond);
  }
  return scenario;
}

std::vector<std::string> EditsOf(const Scenario& scenario) {
  std::vector<std::string> edits;
  for (size_t f = 0; f < scenario.faults.size(); ++f) {
    if (!scenario.faults[f].dropped) edits.push_back(absl::StrCat("f", f));
  }
  if (scenario.groups.size() > 1) edits.push_back("g1");
  for (const char* edit : {"v", "t", "p", "c", "l", "m"}) edits.push_back(edit);
  return edits;
}

absl::Status Edit(const std::string& edit, Scenario& scenario) {
  const auto for_streams = [&](auto change) {
    for (GroupScenario& group : scenario.groups) {
      for (StreamFacts& stream : group.job.streams) change(stream);
    }
  };
  size_t number = 0;
  if (edit.empty()) return absl::InvalidArgumentError("an empty edit");
  const bool numbered = absl::SimpleAtoi(edit.substr(1), &number);
  if (edit[0] == 'f' && numbered && number < scenario.faults.size()) {
    scenario.faults[number].dropped = true;
  } else if (edit == "g1") {
    scenario.groups.resize(1);
    scenario.groups[0].job.name.clear();
    for (Fault& fault : scenario.faults) fault.group = 0;
  } else if (edit == "p") {
    for (GroupScenario& group : scenario.groups) group.readers_per_rank = 1;
  } else if (edit == "c") {
    for (GroupScenario& group : scenario.groups) group.cp_size = 1;
  } else if (edit == "l") {
    for_streams([](StreamFacts& stream) { stream.num_loaders = 1; });
  } else if (edit == "m") {
    for_streams([](StreamFacts& stream) { stream.most_microbatches = 1; });
  } else if (edit == "v") {
    for (GroupScenario& group : scenario.groups) {
      group.job.streams.resize(1);
      group.job.validate_every = 0;
    }
  } else if (edit == "t") {
    for_streams([](StreamFacts& stream) { stream.length = (stream.length + 1) / 2; });
  } else {
    return absl::InvalidArgumentError(absl::StrCat("there is no edit '", edit, "'"));
  }
  for (GroupScenario& group : scenario.groups) group.job.items = ItemsOf(group.job);
  return absl::OkStatus();
}

const char* NameOf(FaultKind kind) {
  static constexpr const char* kNames[] = {
      "server-crash",    "server-drain",  "reader-break",   "reader-crash",   "reader-freeze",
      "reader-away",     "reader-slow",   "loader-break",   "loader-crash",   "loader-freeze",
      "loader-replaced", "loader-slow",   "loader-repeats", "loader-damages", "restart",
      "restart-twice",   "two-launchers", "restart-frozen"};
  static_assert(std::size(kNames) == static_cast<size_t>(FaultKind::kCount));
  return kNames[static_cast<size_t>(kind)];
}

std::string Describe(const Scenario& scenario) {
  std::string text = absl::StrCat(
      "budget ", scenario.server.budget_bytes, ", replay ", scenario.server.replay_steps,
      ", ahead ", scenario.server.ahead_steps, ", latency ", scenario.latency_us, " us\n");
  for (const GroupScenario& group : scenario.groups) {
    absl::StrAppend(&text, "  group ", group.job.group, ": cp ", group.cp_size, " x ",
                    group.readers_per_rank, ", prefetch ", group.prefetch, ", ",
                    group.shared_loaders ? "shared loaders" : "loaders apart",
                    group.rewinds ? "" : ", sources do not go back",
                    group.declared ? ", declared" : "",
                    group.same_content ? "" : ", sources make something else", "\n");
    for (const StreamFacts& stream : group.job.streams) {
      absl::StrAppend(&text, "    ", stream.name, ": ", stream.length, " steps, ",
                      stream.num_loaders, " loaders, up to ", stream.most_microbatches,
                      " microbatches", stream.declares_totals ? " (declared)" : "",
                      ", state every ", stream.state_every, ", ", stream.max_step_bytes,
                      " bytes\n");
    }
  }
  for (size_t f = 0; f < scenario.faults.size(); ++f) {
    const Fault& fault = scenario.faults[f];
    if (fault.dropped) continue;
    absl::StrAppend(&text, "  f", f, " at ", fault.at_us, " us: ", NameOf(fault.kind), " group ",
                    fault.group, " for ", fault.duration_us, " us, value ", fault.value, "\n");
  }
  return text;
}

}  // namespace cpshard::simulation
