#include "server/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"

namespace cpshard {
namespace {

TEST(WorkerPool, RunsEverythingItTookBeforeItCloses) {
  std::atomic<int> done = 0;
  {
    WorkerPool pool(3, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(pool.Submit([&done] { ++done; }).ok());
  }
  EXPECT_EQ(done, 500);
}

TEST(WorkerPool, RefusesWorkBeyondItsQueueAndTakesItAgainLater) {
  WorkerPool pool(1, 2);
  absl::Notification begun, go;
  ASSERT_TRUE(pool.Submit([&] {
                    begun.Notify();
                    go.WaitForNotification();
                  })
                  .ok());
  begun.WaitForNotification();
  std::atomic<int> done = 0;
  EXPECT_TRUE(pool.Submit([&done] { ++done; }).ok());
  EXPECT_TRUE(pool.Submit([&done] { ++done; }).ok());
  EXPECT_EQ(pool.Submit([&done] { ++done; }).code(), absl::StatusCode::kResourceExhausted);
  go.Notify();
  pool.Close();
  EXPECT_EQ(done, 2);
}

TEST(WorkerPool, RefusesWorkOnceClosed) {
  WorkerPool pool(1, 2);
  pool.Close();
  EXPECT_EQ(pool.Submit([] {}).code(), absl::StatusCode::kUnavailable);
}

TEST(WorkerPool, PostedWorkDoesNotCountAgainstTheBound) {
  absl::Notification begun, go;
  std::atomic<int> done = 0;
  WorkerPool pool(1, 1);
  pool.Post([&] {
    begun.Notify();
    go.WaitForNotification();
  });
  begun.WaitForNotification();
  for (int i = 0; i < 5; ++i) pool.Post([&] { ++done; });
  EXPECT_TRUE(pool.Submit([&] { ++done; }).ok());
  EXPECT_EQ(pool.Submit([] {}).code(), absl::StatusCode::kResourceExhausted);
  go.Notify();
  pool.Close();
  EXPECT_EQ(done, 6);
}

}  // namespace
}  // namespace cpshard
