// Has a server shard the batch: shard_there ADDRESS.
#include <cstdio>

#include "client/client.h"
#include "print.h"
#include "proto/options.h"
#include "tokens.h"

namespace {

absl::Status Run(const char* address) {
  cpshard::BufferPool pool;
  const auto options = cpshard::Options::FromJson(R"({"round_robin": {}})");
  if (!options.ok()) return options.status();
  const auto client = cpshard::Client::Connect(address);
  if (!client.ok()) return client.status();
  const auto result = (*client)->ShardBatch(Tokens(pool), *options, /*cp_size=*/2, /*ranks=*/{});
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
