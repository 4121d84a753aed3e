// The states of a data stream's loaders, by step: what the resume state of a step is made of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/session_messages.h"
#include "server/session/rules.h"

namespace cpshard {

// Kept are, of every loader, the latest state below the floor and all at or above it. Not
// thread-safe.
class ResumeTable {
 public:
  explicit ResumeTable(const DeliveryRules& rules) : rules_(rules) {}

  // Begins anew behind a step with what a reader brought of it.
  void Seed(const ResumeState& state);
  void Add(int64_t loader, LoaderState state);
  void Drop(int64_t loader, int64_t step);
  void SetFloor(int64_t floor);

  // The resume state of `step`. Precondition: the states up to it are here.
  ResumeState At(int64_t step, int64_t num_loaders) const;
  // The loader's latest state below `step`.
  std::optional<LoaderState> Below(int64_t loader, int64_t step) const;
  // Its state of exactly this step.
  std::optional<std::string> Of(int64_t loader, int64_t step) const;

 private:
  struct Loader {
    std::map<int64_t, std::string> states;  // by step
    int64_t last_arrived = 0;
  };
  const DeliveryRules rules_;
  std::map<int64_t, Loader> loaders_;
};

}  // namespace cpshard
