// One row of the benchmark: batches of one size through one server address, several in flight.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/token_batch.h"
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"
#include "proto/options.h"
#include "proto/replies.h"

namespace cpshard::bench {

// Batches of one size and what has to come back for each.
struct Work {
  TokenShape shape;
  TokenBatches batches;
  Options options;
  int64_t cp_size = 1;
  ShardResult expected;      // made in process
  int64_t answer_bytes = 0;  // of the expected shards; what all ranks hold whole counts once
  double memcpy_bytes_per_second = 0;

  int64_t bytes() const { return shape.bytes() + answer_bytes; }  // there and back
};

// Batches rotate over memory that no cache holds, as the blocks of memcpy do. Errors of ShardBatch:
// options that do not take such a batch.
absl::StatusOr<Work> MakeWork(double bytes, const Options& options, int64_t cp_size,
                              BufferPool& pool);

struct Target {
  std::string address;
  std::optional<pid_t> server;  // when it is one of ours

  std::string transport() const;  // "unix" or "tcp"
};

struct Row {
  Target target;
  TokenShape shape;
  int64_t in_flight = 1;  // under way at the server, or to and from it
  int64_t batches = 0;
  int64_t reconnects = 0, resubmitted = 0;  // not 0: the figures are of something else, too
  double seconds = 0;                       // from the first Submit to the last answer
  double bytes_per_second = 0;              // to the server and back
  double tokens_per_second = 0;
  double p50_seconds = 0, p99_seconds = 0;  // from a batch's Submit to its answer
  double client_seconds_per_byte = 0;       // of processor time
  std::optional<double> server_seconds_per_byte;
  double memcpy_bytes_per_second = 0;
};

// How many of `asked` batches a stream with these limits has under way at a time, at least 1.
int64_t InFlight(int64_t asked, const TokenShape& shape, const StreamLimits& limits);

// Warms up with a batch for every place in flight, the first of which is compared with
// `work.expected`; then streams for about `seconds`. Precondition: InFlight allows `in_flight`.
// The server's status; Internal: the answer is wrong; Cancelled: target.server has ended.
absl::StatusOr<Row> MeasureRow(const Target& target, const Work& work, int64_t in_flight,
                               double seconds, ExecutorKind executor = ExecutorKind::kAuto);

// Whether two answers to one batch are the same, in words: empty = layouts, shapes and bytes are.
std::string DifferenceOf(const ShardResult& got, const ShardResult& want);

// The smallest sample that `share` of all samples do not exceed. Precondition: some sample.
double Percentile(std::vector<double> samples, double share);

}  // namespace cpshard::bench
