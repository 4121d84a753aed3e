// Which kinds of events schedules held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cpshard::simulation {

enum class Event {
  kServerCrash,
  kServerDrain,
  kReaderBreak,
  kReaderCrash,
  kReaderFreeze,
  kReaderStepsBack,  // a reader alone opens again below what it had consumed
  kSlowReader,
  kLoaderBreak,
  kLoaderCrash,
  kLoaderFreeze,
  kLoaderReplacedFrozen,
  kSlowLoader,
  kDamagedPush,
  kRestart,  // of a group, from a checkpoint or from the start
  kRestartFrozen,
  kCpChange,
  kTwoLaunchers,
  kRefusedLauncher,
  kPeerLeft,
  kDeadline,
  kSeekForwards,
  kSeekBackwards,
  kStalePush,
  kStaleCommit,
  kDuplicate,
  kEarlyRelease,
  kEndOfStream,
  kValidation,
  kSeveralPasses,
  kBudgetWait,
  kGroupWaits,  // for room that others are guaranteed
  kRepull,      // of a step that a reader has had
  kGoesOn,      // a request for what is behind the microbatches that are here
  kDigestConflict,
  kStatesOfReader,  // a server learns loaders' states from a reader
  kNoRewind,        // sources that cannot go back
  kDeclared,        // a declared group begins before anybody has opened it
  kTwoGroups,
  kOneJob,  // that pad alike
  kCount
};

const char* NameOf(Event event);

struct Coverage {
  std::array<bool, static_cast<size_t>(Event::kCount)> seen{};
  void Saw(Event event) { seen[static_cast<size_t>(event)] = true; }
  bool Has(Event event) const { return seen[static_cast<size_t>(event)]; }
};

}  // namespace cpshard::simulation
