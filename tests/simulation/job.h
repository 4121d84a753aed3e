// What a group's data is and what its trainers do without faults, as plain functions: the source of
// the simulated loaders, and what the checker expects. Nothing here knows of a server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/session_messages.h"

namespace cpshard::simulation {

inline constexpr int64_t kMostVariants = 64;
inline constexpr int kTrain = 0;
inline constexpr int kValidation = 1;  // if the job has one

struct StreamFacts {
  std::string name;
  int64_t length = 0;  // steps of every pass
  int64_t num_loaders = 1;
  int64_t state_every = 1;  // a loader gives its state with every so many of its steps; 0: never
  int64_t most_microbatches = 1;
  bool declares_totals = false;  // with microbatch 0
  int64_t max_step_bytes = 0;
};

// One thing that a trainer does: it takes a step, or learns that there is none.
struct Item {
  int stream = kTrain;
  int64_t pass = 0;
  int64_t step = 0;
  bool ends = false;    // the end of the pass, whose length is `step`
  bool closes = false;  // afterwards the pass is left
  bool finishes = false;
};

struct Job {
  std::string group;
  std::string name;  // with other groups that pad alike; may be empty
  uint64_t number = 0;
  uint64_t shape = 0;  // groups of one job have as many microbatches in a step
  std::vector<StreamFacts> streams;
  int64_t train_passes = 1;
  int64_t validate_every = 0;    // train steps; 0: never
  int64_t validation_steps = 0;  // of a pass; beyond its length: to the end
  std::vector<Item> items;       // ItemsOf
};

std::vector<Item> ItemsOf(const Job& job);

// -1: there is no such data stream.
int StreamOf(const Job& job, const std::string& name);

int64_t Microbatches(const Job& job, int stream, int64_t pass, int64_t step);
StepTotals Totals(const Job& job, int stream, int64_t pass, int64_t step);
// Of all microbatches together at most max_step_bytes.
int64_t Bytes(const Job& job, int stream, int64_t pass, int64_t step, int64_t microbatch);
// Of a microbatch: how long its group would pad it.
int64_t RowNeed(const Job& job, int stream, int64_t pass, int64_t step, int64_t microbatch);
// `variant`: 0, but for a loader that makes something else at every start: then its incarnation,
// below kMostVariants.
uint64_t Content(const Job& job, int stream, int64_t pass, int64_t step, int64_t microbatch,
                 uint64_t variant);

// The state that comes with a step, if one does.
std::optional<std::string> StateBehind(const Job& job, int stream, int64_t pass, int64_t step);
// The latest of a loader from a step below `before`.
std::optional<LoaderState> LatestState(const Job& job, int stream, int64_t pass, int64_t loader,
                                       int64_t before);
// The resume state of step next_step - 1.
ResumeState ResumeAt(const Job& job, int stream, int64_t pass, int64_t next_step);

}  // namespace cpshard::simulation
