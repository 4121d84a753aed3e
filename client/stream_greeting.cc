#include "client/stream_greeting.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::Duration kGreetingTime = absl::Seconds(15);

}  // namespace

absl::StatusOr<Greeted> Greet(const Address& address, WakeupFd& wakeup, Rest rest) {
  Greeted greeted;
  CPSHARD_ASSIGN_OR_RETURN(greeted.connection, StreamConnection::Connect(address, rest));
  ServerInfoCall call(greeted.connection->channel(), kGreetingTime, [&wakeup] { wakeup.Wake(); });
  std::optional<absl::StatusOr<ServerInfo>> answer;
  while (!(answer = call.answer())) {
    if (rest(-1, kGreetingTime)) continue;
    greeted.connection->Cut();
    return absl::CancelledError(
        absl::StrCat(address.text, " was given up before it said who it is"));
  }
  if (absl::IsDeadlineExceeded(answer->status())) {
    return absl::DeadlineExceededError(
        absl::StrCat(address.text, " takes connections, but has not ",
                     "answered GetServerInfo within ", absl::FormatDuration(kGreetingTime)));
  }
  CPSHARD_ASSIGN_OR_RETURN(greeted.server, *std::move(answer));
  return greeted;
}

}  // namespace cpshard
