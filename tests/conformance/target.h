// Where ShardBatch is called: in this process, or in a server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "tests/conformance/answer.h"

namespace cpshard::conformance {

struct ShardCall {
  Batch batch;
  std::string options;             // the JSON form of ShardingOptions
  std::optional<int64_t> cp_size;  // absent = no mesh
};

struct Target {
  bool on_wire = false;
  std::shared_ptr<Executor> executor;             // of verbs of the library; none on the wire
  std::function<Answer(const ShardCall&)> shard;  // all ranks
};

// The ranks of a result, without what only this library tells.
std::vector<RankAnswer> AnswersOf(ShardResult result);

// Everything in this process, by `executor`, over pageable memory.
Target InProcess(std::shared_ptr<Executor> executor);

}  // namespace cpshard::conformance
