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
#include "tests/bench/packed.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kColdBytes = 256 * kMiB;  // touched before a buffer is used again

// A stream to be copied as a whole, for the anchors.
struct CopyOfStream {
  Buffer source, dest;
};

// One batch and the places its bytes go to, all of it resident.
struct Buffers {
  Batch batch;
  std::vector<CopyOfStream> copies;  // as many bytes as the shards of all ranks
  std::vector<Buffer> shards;        // per rank
  std::vector<std::byte*> dests;
};

Buffer Resident(size_t size, int value, BufferPool& pool) {
  Buffer buffer = pool.Allocate(size).value();
  std::memset(buffer.data(), value, size);
  return buffer;
}

int64_t BytesOfAllRanks(const ShardPlan& plan, const StreamPlan& stream) {
  if (stream.extent != Extent::kLocal) return 0;  // a few boundaries, once
  int64_t bytes = 0;
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    bytes += NumBytes(OutputSpec(plan, stream, rank));
  }
  return bytes;
}

// The shards as MakeShards lays them: one block a rank, its streams 64-byte-aligned windows on it.
void AddShards(const ShardPlan& plan, Buffers& buffers, BufferPool& pool) {
  const int64_t ranks = plan.num_ranks();
  buffers.dests.resize(plan.streams.size() * ranks, nullptr);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<int64_t> offsets;
    int64_t size = 0;
    for (const StreamPlan& stream : plan.streams) {
      offsets.push_back(size);
      size += AlignUp(NumBytes(OutputSpec(plan, stream, rank)));
    }
    buffers.shards.push_back(Resident(size, 0, pool));
    for (size_t s = 0; s < offsets.size(); ++s) {
      const bool wanted = plan.streams[s].extent == Extent::kLocal || rank == 0;
      if (wanted) buffers.dests[s * ranks + rank] = buffers.shards.back().data() + offsets[s];
    }
  }
}

Buffers MakeBuffers(const ShardPlan& plan, const BatchSpec& spec, BufferPool& pool) {
  Buffers buffers;
  for (const TensorSpec& tensor : spec.tensors) {
    buffers.batch.tensors.push_back({tensor, Resident(NumBytes(tensor), 1, pool)});
  }
  for (const StreamPlan& stream : plan.streams) {
    const int64_t bytes = BytesOfAllRanks(plan, stream);
    const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
    const Buffer source =
        view != nullptr ? buffers.batch.FindTensor(view->source)->buffer : Resident(bytes, 1, pool);
    if (bytes > 0) buffers.copies.push_back({source, Resident(bytes, 0, pool)});
  }
  AddShards(plan, buffers, pool);
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
  for (const CopyOfStream& stream : buffers.copies) {
    copy(stream.dest.data(), stream.source.data(), stream.dest.size());
  }
}

void WriteAllRanks(const ShardPlan& plan, const Buffers& buffers, Executor& executor,
                   BufferPool& pool) {
  std::vector<int64_t> ranks(plan.num_ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  Keep(WriteShards(plan, buffers.batch, ranks, buffers.dests, executor, pool));
}

void WriteRankByRank(const ShardPlan& plan, const Buffers& buffers, Executor& executor,
                     BufferPool& pool) {
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    std::vector<std::byte*> dests;
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      dests.push_back(buffers.dests[s * plan.num_ranks() + rank]);
    }
    Keep(WriteShards(plan, buffers.batch, {rank}, dests, executor, pool));
  }
}

// `goals`: of the source-order pass.
void AddCase(const ShardPlan& plan, const BatchSpec& spec, const std::string& what,
             const std::vector<Goal>& goals, int rounds, Table& table) {
  int64_t batch_bytes = 0;
  for (const StreamPlan& stream : plan.streams) batch_bytes += BytesOfAllRanks(plan, stream);
  BufferPool pool;
  Rotation rotation(plan, spec, batch_bytes, pool);
  const auto executor = MakeCpuExecutor();
  const auto caching = MakeCpuExecutor({.stream_total_bytes = std::numeric_limits<int64_t>::max()});

  const std::vector<Subject> subjects = {
      {"memcpy", [&] { CopyStreams(rotation.Next(), std::memcpy); }},
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
  const std::string group = absl::StrFormat("%.1f MB %s", batch_bytes / 1e6, what);
  for (size_t i = 0; i < subjects.size(); ++i) {
    Row row{group, subjects[i].name, StatsOf(Rates(batch_bytes / 1e9, seconds[i])), "GB/s"};
    if (i != 0) {
      row.anchor = subjects[0].name;
      row.of_anchor = StatsOf(Quotients(seconds[0], seconds[i]));
    }
    if (i > 1) row.of_stream_copy = StatsOf(Quotients(seconds[1], seconds[i]));
    if (i == 2) row.goals = goals;
    table.Add(std::move(row));
  }
}

// `run_bytes` of an int64 stream in round robin, a batch of about `bytes`.
void AddRoundRobin(int64_t run_bytes, int64_t bytes, int rounds, Table& table) {
  const int64_t columns = run_bytes / 8 * 2 * kRanks;
  const int64_t rows = std::max<int64_t>(1, (bytes + columns * 25 / 2) / (columns * 25));
  const BatchSpec spec = TokenBatch(rows, columns);
  AddCase(RoundRobin({}).Plan(spec, {}).value(), spec,
          absl::StrFormat("[%d, %d], runs of %d B", rows, columns, run_bytes),
          run_bytes >= 8192 ? std::vector<Goal>{OfAnchorAtLeast(0.9)} : std::vector<Goal>(), rounds,
          table);
}

// Packed documents of so many tokens on average, at cp_size 4: 29 bytes a token come out, as
// input_ids, labels, position_ids (int64), padding_mask (bool), local indices (int32).
void AddPacked(int64_t mean_tokens, int64_t bytes, int rounds, Table& table) {
  constexpr int64_t kPackedRanks = 4;
  const int64_t documents = bytes / 29 / mean_tokens;
  const int64_t tokens = documents * mean_tokens / (2 * kPackedRanks) * (2 * kPackedRanks);
  const PackedBatch packed(tokens, documents, kPackedRanks);
  AddCase(Thd({}).Plan(packed.spec(), packed.values()).value(), packed.spec(),
          absl::StrFormat("thd, documents of %d", mean_tokens),
          mean_tokens == 800 ? std::vector<Goal>{OfAnchorAtLeast(0.5)} : std::vector<Goal>(),
          rounds, table);
}

}  // namespace

void AddExecutorRows(int rounds, Table& table) {
  for (const int64_t bytes : {16 * kMiB, 128 * kMiB}) {
    for (const int64_t run_bytes : {131072, 8192, 600}) {
      AddRoundRobin(run_bytes, bytes, rounds, table);
    }
  }
}

void AddPackedExecutorRows(int rounds, Table& table) {
  for (const int64_t mean_tokens : {100, 200, 400, 800, 3200, 12800}) {
    AddPacked(mean_tokens, 16 * kMiB, rounds, table);
  }
  AddPacked(800, 128 * kMiB, rounds, table);
}

}  // namespace cpshard::bench
