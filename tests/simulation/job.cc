#include "tests/simulation/job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/random.h"

namespace cpshard::simulation {
namespace {

// A pass over validation data of at most job.validation_steps.
void AppendValidation(const Job& job, int64_t pass, bool last, std::vector<Item>& items) {
  const int64_t length = job.streams[kValidation].length;
  const int64_t steps = std::min(length, job.validation_steps);
  for (int64_t step = 0; step < steps; ++step) items.push_back({kValidation, pass, step});
  if (job.validation_steps >= length) {
    items.push_back({.stream = kValidation, .pass = pass, .step = length, .ends = true});
  }
  items.back().closes = true;
  items.back().finishes = last;
}

}  // namespace

std::vector<Item> ItemsOf(const Job& job) {
  std::vector<Item> items;
  const int64_t all = job.train_passes * job.streams[kTrain].length;
  int64_t taken = 0, validations = 0;
  for (int64_t pass = 0; pass < job.train_passes; ++pass) {
    for (int64_t step = 0; step < job.streams[kTrain].length; ++step) {
      items.push_back({kTrain, pass, step});
      ++taken;
      if (job.validate_every == 0 || taken % job.validate_every != 0) continue;
      // Every other job says with the last pass that there is none after it, the others later.
      const bool last = taken + job.validate_every > all && job.number % 2 == 0;
      AppendValidation(job, validations++, last, items);
    }
    items.push_back({kTrain, pass, job.streams[kTrain].length, true, true});
    items.back().finishes = pass + 1 == job.train_passes;
  }
  return items;
}

int StreamOf(const Job& job, const std::string& name) {
  for (size_t s = 0; s < job.streams.size(); ++s) {
    if (job.streams[s].name == name) return static_cast<int>(s);
  }
  return -1;
}

int64_t Microbatches(const Job& job, int stream, int64_t pass, int64_t step) {
  const uint64_t hash = Hash({job.shape, 1, static_cast<uint64_t>(stream),
                              static_cast<uint64_t>(pass), static_cast<uint64_t>(step)});
  return 1 + static_cast<int64_t>(hash % job.streams[stream].most_microbatches);
}

StepTotals Totals(const Job& job, int stream, int64_t pass, int64_t step) {
  return {.num_microbatches = Microbatches(job, stream, pass, step)};
}

int64_t Bytes(const Job& job, int stream, int64_t pass, int64_t step, int64_t microbatch) {
  const int64_t most = job.streams[stream].max_step_bytes / Microbatches(job, stream, pass, step);
  const uint64_t hash = Content(job, stream, pass, step, microbatch, 0);
  return hash % 4 == 0 ? most : 1 + static_cast<int64_t>(Mix(hash) % most);
}

int64_t RowNeed(const Job& job, int stream, int64_t pass, int64_t step, int64_t microbatch) {
  return 1 + static_cast<int64_t>(Content(job, stream, pass, step, microbatch, 0) % 1000);
}

uint64_t Content(const Job& job, int stream, int64_t pass, int64_t step, int64_t microbatch,
                 uint64_t variant) {
  return Hash({job.number, 2, static_cast<uint64_t>(stream), static_cast<uint64_t>(pass),
               static_cast<uint64_t>(step), static_cast<uint64_t>(microbatch), variant});
}

std::optional<std::string> StateBehind(const Job& job, int stream, int64_t pass, int64_t step) {
  const StreamFacts& facts = job.streams[stream];
  const int64_t own = step / facts.num_loaders;  // steps of this loader before it
  if (facts.state_every == 0 || (own + 1) % facts.state_every != 0) return std::nullopt;
  return absl::StrCat(stream, "/", pass, "/", step, "#", job.number);
}

std::optional<LoaderState> LatestState(const Job& job, int stream, int64_t pass, int64_t loader,
                                       int64_t before) {
  for (int64_t step = before - 1; step >= 0; --step) {
    if (step % job.streams[stream].num_loaders != loader) continue;
    if (auto state = StateBehind(job, stream, pass, step)) return LoaderState{step, *state};
  }
  return std::nullopt;
}

ResumeState ResumeAt(const Job& job, int stream, int64_t pass, int64_t next_step) {
  ResumeState resume{.num_loaders = job.streams[stream].num_loaders};
  for (int64_t loader = 0; loader < resume.num_loaders; ++loader) {
    if (auto state = LatestState(job, stream, pass, loader, next_step)) {
      resume.loaders[loader] = *state;
    }
  }
  return resume;
}

}  // namespace cpshard::simulation
