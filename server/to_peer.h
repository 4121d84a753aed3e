// Errors of sharding as peers are told them, on every call alike: with a reason, and with when to
// come again where that helps.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cpshard {

// What stands in the way is other batches ...
constexpr absl::Duration kRetrySoon = absl::Milliseconds(100);
// ... or a server that stops, of which nobody knows how long it takes ...
constexpr absl::Duration kRetryDrain = absl::Seconds(1);
// ... or one whose device is lost. It goes on refusing for kLostGrace and what Server::Stop takes,
// 1.1 to 1.7 s measured: who came back before that would meet the same one again.
constexpr absl::Duration kLostGrace = absl::Seconds(1);
constexpr absl::Duration kRetryLost = absl::Seconds(3);

// An error of planning, of the pool or of the executor. Memory that may come back:
// ResourceExhausted, BUDGET, with when. Memory that never will: FailedPrecondition, with the way
// out, since peers try again what is exhausted. A lost device: DEVICE_LOST, with when.
absl::Status ToPeer(absl::Status status);

// What is refused because the server stops: Unavailable, DRAINING, with when to come again.
absl::Status ShuttingDown();

}  // namespace cpshard
