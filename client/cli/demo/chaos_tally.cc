#include "client/cli/demo/chaos_tally.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/shard.h"
#include "core/plan/status_macros.h"
#include "proto/options.h"

namespace cpshard::demo {

absl::StatusOr<std::vector<ExpectedStep>> ShardInProcess(const ChaosWork& work,
                                                         const ChaosBatches& batches) {
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(batches.layout().options));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  BufferPool pool;
  std::vector<ExpectedStep> all;
  for (int64_t number = 0; number < work.steps; ++number) {
    CPSHARD_ASSIGN_OR_RETURN(const ChaosBatches::Step step,
                             batches.Make({kTrain, 0, number}, pool));
    ExpectedStep expected{.shards = std::vector<std::vector<std::string>>(kCpSize)};
    for (const Batch& batch : step.microbatches) {
      CPSHARD_ASSIGN_OR_RETURN(const ShardResult result,
                               ShardBatch(sharder, batch, kCpSize, {}, Limits(), *executor, pool));
      expected.batches.push_back(NameOfDigest(DigestOf(batch)));
      for (int64_t rank = 0; rank < kCpSize; ++rank) {
        expected.shards[rank].push_back(NameOfDigest(DigestOf(result.shards[rank].batch)));
      }
    }
    all.push_back(std::move(expected));
  }
  return all;
}

ChaosTally::ChaosTally(std::vector<ExpectedStep> expected, int64_t ranks)
    : expected_(std::move(expected)), ranks_(ranks) {}

void ChaosTally::Add(int64_t rank, const ChaosLine& line) {
  if (line.event != kStep && line.event != kEnd) return;
  const std::string difference = Judge(ranks_[rank], rank, line);
  if (first_.empty()) first_ = difference;
}

std::string ChaosTally::Judge(Progress& progress, int64_t rank, const ChaosLine& line) const {
  const std::string name = absl::StrCat("rank ", rank, ", step ", line.at.step, ": ");
  const bool due =
      line.at.stream == kTrain && line.at.pass == 0 && line.at.step == progress.next_step;
  if (!due) return absl::StrCat(name, "step ", progress.next_step, " was to come");
  const bool is_end = line.event == kEnd;
  const bool should_end = line.at.step == static_cast<int64_t>(expected_.size());
  if (is_end != should_end) {
    return absl::StrCat(name,
                        is_end ? "is said to be the end, there are " : "is beyond the last of ",
                        expected_.size(), " steps");
  }
  if (is_end) return progress.ended = true, "";
  ++progress.next_step;
  const ExpectedStep& expected = expected_[line.at.step];
  if (!line.difference.empty()) return absl::StrCat(name, line.difference);
  if (line.batches != expected.batches) return absl::StrCat(name, "other batches than expected");
  if (line.shards != expected.shards[rank]) return absl::StrCat(name, "other bytes than expected");
  return "";
}

std::string ChaosTally::Difference() const {
  if (!first_.empty()) return first_;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].ended) continue;
    return absl::StrCat("rank ", rank, ": nothing came after ", ranks_[rank].next_step, " of ",
                        expected_.size(), " steps");
  }
  return "";
}

}  // namespace cpshard::demo
