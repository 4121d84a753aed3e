#include "server/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

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
  const absl::Status refused = pool.Submit([&done] { ++done; });
  go.Notify();
  pool.Close();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const auto details = DetailsOf(refused);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, "BUSY");
  EXPECT_GT(details->retry_after, absl::ZeroDuration());
  EXPECT_EQ(done, 2);
}

TEST(WorkerPool, RefusesWorkOnceClosed) {
  WorkerPool pool(1, 2);
  pool.Close();
  const absl::Status refused = pool.Submit([] {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  const auto details = DetailsOf(refused);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, "DRAINING");
  EXPECT_GT(details->retry_after, absl::ZeroDuration());
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
