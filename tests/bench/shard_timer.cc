// cpshard_shard_timer: cpshard's half of the comparison with the reference (tests/parity/
// bench_reference.py, which starts it). One JSON request a line:
//   {"batch": FILE, "options": {...}, "cp_size": 8, "repeat": 5}
// It reads the batch, shards it in process for all ranks, once and then `repeat` times more, on one
// thread, and answers with one line: processor seconds per call of the plan alone and of everything
// (checks, plan, shards, giving the memory back); the bytes of all shards; rank 0's shapes.
#include <malloc.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "client/safetensors.h"
#include "core/exec/shard.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"
#include "tests/bench/measure.h"

namespace cpshard::bench {
namespace {

using Json = nlohmann::ordered_json;

double SecondsPerCall(const std::function<void()>& run, int repeat) {
  return Interleave({{"", run}}, /*rounds=*/1, repeat)[0][0];
}

int64_t BytesOf(const ShardResult& result) {
  int64_t bytes = 0;
  for (const RankShard& shard : result.shards) {
    for (size_t i = 0; i < shard.batch.tensors.size(); ++i) {
      const bool once = shard.cuts[i].extent != Extent::kLocal;
      if (!once || shard.layout.cp_rank == 0) bytes += shard.batch.tensors[i].buffer.size();
    }
  }
  return bytes;
}

// As ShardBatch, without the report: the reference counts nothing in its sharders either.
absl::StatusOr<ShardResult> Shard(const Sharder& sharder, const Batch& batch, int64_t cp_size,
                                  const Limits& limits, Executor& executor, BufferPool& pool) {
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(SpecOf(batch, cp_size), limits));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks, ResolveRanks({}, cp_size));
  CPSHARD_ASSIGN_OR_RETURN(const ShardPlan plan, PlanBatch(sharder, batch, cp_size));
  CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan, ranks, limits).status());
  CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan, ranks, limits).status());
  return MakeShards(plan, batch, ranks, executor, pool);
}

absl::StatusOr<Json> Measure(const Json& request, Executor& executor, BufferPool& pool) {
  const Limits limits;
  const int64_t cp_size = request.at("cp_size");
  const int repeat = request.at("repeat");
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(request.at("options").dump()));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, ReadBatch(request.at("batch"), limits, pool));

  const auto shard = [&] { return Shard(sharder, batch, cp_size, limits, executor, pool); };
  Json answer;
  {
    CPSHARD_ASSIGN_OR_RETURN(const ShardResult result, shard());
    answer["bytes"] = BytesOf(result);
    for (const Tensor& tensor : result.shards.front().batch.tensors) {
      answer["shapes"][tensor.spec.name] = tensor.spec.dims;
    }
  }
  answer["plan"] = SecondsPerCall([&] { Keep(PlanBatch(sharder, batch, cp_size)); }, repeat);
  answer["all"] = SecondsPerCall([&] { Keep(shard()); }, repeat);
  return answer;
}

void Serve() {
  const auto executor = MakeCpuExecutor();
  BufferPool pool;
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::StatusOr<Json> answer = Measure(Json::parse(line), *executor, pool);
    const Json sent =
        answer.ok() ? *answer : Json{{"error", std::string(answer.status().message())}};
    std::cout << sent.dump() << std::endl;
  }
}

}  // namespace
}  // namespace cpshard::bench

int main() {
  // As cpshardd, and as the reference beside it: freed memory is kept.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  try {
    cpshard::bench::Serve();
  } catch (const nlohmann::json::exception& error) {
    std::fprintf(stderr, "error: not a request: %s\n", error.what());
    return 1;
  }
  return 0;
}
