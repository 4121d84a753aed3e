// What a call of the state machine leaves to be said.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/session/delivery.h"

namespace cpshard {

struct Outbox {
  std::vector<Output> outputs;
  std::vector<Alert> alerts;
  DeliveryCounters counters;
  std::string job_moved;  // steps of it may be ready now

  template <typename What>
  void Say(PeerId to, What what) {
    if (to != 0) outputs.push_back({to, std::move(what)});
  }
};

}  // namespace cpshard
