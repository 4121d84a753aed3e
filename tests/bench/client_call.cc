// cpshard_client_call ADDRESS BYTES CP_SIZE CALLS: what one ShardBatch of the C++ client takes, for
// tests/bench/python_client.py to compare with. Prints the median in microseconds and the columns
// of the batch, [4, columns].
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "client/cli/bench/token_batch.h"
#include "client/client.h"
#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

absl::Status Measure(const std::string& address, double bytes, int64_t cp_size, int calls) {
  CPSHARD_ASSIGN_OR_RETURN(const auto client, Client::Connect(address));
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(R"({"round_robin": {}})"));
  const TokenShape shape = TokenShape::For(bytes, cp_size);
  BufferPool pool;
  CPSHARD_ASSIGN_OR_RETURN(const TokenBatches batches,
                           TokenBatches::Make(shape, shape.bytes(), pool));
  std::vector<double> times;
  for (int i = 0; i < 2 * calls; ++i) {  // half of them to warm up
    const absl::Time begin = absl::Now();
    CPSHARD_RETURN_IF_ERROR(
        client->ShardBatch(batches.At(0), options, cp_size, /*ranks=*/{}).status());
    if (i >= calls) times.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin));
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  std::printf("%.1f %lld\n", times[calls / 2], static_cast<long long>(shape.columns));
  return absl::OkStatus();
}

}  // namespace
}  // namespace cpshard::bench

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: cpshard_client_call ADDRESS BYTES CP_SIZE CALLS\n");
    return 64;
  }
  const absl::Status status =
      cpshard::bench::Measure(argv[1], std::atof(argv[2]), std::atol(argv[3]), std::atoi(argv[4]));
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
