#include "client/pending_batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace cpshard {
namespace {

ShardResult ResultOf(int64_t shards) {
  ShardResult result;
  result.shards.resize(shards);
  return result;
}

TEST(PendingBatch, EveryWaiterGetsTheAnswer) {
  PendingBatch batch;
  std::vector<std::thread> waiters;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] { right += batch.Wait().value().shards.size() == 3; });
  }
  EXPECT_FALSE(batch.done());
  batch.Resolve(ResultOf(3));
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(right, 4);
  EXPECT_TRUE(batch.done());
}

TEST(PendingBatch, TheFirstAnswerStays) {
  PendingBatch batch;
  batch.Resolve(absl::CancelledError("given up"));
  batch.Resolve(ResultOf(1));
  EXPECT_EQ(batch.Wait().status(), absl::CancelledError("given up"));
  EXPECT_EQ(batch.Wait().status(), absl::CancelledError("given up"));
}

TEST(PendingBatch, CancelAsksTheStreamWhileThereIsNoAnswer) {
  int asked = 0;
  PendingBatch batch([&] { ++asked; });
  batch.Cancel();
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(batch.done());  // the stream has the word
  batch.Resolve(absl::CancelledError());
  batch.Cancel();
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace cpshard
