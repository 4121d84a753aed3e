// Shards a batch in process: neither gRPC nor Protocol Buffers are linked.
#include <cstdio>

#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "core/plan/layouts.h"
#include "print.h"
#include "tokens.h"

int main() {
  cpshard::BufferPool pool;
  const auto executor = cpshard::MakeCpuExecutor();
  const auto result = cpshard::ShardBatch(cpshard::RoundRobin({}, {}), Tokens(pool), /*cp_size=*/2,
                                          /*ranks=*/{}, cpshard::Limits(), *executor, pool);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  PrintIds(*result);
  return 0;
}
