// Where the time goes while a trainer waits for a step.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/session/rank.h"

namespace cpshard {

// What a step is waited for, as far as is known.
enum class WaitsFor { kUnknown, kLoader, kPeer, kServer };

// By the text that a server says it with: what it waits for is a loader, or else other ranks, which
// have not opened or consumed.
inline WaitsFor WhoIsIn(absl::string_view waiting_for) {
  return absl::StrContains(waiting_for, "loader") ? WaitsFor::kLoader : WaitsFor::kPeer;
}

// Adds up one wait. What passes before the server has said anything counts as what it says next; if
// it says nothing, as the loader's: a server that has a step sends it.
class WaitTally {
 public:
  void Add(WaitsFor who, absl::Duration time) {
    if (who == WaitsFor::kUnknown) {
      unknown_ += time;
    } else {
      Of(who) += time + (who == WaitsFor::kServer ? absl::ZeroDuration() : TakeUnknown());
    }
  }

  // `copied`: what it took to copy what came meanwhile, which was counted as something else.
  Stall Finish(absl::Duration copied) {
    stall_.loader += TakeUnknown();
    for (absl::Duration* part : {&stall_.server, &stall_.loader, &stall_.peer}) {
      const absl::Duration moved = std::min(*part, copied);
      *part -= moved;
      copied -= moved;
      stall_.copy += moved;
    }
    return stall_;
  }

 private:
  absl::Duration TakeUnknown() { return std::exchange(unknown_, absl::ZeroDuration()); }
  absl::Duration& Of(WaitsFor who) {
    if (who == WaitsFor::kLoader) return stall_.loader;
    return who == WaitsFor::kPeer ? stall_.peer : stall_.server;
  }

  Stall stall_;
  absl::Duration unknown_;
};

}  // namespace cpshard
