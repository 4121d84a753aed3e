#include "client/cli/bench/row.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/bench/processor_time.h"
#include "client/cli/bench/window.h"
#include "client/cli/deadline.h"
#include "client/shard_stream.h"
#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

absl::Status WarmUp(Window& window, const Target& target, const Work& work, int64_t in_flight) {
  for (int64_t i = 0; i < in_flight; ++i) window.Submit();
  CPSHARD_ASSIGN_OR_RETURN(const ShardResult first, window.Next());
  while (window.size() > 0) CPSHARD_RETURN_IF_ERROR(window.Next().status());
  const std::string difference = DifferenceOf(first, work.expected);
  if (difference.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(target.address, " shards a batch of ", work.shape.bytes(),
                                          " bytes wrongly: ", difference));
}

absl::Status Run(Window& window, int64_t in_flight, double seconds) {
  const Clock::time_point begin = Clock::now();
  while (window.size() < in_flight) window.Submit();
  while (Seconds(Clock::now() - begin).count() < seconds) {
    CPSHARD_RETURN_IF_ERROR(window.Next().status());
    window.Submit();
  }
  while (window.size() > 0) CPSHARD_RETURN_IF_ERROR(window.Next().status());
  return absl::OkStatus();
}

}  // namespace

std::string Target::transport() const {
  return absl::StartsWith(address, "unix:") ? "unix" : "tcp";
}

double Percentile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  const double rank = std::ceil(share * static_cast<double>(samples.size()));
  return samples[std::max<size_t>(static_cast<size_t>(rank), 1) - 1];
}

int64_t InFlight(int64_t asked, const TokenShape& shape, const StreamLimits& limits) {
  const int64_t fit = std::max<int64_t>(limits.max_inflight_bytes / shape.body_bytes(), 1);
  return std::min({asked, fit, limits.max_inflight_batches});
}

absl::StatusOr<Row> MeasureRow(const Target& target, const Work& work, int64_t in_flight,
                               double seconds, ExecutorKind executor) {
  CPSHARD_ASSIGN_OR_RETURN(
      const auto stream,
      ShardStream::Open(target.address, {.deadline = DeadlineFor(in_flight * work.shape.bytes()),
                                         .max_inflight_batches = in_flight,
                                         .executor = executor}));
  Window window(*stream, work);
  std::optional<ServerWatch> watch;
  if (target.server) watch.emplace(window, *target.server);
  CPSHARD_RETURN_IF_ERROR(WarmUp(window, target, work, in_flight));
  window.TakeLatencies();
  const StreamStats before = stream->stats();

  const auto server_used = [&]() -> std::optional<double> {
    return target.server ? ProcessorSeconds(*target.server) : std::nullopt;
  };
  const double client_before = ProcessorSeconds(getpid()).value_or(0);
  const std::optional<double> server_before = server_used();
  const Clock::time_point begin = Clock::now();
  CPSHARD_RETURN_IF_ERROR(Run(window, in_flight, seconds));
  Row row{.target = target, .shape = work.shape, .in_flight = in_flight};
  row.seconds = Seconds(Clock::now() - begin).count();
  const double client_used = ProcessorSeconds(getpid()).value_or(0) - client_before;
  const std::optional<double> server_after = server_used();

  const StreamStats after = stream->stats();
  row.reconnects = after.connects - before.connects;
  row.resubmitted = after.resubmitted - before.resubmitted;
  const std::vector<double> latencies = window.TakeLatencies();
  row.batches = static_cast<int64_t>(latencies.size());
  const double bytes = static_cast<double>(row.batches * work.bytes());
  row.bytes_per_second = bytes / row.seconds;
  row.tokens_per_second = static_cast<double>(row.batches * work.shape.tokens()) / row.seconds;
  row.p50_seconds = Percentile(latencies, 0.50);
  row.p99_seconds = Percentile(latencies, 0.99);
  row.client_seconds_per_byte = client_used / bytes;
  if (server_before && server_after) {
    row.server_seconds_per_byte = (*server_after - *server_before) / bytes;
  }
  row.memcpy_bytes_per_second = work.memcpy_bytes_per_second;
  return row;
}

}  // namespace cpshard::bench
