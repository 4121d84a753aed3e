// A place on a device: tests/gpu/stand_in.cc stands for it, which reaches memory of its pools
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/exec/place.h"
#include "core/exec/shard.h"
#include "tests/exec/batches.h"
#include "tests/exec/random_plan.h"

namespace cpshard {
namespace {

TEST(PlaceOnDevice, AutoAndCudaAreTheDeviceAndTheReasonNamesIt) {
  for (const ExecutorKind kind : {ExecutorKind::kAuto, ExecutorKind::kCuda}) {
    const absl::StatusOr<Place> place = MakePlace({.executor = kind, .pinned_bytes = 1 << 20});
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->executor->name(), "cuda:0");
    EXPECT_THAT(place->reason, testing::HasSubstr("stand-in"));
    ASSERT_NE(place->blocks, nullptr);
    EXPECT_EQ(place->blocks->stats().pinned_bytes, 1 << 20);
  }
}

TEST(PlaceOnDevice, WithoutPinnedBytesBatchesLieInOrdinaryMemory) {
  const absl::StatusOr<Place> place = MakePlace({.pinned_bytes = 0});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->executor->name(), "cuda:0");
  EXPECT_EQ(place->blocks, nullptr);
}

TEST(PlaceOnDevice, MemoryThatDoesNotGoRoundIsRefusedWithTheNumbers) {
  for (const ExecutorKind kind : {ExecutorKind::kAuto, ExecutorKind::kCuda}) {
    for (const int64_t bytes : {int64_t{0}, int64_t{3}, (int64_t{4} << 20) - 1}) {
      const absl::Status status =
          MakePlace({.executor = kind, .cuda_memory_bytes = bytes, .runs_at_once = 4}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  testing::AllOf(testing::HasSubstr("cuda_memory_bytes " + std::to_string(bytes)),
                                 testing::HasSubstr("4 Runs"), testing::HasSubstr("1048576")));
    }
    EXPECT_TRUE(
        MakePlace({.executor = kind, .cuda_memory_bytes = 4 << 20, .runs_at_once = 4}).ok());
  }
}

TEST(PlaceOnDevice, EveryExecutorIsTriedOutWithTheBlocksAndWhatThatSaysIsNeverAReasonForTheCpu) {
  PlaceOptions options = {.pinned_bytes = 1 << 20, .runs_at_once = 3};
  std::set<Executor*> tried;
  options.try_out = [&](Executor& executor, const std::shared_ptr<PinnedBlocks>& blocks) {
    EXPECT_NE(blocks, nullptr);
    tried.insert(&executor);
    return tried.size() < 3 ? absl::OkStatus() : absl::InternalError("the third one is wrong");
  };
  for (const ExecutorKind kind : {ExecutorKind::kAuto, ExecutorKind::kCuda}) {
    tried.clear();
    options.executor = kind;
    EXPECT_EQ(MakePlace(options).status(), absl::InternalError("the third one is wrong"));
    EXPECT_EQ(tried.size(), 3u);
  }
}

// The pool is so small that some of the batches and shards are not pinned.
TEST(PlaceOnDevice, ShardsFromSeveralThreadsAreTheCpus) {
  PlaceOptions options;
  options.cuda_memory_bytes = 3 << 20;
  options.pinned_bytes = 256 << 10;
  options.runs_at_once = 3;
  const absl::StatusOr<Place> place = MakePlace(options);
  ASSERT_TRUE(place.ok()) << place.status();
  BufferPool pinned({.blocks = place->blocks});
  const std::unique_ptr<Executor> cpu = MakeCpuExecutor();
  BufferPool pool;
  const auto work = [&](uint32_t first) {
    for (uint32_t seed = first; seed < first + 50; ++seed) {
      RandomPlan random(seed);
      for (Tensor& tensor : random.batch.tensors) {
        const Buffer copy = pinned.Allocate(tensor.buffer.size()).value();
        if (copy.size() > 0) std::memcpy(copy.data(), tensor.buffer.data(), copy.size());
        tensor.buffer = copy;
      }
      std::vector<int64_t> ranks(random.plan.cp_size.value());
      for (size_t k = 0; k < ranks.size(); ++k) ranks[k] = static_cast<int64_t>(k);
      const auto expected = MakeShards(random.plan, random.batch, ranks, *cpu, pool);
      const auto actual = MakeShards(random.plan, random.batch, ranks, *place->executor, pinned);
      ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
      EXPECT_EQ(actual->executor, "cuda:0");
      for (size_t k = 0; k < ranks.size(); ++k) {
        const std::vector<Tensor>& tensors = actual->shards[k].batch.tensors;
        for (size_t s = 0; s < tensors.size(); ++s) {
          ASSERT_EQ(BytesOf(tensors[s]), BytesOf(expected->shards[k].batch.tensors[s]))
              << tensors[s].spec.name << " of rank " << ranks[k] << ", seed " << seed;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 5; ++i) threads.emplace_back(work, 50 * i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(place->blocks->stats().pinned_bytes_out, 0);
}

}  // namespace
}  // namespace cpshard
