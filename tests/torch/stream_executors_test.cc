// Executors of streams: made, kept, let go. A fake stands for a device.
#include "core/torch/stream_executors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes what becomes of executors, which are named by their streams.
struct Log {
  std::vector<std::string> made, gone;
  std::function<absl::Status()> run;        // what a Run does; nothing: it is OK
  absl::Status refusal = absl::OkStatus();  // of who makes them

  StreamExecutors::Make Maker() {
    return [this](const DeviceStream& stream) -> absl::StatusOr<std::unique_ptr<Executor>> {
      if (!refusal.ok()) return refusal;
      made.push_back(absl::StrCat(stream.device, "/", reinterpret_cast<uintptr_t>(stream.handle)));
      return std::make_unique<Fake>(*this, made.back());
    };
  }

  struct Fake : Executor {
    Fake(Log& log, std::string name) : log(log), text(std::move(name)) {}
    ~Fake() override { log.gone.push_back(text); }
    absl::Status Run(absl::Span<const Task>) override {
      return log.run ? log.run() : absl::OkStatus();
    }
    absl::string_view name() const override { return text; }
    Log& log;
    const std::string text;
  };
};

DeviceStream Stream(int device, uintptr_t handle) {
  return {device, reinterpret_cast<void*>(handle)};
}

TEST(StreamExecutors, EveryStreamOfEveryDeviceHasOneOfItsOwn) {
  Log log;
  StreamExecutors executors(log.Maker());
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_TRUE(executors.Run(Stream(0, 0), {}).ok());
    EXPECT_TRUE(executors.Run(Stream(0, 5), {}).ok());
    EXPECT_TRUE(executors.Run(Stream(1, 5), {}).ok());
  }
  EXPECT_THAT(log.made, ElementsAre("0/0", "0/5", "1/5"));
  EXPECT_THAT(log.gone, IsEmpty());
}

TEST(StreamExecutors, AnExecutorThatCannotBeMadeIsAskedForAgain) {
  Log log;
  StreamExecutors executors(log.Maker());
  log.refusal = absl::ResourceExhaustedError("no memory");
  EXPECT_EQ(executors.Run(Stream(0, 0), {}), log.refusal);
  log.refusal = absl::OkStatus();
  EXPECT_TRUE(executors.Run(Stream(0, 0), {}).ok());
}

TEST(StreamExecutors, OneThatFailedInsideIsMadeAnewAndOneThatRefusedIsNot) {
  Log log;
  StreamExecutors executors(log.Maker());
  for (const absl::Status& status :
       {absl::InvalidArgumentError("another device"), absl::FailedPreconditionError("a capture")}) {
    log.run = [&] { return status; };
    EXPECT_EQ(executors.Run(Stream(0, 0), {}), status);
  }
  EXPECT_THAT(log.gone, IsEmpty());
  log.run = [] { return absl::InternalError("a launch"); };
  EXPECT_EQ(executors.Run(Stream(0, 0), {}), absl::InternalError("a launch"));
  EXPECT_THAT(log.gone, ElementsAre("0/0"));
  log.run = nullptr;
  EXPECT_TRUE(executors.Run(Stream(0, 0), {}).ok());
  EXPECT_THAT(log.made, ElementsAre("0/0", "0/0"));
}

TEST(StreamExecutors, TheOneThatWasUsedLongestAgoGoes) {
  Log log;
  StreamExecutors executors(log.Maker(), /*most=*/2);
  for (const uintptr_t handle : {1, 2, 1, 3}) {
    EXPECT_TRUE(executors.Run(Stream(0, handle), {}).ok());
  }
  EXPECT_THAT(log.gone, ElementsAre("0/2"));
  EXPECT_TRUE(executors.Run(Stream(0, 2), {}).ok());
  EXPECT_THAT(log.gone, ElementsAre("0/2", "0/1"));
}

TEST(StreamExecutors, NoneGoesThatIsInUse) {
  Log log;
  absl::Notification entered, go_on;
  log.run = [&] {
    if (!entered.HasBeenNotified()) {
      entered.Notify();
      go_on.WaitForNotification();
    }
    return absl::OkStatus();
  };
  StreamExecutors executors(log.Maker(), /*most=*/1);
  absl::Status status = absl::UnknownError("");
  std::thread busy([&] { status = executors.Run(Stream(0, 1), {}); });
  entered.WaitForNotification();
  EXPECT_TRUE(executors.Run(Stream(0, 2), {}).ok());  // meanwhile
  EXPECT_THAT(log.gone, IsEmpty());
  go_on.Notify();
  busy.join();
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(log.gone, ElementsAre("0/1"));
}

}  // namespace
}  // namespace cpshard
