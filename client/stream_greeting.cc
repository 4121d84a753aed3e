#include "client/stream_greeting.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::Duration kGreetingTime = absl::Seconds(15);
constexpr int64_t kSmallestAnswerBound = int64_t{64} << 20;

}  // namespace

// The shards are within the server's max_batch_bytes; large layouts come on top. A server that does
// not state it (0) has that of this build.
int64_t LargestAnswer(const ServerInfo& server) {
  const int64_t stated = server.limits.max_batch_bytes;
  const int64_t batch = stated > 0 ? stated : Limits().max_batch_bytes;
  return std::clamp(batch, kSmallestAnswerBound, std::numeric_limits<int64_t>::max() / 2) * 2;
}

absl::StatusOr<Greeted> Greet(const Address& address, WakeupFd& wakeup, Rest rest) {
  Greeted greeted;
  CPSHARD_ASSIGN_OR_RETURN(greeted.connection, StreamConnection::Connect(address, rest));
  const auto call =
      CallGetServerInfo(greeted.connection->channel(), kGreetingTime, [&wakeup] { wakeup.Wake(); });
  absl::StatusOr<ServerInfo> answer = Await(*call, rest);
  if (absl::IsCancelled(answer.status())) {
    greeted.connection->Cut();
    return absl::CancelledError(
        absl::StrCat(address.text, " was given up before it said who it is"));
  }
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat(address.text, " takes connections, but has not ",
                     "answered GetServerInfo within ", absl::FormatDuration(kGreetingTime)));
  }
  CPSHARD_ASSIGN_OR_RETURN(greeted.server, std::move(answer));
  return greeted;
}

}  // namespace cpshard
