#include "tests/conformance/target.h"

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "client/client.h"
#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"

namespace cpshard::conformance {
namespace {

std::vector<RankAnswer> AnswersOf(ShardResult result) {
  std::vector<RankAnswer> answers;
  for (RankShard& shard : result.shards) {
    answers.push_back({std::move(shard.batch), std::move(shard.layout)});
  }
  return answers;
}

}  // namespace

Target InProcess() {
  std::shared_ptr<Executor> executor = MakeCpuExecutor();
  auto pool = std::make_shared<BufferPool>();
  return {.on_wire = false, .shard = [executor, pool](const ShardCall& call) -> Answer {
            CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(call.options));
            CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
            CPSHARD_ASSIGN_OR_RETURN(
                ShardResult result,
                ShardBatch(sharder, call.batch, call.cp_size, {}, Limits{}, *executor, *pool));
            return AnswersOf(std::move(result));
          }};
}

absl::StatusOr<Target> ThroughServer(absl::string_view address) {
  CPSHARD_ASSIGN_OR_RETURN(
      std::unique_ptr<Client> connected,
      Client::Connect(address, {.deadline = absl::Seconds(10), .wait_for_ready = true}));
  std::shared_ptr<Client> client = std::move(connected);
  CPSHARD_RETURN_IF_ERROR(client->GetServerInfo().status());
  return Target{.on_wire = true, .shard = [client](const ShardCall& call) -> Answer {
                  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(call.options));
                  CPSHARD_ASSIGN_OR_RETURN(
                      ShardResult result,
                      client->ShardBatch(call.batch, options, call.cp_size, {}));
                  return AnswersOf(std::move(result));
                }};
}

}  // namespace cpshard::conformance
