#include "tests/conformance/target.h"

#include <utility>
#include <vector>

#include "core/batch/buffer.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"

namespace cpshard::conformance {

std::vector<RankAnswer> AnswersOf(ShardResult result) {
  std::vector<RankAnswer> answers;
  for (RankShard& shard : result.shards) {
    answers.push_back({std::move(shard.batch), std::move(shard.layout)});
  }
  return answers;
}

Target InProcess(std::shared_ptr<Executor> executor) {
  auto pool = std::make_shared<BufferPool>();
  const auto shard = [executor, pool](const ShardCall& call) -> Answer {
    CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(call.options));
    CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
    CPSHARD_ASSIGN_OR_RETURN(ShardResult result, ShardBatch(sharder, call.batch, call.cp_size, {},
                                                            Limits{}, *executor, *pool));
    return AnswersOf(std::move(result));
  };
  return {.on_wire = false, .executor = executor, .shard = shard};
}

}  // namespace cpshard::conformance
