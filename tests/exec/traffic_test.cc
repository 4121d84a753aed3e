// What the warps of the bodies do to memory, counted: bytes and 32-byte transactions per byte of
// shard. No device is needed to see whether accesses join.
#include <gtest/gtest.h>

#include "core/exec/device/emulated.h"
#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

// Memory that begins `offset` bytes after a multiple of 256: how pieces are cut depends on it.
class Aligned {
 public:
  Aligned(size_t offset, size_t size) : memory_(offset + size + 256), offset_(offset) {}
  std::byte* data() const {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return const_cast<std::byte*>(memory_.data()) + -at % 256 + offset_;
  }

 private:
  std::vector<std::byte> memory_;
  size_t offset_;
};

// Copies runs of `run` bytes, which lie `run` bytes apart, to one place without gaps.
DeviceTraffic CopyRuns(int64_t total, int64_t run, size_t source_offset, size_t dest_offset) {
  DeviceTraffic traffic;
  EmulatedDeviceOptions options;
  options.traffic = &traffic;
  const Aligned source(source_offset, 2 * total), dest(dest_offset, total);
  CutTask task;
  task.source = source.data();
  task.outer = 1;
  task.column_bytes = 1;
  task.dtype = DType::kU8;
  Moves moves;
  for (int64_t to = 0; to < total; to += run) {
    moves.push_back({Move::Kind::kCopy, 0, 0, 2 * to, to, std::min(run, total - to), 0});
  }
  task.moves = Share({moves});
  task.dests = {dest.data()};
  task.dest_strides = {total};
  const Task tasks[] = {task};
  EXPECT_TRUE(MakeEmulatedDeviceExecutor(options)->Run(tasks).ok());
  EXPECT_EQ(traffic.launches, 1);
  EXPECT_EQ(traffic.misaligned, 0);
  EXPECT_EQ(traffic.bytes_written, total);
  return traffic;
}

TEST(Traffic, AnAlignedCopyMovesEveryByteOnceIn16ByteAccesses) {
  const int64_t total = 1 << 20;
  const DeviceTraffic traffic = CopyRuns(total, total, 0, 0);
  EXPECT_EQ(traffic.bytes_read, total);
  EXPECT_EQ(traffic.reads, total / 512);
  EXPECT_EQ(traffic.writes, total / 512);
  EXPECT_EQ(traffic.read_sectors, total / 32);
  EXPECT_EQ(traffic.written_sectors, total / 32);
}

TEST(Traffic, WhereOnly8Or4BytesAlignAWarpStillTouchesNoSectorTwice) {
  const int64_t total = 1 << 18;
  for (const size_t offset : {8, 4}) {
    const DeviceTraffic traffic = CopyRuns(total, total, offset, 0);
    EXPECT_EQ(traffic.bytes_read, total);
    EXPECT_EQ(traffic.writes, total / 32 / static_cast<int64_t>(offset));
    EXPECT_EQ(traffic.written_sectors, total / 32);
    // An access that begins in the middle of a sector shares it with the one before.
    EXPECT_EQ(traffic.read_sectors, total / 32 + traffic.reads);
  }
}

TEST(Traffic, ACopyToAnyAlignmentStillWritesWholeSectors) {
  const int64_t total = 1 << 18;
  for (const auto& [source, dest] : {std::pair<size_t, size_t>{3, 0}, {0, 5}, {1, 2}}) {
    const DeviceTraffic traffic = CopyRuns(total, total, source, dest);
    EXPECT_LE(traffic.bytes_read, total * 2);
    EXPECT_LE(traffic.read_sectors, total / 32 * 2.6) << source << " to " << dest;
    EXPECT_LE(traffic.written_sectors, total / 32 * 1.3) << source << " to " << dest;
    EXPECT_LE(traffic.writes, total / 128 * 1.1) << source << " to " << dest;
  }
}

TEST(Traffic, RunsOf600BytesCostNoMoreThanTheirEnds) {
  const int64_t total = 600 * 400;
  const DeviceTraffic traffic = CopyRuns(total, 600, 0, 0);
  EXPECT_EQ(traffic.bytes_read, total);
  EXPECT_EQ(traffic.pieces, 400);
  // 19 or 20 sectors hold 600 bytes; each access, head and tail of a run too, may share one more.
  EXPECT_LE(traffic.written_sectors, 400 * 23);
  EXPECT_LE(traffic.read_sectors, 400 * 23);
  EXPECT_LE(traffic.writes, 400 * 4);
}

TEST(Traffic, ACopyOfAllThereIsBringsInWhatIsReadAndTheTable) {
  DeviceTraffic traffic;
  EmulatedDeviceOptions options;
  options.traffic = &traffic;
  options.host_memory = Device::Reach::kNone;
  const int64_t total = 1 << 20;
  std::vector<std::byte> source(total), dest(total / 2);
  CutTask task;  // the rank that has the second half
  task.source = source.data();
  task.outer = 1;
  task.column_bytes = 1;
  task.dtype = DType::kU8;
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, total / 2, 0, total / 2, 0}}});
  task.dests = {dest.data()};
  task.dest_strides = {total / 2};
  const Task tasks[] = {task};
  ASSERT_TRUE(MakeEmulatedDeviceExecutor(options)->Run(tasks).ok());
  EXPECT_GE(traffic.copied_in, total / 2);
  EXPECT_LE(traffic.copied_in, total / 2 * 1.02);
  EXPECT_GE(traffic.copied_out, total / 2);
  EXPECT_LE(traffic.copied_out, total / 2 + 128);
}

// 32 lanes read one element of 8 bytes in one access, whatever the length of the piece.
TEST(Traffic, AContinuationReadsTheElementThatGoesOnOnceAPiece) {
  DeviceTraffic traffic;
  EmulatedDeviceOptions options;
  options.traffic = &traffic;
  const int64_t source = 7;
  std::vector<int64_t> dest(10000);
  CutTask task;
  task.source = reinterpret_cast<const std::byte*>(&source);
  task.outer = 1;
  task.column_bytes = 8;
  task.moves = Share({{{Move::Kind::kContinue, 0, 0, 0, 0, 10000, 1}}});
  task.dests = {reinterpret_cast<std::byte*>(dest.data())};
  task.dest_strides = {0};
  const Task tasks[] = {task};
  ASSERT_TRUE(MakeEmulatedDeviceExecutor(options)->Run(tasks).ok());
  EXPECT_EQ(dest[9999], 10007);
  EXPECT_EQ(traffic.reads, traffic.pieces);
  EXPECT_LT(traffic.pieces, 30);
}

}  // namespace
}  // namespace cpshard
