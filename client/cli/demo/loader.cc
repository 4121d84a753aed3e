#include "client/cli/demo/loader.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/demo/check.h"
#include "client/cli/demo/line.h"
#include "client/cli/demo/pack.h"
#include "client/cli/demo/report.h"
#include "client/cli/demo/text.h"
#include "client/shard_stream.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Write(int out, const LoaderLine& line) { return WriteLine(out, ToLine(line)); }

absl::StatusOr<DemoLayout> FindLayout(const std::string& name) {
  for (DemoLayout& layout : Layouts()) {
    if (layout.name == name) return std::move(layout);
  }
  return absl::InvalidArgumentError(absl::StrCat("the demo has no layout '", name, "'"));
}

// A small share is cut into rounds too, so that a kill half-way is one.
int64_t RoundSize(const LoaderTask& task) {
  const int64_t share = (task.batches + task.loaders - 1) / task.loaders;
  return std::clamp<int64_t>((share + 3) / 4, 1, kMaxInFlight);
}

// Real tokens of every rank: those that the mask does not call padding.
void CountTokens(const std::vector<RankShard>& shards, BatchReport& report) {
  report.tokens_of_rank.assign(shards.size(), 0);
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const Tensor* mask = shards[rank].batch.FindTensor("padding_mask");
    if (mask == nullptr) continue;
    report.columns += static_cast<int64_t>(mask->buffer.size());
    for (std::byte pad : mask->bytes()) {
      report.tokens_of_rank[rank] += pad == std::byte{0} ? 1 : 0;
    }
  }
}

class Loader {
 public:
  Loader(DemoLayout layout, Options options, ShardStream& stream, const Packing& packing, int out)
      : layout_(std::move(layout)),
        options_(std::move(options)),
        stream_(stream),
        packing_(packing),
        out_(out) {}

  absl::Status RunRound(const std::vector<int64_t>& indices) {
    std::vector<PackedBatch> batches;
    for (int64_t index : indices) {
      CPSHARD_ASSIGN_OR_RETURN(PackedBatch batch, packing_.Make(index, pool_));
      batches.push_back(std::move(batch));
    }
    const Clock::time_point begin = Clock::now();
    CPSHARD_ASSIGN_OR_RETURN(const std::vector<ShardResult> results, Stream(indices, batches));
    const std::chrono::duration<double> taken = Clock::now() - begin;
    for (size_t i = 0; i < indices.size(); ++i) {
      BatchReport report = Check(batches[i], results[i].shards);
      report.batch = indices[i];
      report.seconds = taken.count() / static_cast<double>(indices.size());
      CPSHARD_RETURN_IF_ERROR(Write(out_, std::move(report)));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<ShardResult>> Stream(const std::vector<int64_t>& indices,
                                                  const std::vector<PackedBatch>& batches) {
    std::vector<PendingShards> pending;
    for (const PackedBatch& packed : batches) {
      pending.push_back(stream_.Submit(packed.batch, options_, kCpSize));
    }
    CPSHARD_RETURN_IF_ERROR(Write(out_, RoundBegun{static_cast<int64_t>(pending.size())}));
    std::vector<ShardResult> results;
    for (size_t i = 0; i < pending.size(); ++i) {
      absl::StatusOr<ShardResult> result = pending[i].Wait();
      if (!result.ok()) {
        return absl::Status(result.status().code(),
                            absl::StrCat("batch ", indices[i], ": ", result.status().message()));
      }
      results.push_back(*std::move(result));
    }
    return results;
  }

  BatchReport Check(const PackedBatch& packed, const std::vector<RankShard>& shards) {
    BatchReport report{.layout = layout_.name, .real_tokens = packed.real_tokens};
    for (const Tensor& tensor : packed.batch.tensors) {
      report.bytes += static_cast<int64_t>(tensor.buffer.size());
    }
    CountTokens(shards, report);
    report.difference = DifferenceFromContract(packed.batch, layout_.restated, kCpSize, shards);
    for (const Tensor& expected : packed.expected) {
      std::string text = DifferenceAfterGather(expected, shards, *executor_, pool_);
      if (text.empty()) report.equal.push_back(expected.spec.name);
      if (report.difference.empty()) report.difference = std::move(text);
    }
    return report;
  }

  const DemoLayout layout_;
  const Options options_;
  ShardStream& stream_;
  const Packing& packing_;
  const int out_;
  const std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
  BufferPool pool_;
};

}  // namespace

absl::Status RunLoader(const LoaderTask& task, int out) {
  CPSHARD_ASSIGN_OR_RETURN(DemoLayout layout, FindLayout(task.layout));
  CPSHARD_ASSIGN_OR_RETURN(Options options, Options::FromJson(layout.options));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Document> documents,
                           ReadDocuments(task.files, task.max_bytes));
  const Packing packing(documents, layout.pack);
  if (packing.num_batches() != task.batches) {
    return absl::FailedPreconditionError(
        absl::StrCat("the text makes ", packing.num_batches(), " batches, it made ", task.batches,
                     " a moment ago; let no one change the files"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const auto stream,
                           ShardStream::Open(task.server, {.max_inflight_batches = kMaxInFlight}));
  Loader loader(std::move(layout), std::move(options), *stream, packing, out);
  const int64_t in_flight = RoundSize(task);
  std::vector<int64_t> round;
  int64_t next = task.loader + task.done * task.loaders;
  while (next < task.batches) {
    round.clear();
    for (; next < task.batches && static_cast<int64_t>(round.size()) < in_flight;
         next += task.loaders) {
      round.push_back(next);
    }
    CPSHARD_RETURN_IF_ERROR(loader.RunRound(round));
  }
  return absl::OkStatus();
}

}  // namespace cpshard::demo
