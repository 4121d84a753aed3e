#include "client/cli/demo/idle_server.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {

absl::Status CheckNothingIsHeld(const std::string& address) {
  CPSHARD_ASSIGN_OR_RETURN(const auto client, Client::Connect(address));
  const absl::Time give_up = absl::Now() + absl::Seconds(5);
  while (true) {
    CPSHARD_ASSIGN_OR_RETURN(const ServerInfo info, client->GetServerInfo());
    const Counters& now = info.counters;
    const bool idle = now.buffers_out == 0 && now.streams == 0 && now.batches == 0 &&
                      now.sessions == 0 && now.loaders == 0;
    if (idle || absl::Now() > give_up) {
      std::printf("buffers out: %lld\n", static_cast<long long>(now.buffers_out));
      if (idle) return absl::OkStatus();
      return absl::InternalError(absl::StrCat(
          "the server still holds ", now.buffers_out, " buffers of ", now.bytes_out, " bytes, ",
          now.streams, " streams, ", now.batches, " batches, ", now.sessions, " sessions and ",
          now.loaders, " loaders, and no process is left"));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

}  // namespace cpshard::demo
