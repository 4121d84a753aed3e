// Shards a batch in process, where an executor that is asked for by name has its place:
// shard_at_a_place auto|cpu|cuda. The place goes to stderr.
#include <cstdio>

#include "core/exec/place.h"
#include "core/exec/shard.h"
#include "core/plan/layouts.h"
#include "print.h"
#include "tokens.h"

namespace {

absl::Status Run(const char* executor) {
  const auto kind = cpshard::ParseExecutorKind(executor);
  if (!kind.ok()) return kind.status();
  const auto place = cpshard::MakePlace({.executor = *kind, .pinned_bytes = 1 << 20});
  if (!place.ok()) return place.status();
  std::fprintf(stderr, "%s: %s\n", std::string(place->executor->name()).c_str(),
               place->reason.c_str());
  cpshard::BufferPool pool({.blocks = place->blocks});
  const auto result = cpshard::ShardBatch(cpshard::RoundRobin({}, {}), Tokens(pool), /*cp_size=*/2,
                                          /*ranks=*/{}, cpshard::Limits(), *place->executor, pool);
  if (!result.ok()) return result.status();
  PrintIds(*result);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const absl::Status status = Run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
