#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/exec/copy.h"
#include "core/exec/shard.h"
#include "core/plan/layouts.h"
#include "tests/bench/bench.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kColdBytes = 256 * kMiB;  // touched before a buffer is used again

// One batch and the places its bytes go to, all of it resident.
struct Buffers {
  Batch batch;
  std::vector<Buffer> copies;  // per stream: of the whole stream, for the anchors
  std::vector<Buffer> shards;  // per rank
  std::vector<std::byte*> dests;
};

Buffer Resident(size_t size, int value, BufferPool& pool) {
  Buffer buffer = pool.Allocate(size).value();
  std::memset(buffer.data(), value, size);
  return buffer;
}

Buffers MakeBuffers(const ShardPlan& plan, const BatchSpec& spec, BufferPool& pool) {
  Buffers buffers;
  for (const TensorSpec& tensor : spec.tensors) {
    buffers.batch.tensors.push_back({tensor, Resident(NumBytes(tensor), 1, pool)});
    buffers.copies.push_back(Resident(NumBytes(tensor), 0, pool));
  }
  // As MakeShards lays them: one block a rank, its streams 64-byte-aligned windows on it.
  buffers.dests.resize(plan.streams.size() * kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<size_t> offsets;
    size_t size = 0;
    for (const StreamPlan& stream : plan.streams) {
      offsets.push_back(size);
      size += (NumBytes(OutputSpec(plan, stream, rank)) + 63) / 64 * 64;
    }
    buffers.shards.push_back(Resident(size, 0, pool));
    for (size_t s = 0; s < offsets.size(); ++s) {
      buffers.dests[s * kRanks + rank] = buffers.shards.back().data() + offsets[s];
    }
  }
  return buffers;
}

// Hands the buffers out in turn, so that each is cold when its turn comes.
class Rotation {
 public:
  Rotation(const ShardPlan& plan, const BatchSpec& spec, int64_t batch_bytes, BufferPool& pool) {
    const int64_t count = kColdBytes / (2 * batch_bytes) + 2;
    for (int64_t i = 0; i < count; ++i) all_.push_back(MakeBuffers(plan, spec, pool));
  }
  const Buffers& Next() { return all_[next_++ % all_.size()]; }

 private:
  std::vector<Buffers> all_;
  size_t next_ = 0;
};

template <typename Copy>
void CopyStreams(const Buffers& buffers, Copy copy) {
  for (size_t i = 0; i < buffers.copies.size(); ++i) {
    const Buffer& source = buffers.batch.tensors[i].buffer;
    copy(buffers.copies[i].data(), source.data(), source.size());
  }
}

void WriteAllRanks(const ShardPlan& plan, const Buffers& buffers, Executor& executor,
                   BufferPool& pool) {
  std::vector<int64_t> ranks(kRanks);
  std::iota(ranks.begin(), ranks.end(), 0);
  Keep(WriteShards(plan, buffers.batch, ranks, buffers.dests, executor, pool));
}

void WriteRankByRank(const ShardPlan& plan, const Buffers& buffers, Executor& executor,
                     BufferPool& pool) {
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<std::byte*> dests;
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      dests.push_back(buffers.dests[s * kRanks + rank]);
    }
    Keep(WriteShards(plan, buffers.batch, {rank}, dests, executor, pool));
  }
}

// `run_bytes` of an int64 stream in round robin, a batch of about `bytes`.
void AddCase(int64_t run_bytes, int64_t bytes, int rounds, Table& table) {
  const int64_t columns = run_bytes / 8 * 2 * kRanks;
  const int64_t rows = std::max<int64_t>(1, (bytes + columns * 25 / 2) / (columns * 25));
  const int64_t batch_bytes = rows * columns * 25;
  const BatchSpec spec = TokenBatch(rows, columns);
  const ShardPlan plan = RoundRobin({}).Plan(spec, {}).value();
  BufferPool pool;
  Rotation rotation(plan, spec, batch_bytes, pool);
  const auto executor = MakeCpuExecutor();
  const auto caching = MakeCpuExecutor({.stream_total_bytes = std::numeric_limits<int64_t>::max()});

  const std::vector<Subject> subjects = {
      {"memcpy (anchor)", [&] { CopyStreams(rotation.Next(), std::memcpy); }},
      {"StreamCopy",
       [&] {
         CopyStreams(rotation.Next(), StreamCopy);
         StreamCopyFence();
       }},
      {"all ranks, source order", [&] { WriteAllRanks(plan, rotation.Next(), *executor, pool); }},
      {"rank by rank", [&] { WriteRankByRank(plan, rotation.Next(), *executor, pool); }},
      {"all ranks, no streaming stores",
       [&] { WriteAllRanks(plan, rotation.Next(), *caching, pool); }},
  };
  const int repeat = static_cast<int>(kColdBytes / batch_bytes) + 1;
  const auto seconds = Interleave(subjects, rounds, repeat);
  const std::string group = absl::StrFormat("%.1f MB [%d, %d], runs of %d B", batch_bytes / 1e6,
                                            rows, columns, run_bytes);
  for (size_t i = 0; i < subjects.size(); ++i) {
    Row row{group, subjects[i].name, StatsOf(Rates(batch_bytes / 1e9, seconds[i])), "GB/s"};
    if (i != 0) row.of_anchor = StatsOf(Quotients(seconds[0], seconds[i]));
    if (i > 1) row.of_stream_copy = StatsOf(Quotients(seconds[1], seconds[i]));
    if (i == 2 && run_bytes >= 8192) row.goal = ">= 0.9 of memcpy";
    table.Add(std::move(row));
  }
}

}  // namespace

void AddExecutorRows(int rounds, Table& table) {
  for (const int64_t bytes : {16 * kMiB, 128 * kMiB}) {
    for (const int64_t run_bytes : {131072, 8192, 600}) AddCase(run_bytes, bytes, rounds, table);
  }
}

}  // namespace cpshard::bench
