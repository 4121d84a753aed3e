#include "tests/bench/stream/rounds.h"

#include "tests/bench/stream/usage.h"

namespace cpshard::bench {
namespace {

Report Command(const Contender& contender, const Order& order) {
  Send(contender.client->fd(), order);
  return Receive<Report>(contender.client->fd());
}

// With several in flight, as many again after those: filling and draining do not rule.
Order OrderFor(const Contender& contender, const TokenShape& shape, double seconds) {
  return {shape, seconds, contender.in_flight, contender.in_flight};
}

Order WarmUp(const Contender& contender, const TokenShape& shape) {
  return {shape, 0, 1, contender.in_flight};
}

Sample MeasureOnce(const Contender& contender, const TokenShape& shape, double seconds) {
  Command(contender, WarmUp(contender, shape));
  const Usage client_before = UsageOf(contender.client->pid());
  const Usage server_before = UsageOf(contender.server);
  const Report report = Command(contender, OrderFor(contender, shape, seconds));
  const Usage client = UsageOf(contender.client->pid());
  const Usage server = UsageOf(contender.server);

  const double gb = 1e-9 * static_cast<double>(report.trips * contender.passes * shape.bytes());
  const double cpu = client.cpu_seconds - client_before.cpu_seconds + server.cpu_seconds -
                     server_before.cpu_seconds;
  return {gb / report.seconds, cpu / gb,
          static_cast<double>(client.minor_faults - client_before.minor_faults) / gb,
          static_cast<double>(server.minor_faults - server_before.minor_faults) / gb};
}

}  // namespace

std::vector<std::vector<Sample>> MeasureInTurn(const std::vector<Contender>& contenders,
                                               const TokenShape& shape, const Effort& effort) {
  std::vector<std::vector<Sample>> samples(contenders.size());
  for (const Contender& contender : contenders) Command(contender, WarmUp(contender, shape));
  for (int64_t round = 0; round < effort.rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const size_t turn = (i + static_cast<size_t>(round)) % contenders.size();
      samples[turn].push_back(MeasureOnce(contenders[turn], shape, effort.seconds_per_row));
    }
  }
  return samples;
}

}  // namespace cpshard::bench
