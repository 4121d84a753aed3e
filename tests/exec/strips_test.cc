#include "core/exec/device/strips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

absl::StatusOr<Access> Everything(const Interval&) { return Access::kInPlace; }

std::vector<size_t> StripsPerLaunch(const std::vector<Task>& tasks) {
  const absl::StatusOr<Strips> strips = StripsOf(tasks, Everything);
  EXPECT_TRUE(strips.ok()) << strips.status();
  std::vector<size_t> counts;
  for (const std::vector<Strip>& launch : strips->launches) counts.push_back(launch.size());
  return counts;
}

TEST(Strips, TasksThatHaveNothingToDoWithEachOtherAreOneLaunch) {
  std::vector<std::byte> a(10), b(10), c(10);
  EXPECT_THAT(StripsPerLaunch({CopyOf(a.data(), b.data(), 10), CopyOf(a.data(), c.data(), 10)}),
              testing::ElementsAre(2));
}

TEST(Strips, ATaskThatReadsWhatAnotherWritesIsOfTheNextLaunch) {
  std::vector<std::byte> a(10), b(10), c(10);
  EXPECT_THAT(StripsPerLaunch({CopyOf(a.data(), b.data(), 10), CopyOf(b.data(), c.data(), 10),
                               CopyOf(a.data() + 5, a.data(), 3)}),
              testing::ElementsAre(1, 2));
}

TEST(Strips, OfMovesThatOverlapTheEarlierLoseWhatTheLaterWrite) {
  std::vector<std::byte> source(100), dest(100);
  CutTask task = CopyOf(source.data(), dest.data(), 30);
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, 0, 0, 30, 0},
                       {Move::Kind::kCopy, 0, 0, 50, 10, 5, 0},
                       {Move::Kind::kFill, 0, 0, 0, 14, 4, 0}}});
  const absl::StatusOr<Strips> strips = StripsOf(std::vector<Task>{task}, Everything);
  ASSERT_TRUE(strips.ok());
  std::vector<std::pair<int64_t, int64_t>> written;  // begin, size
  for (const Strip& strip : strips->launches.at(0)) {
    written.emplace_back(strip.dest - reinterpret_cast<uintptr_t>(dest.data()), strip.size);
  }
  EXPECT_THAT(written, testing::UnorderedElementsAre(testing::Pair(0, 10), testing::Pair(10, 4),
                                                     testing::Pair(14, 4), testing::Pair(18, 12)));
}

TEST(Strips, MovesThatMeetInsideAnElementAreRefused) {
  std::vector<std::byte> dest(100);
  CutTask task;
  task.outer = 1;
  task.column_bytes = 8;
  task.moves =
      Share({{{Move::Kind::kRamp, 1, 0, 0, 0, 4, 0}, {Move::Kind::kRamp, 1, 1, 0, 0, 4, 0}}});
  task.dests = {dest.data(), dest.data() + 12};
  task.dest_strides = {0, 0};
  const absl::StatusOr<Strips> strips = StripsOf(std::vector<Task>{task}, Everything);
  EXPECT_EQ(strips.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(strips.status().message()),
              testing::HasSubstr("inside an element of 8 bytes"));
}

TEST(Strips, AnErrorOfAskingWhatIsReachedIsPassedOn) {
  std::vector<std::byte> a(10), b(10);
  const std::vector<Task> tasks = {CopyOf(a.data(), b.data(), 10)};
  const auto fails = [](const Interval&) -> absl::StatusOr<Access> {
    return absl::InvalidArgumentError("of device 3");
  };
  EXPECT_EQ(StripsOf(tasks, fails).status(), absl::InvalidArgumentError("of device 3"));
}

TEST(Strips, MemoryIsAskedForFromItsFirstByteToItsLast) {
  std::vector<std::byte> source(100), dest(100);
  CutTask task = CopyOf(source.data(), dest.data(), 100);
  task.outer = 3;
  task.source_stride = 30;
  task.dest_strides = {20};
  task.moves =
      Share({{{Move::Kind::kCopy, 0, 0, 7, 5, 10, 0}, {Move::Kind::kFill, 0, 0, 0, 1, 2}}});
  std::vector<Interval> asked;
  const auto ask = [&](const Interval& memory) -> absl::StatusOr<Access> {
    asked.push_back(memory);
    return Access::kCopied;
  };
  const absl::StatusOr<Strips> strips = StripsOf(std::vector<Task>{task}, ask);
  ASSERT_TRUE(strips.ok());
  const auto from = reinterpret_cast<uintptr_t>(source.data());
  const auto to = reinterpret_cast<uintptr_t>(dest.data());
  const Interval read = {from + 7, from + 77}, written = {to + 1, to + 55};
  EXPECT_THAT(asked, testing::ElementsAre(read, written));
  EXPECT_EQ(strips->pinned, asked);
  for (const Strip& strip : strips->launches.at(0)) {
    const bool reads = strips->rules[strip.rule].kind == PieceKind::kCopy;
    EXPECT_EQ(strip.source_memory, reads ? kPinnedMemory : kReachedMemory);
    EXPECT_EQ(strip.dest_memory, kPinnedMemory + 1);
  }
}

// More elements than 32 bits can count, in memory that is never touched.
TEST(Strips, CountsBeyond32BitsAreKept) {
  auto* const at = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  CutTask task;
  task.source = at;
  task.outer = 3;
  task.source_stride = int64_t{1} << 34;
  task.column_bytes = 8;
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, 5, 0, (int64_t{1} << 31) - 5, 0}}});
  task.dests = {at + (int64_t{1} << 38)};
  task.dest_strides = {int64_t{1} << 35};
  const absl::StatusOr<Strips> strips = StripsOf(std::vector<Task>{task}, Everything);
  ASSERT_TRUE(strips.ok());
  const Strip& last = strips->launches.at(0).at(2);
  EXPECT_EQ(last.size, (int64_t{1} << 34) - 40);
  EXPECT_EQ(last.source, (uint64_t{1} << 40) + (uint64_t{2} << 34) + 40);
  EXPECT_EQ(last.dest, (uint64_t{1} << 40) + (uint64_t{1} << 38) + (uint64_t{2} << 35));
}

}  // namespace
}  // namespace cpshard
