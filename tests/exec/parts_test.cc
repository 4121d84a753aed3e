// How a Run is divided. The memory of its tasks is never touched.
#include "core/exec/device/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/batch/buffer.h"
#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

constexpr int64_t kRows = 256, kColumns = 2048;
constexpr int64_t kMega = int64_t{1} << 20;

// Two destinations take one column of a byte each by turns: kRows * kColumns strips.
Task ByTurns(int64_t number) {
  CutTask task;
  task.source = reinterpret_cast<const std::byte*>((uintptr_t{1} << 40) + number * (16 * kMega));
  task.source_stride = kColumns;
  task.outer = kRows;
  task.column_bytes = 1;
  task.dtype = DType::kU8;
  Moves moves;
  for (int64_t column = 0; column < kColumns; ++column) {
    const auto dest = static_cast<int32_t>(column % 2);
    moves.push_back({Move::Kind::kCopy, 0, dest, column, column / 2, 1, 0});
  }
  task.moves = Share({std::move(moves)});
  for (int64_t k = 0; k < 2; ++k) {
    const uintptr_t at = (uintptr_t{1} << 44) + number * (16 * kMega) + k * (4 * kMega);
    task.dests.push_back(reinterpret_cast<std::byte*>(at));
    task.dest_strides.push_back(kColumns / 2);
  }
  return task;
}

struct Divided {
  absl::Status status;
  int64_t parts = 0, pieces = 0, asked = 0;
  int64_t most_pieces = 0;  // of a part
  int64_t most_memory = 0;  // of a part: table and copies
};

int64_t BytesUpTo(const Part& part) {
  int64_t end = part.table_at + static_cast<int64_t>(part.table.block.size());
  for (const auto* regions : {&part.in, &part.out}) {
    for (const Staging::Region& region : *regions) {
      const auto bytes = static_cast<int64_t>(region.memory.end - region.memory.begin);
      end = std::max(end, region.offset + bytes);
    }
  }
  return end;
}

Divided Divide(const std::vector<Task>& tasks, Access access, int64_t memory_bytes) {
  Divided divided;
  const AccessTo ask = [&](const Interval&) {
    ++divided.asked;
    return access;
  };
  std::vector<std::byte> block;
  divided.status = InParts(tasks, ask, 4096, {nullptr, memory_bytes}, block, [&](const Part& part) {
    int64_t pieces = 0;
    for (const WorkTable::Launch& launch : part.table.launches) pieces += launch.pieces;
    ++divided.parts;
    divided.pieces += pieces;
    divided.most_pieces = std::max(divided.most_pieces, pieces);
    divided.most_memory = std::max(divided.most_memory, BytesUpTo(part));
    return absl::OkStatus();
  });
  return divided;
}

TEST(Parts, HaveNoMoreStripsThanTheHostHasMemoryForHoweverMuchTheDeviceHas) {
  const std::vector<Task> tasks = {ByTurns(0), ByTurns(1), ByTurns(2)};
  for (const Access access : {Access::kInPlace, Access::kBounced}) {
    const Divided divided = Divide(tasks, access, 4096 * kMega);
    EXPECT_EQ(divided.status, absl::OkStatus());
    EXPECT_EQ(divided.pieces, 3 * kRows * kColumns);  // none is lost, none is there twice
    EXPECT_LE(divided.most_pieces, kMostStrips);
    EXPECT_LE(divided.parts, 2 * divided.pieces / kMostStrips);
    // A task has three operands: they are asked for before all, with the task before, before the
    // task is cut, and of each of its parts before that is made and when it is.
    EXPECT_LE(divided.asked, 3 * (3 * 3 + 2 * divided.parts));
  }
}

TEST(Parts, FitTheDevicesMemory) {
  for (const int64_t memory_bytes : {kMega / 16, kMega, 7 * kMega}) {
    for (const Access access : {Access::kInPlace, Access::kBounced}) {
      const Divided divided = Divide({ByTurns(0)}, access, memory_bytes);
      EXPECT_EQ(divided.status, absl::OkStatus());
      EXPECT_EQ(divided.pieces, kRows * kColumns);
      EXPECT_LE(divided.most_memory, memory_bytes);
      // Not many more than it takes: 32 bytes of table, and two of copies, for each byte.
      EXPECT_LE(divided.parts, 3 + 2 * divided.pieces * 34 / memory_bytes);
    }
  }
}

TEST(Parts, ARunThatFitsIsOnePartAndItsMemoryIsAskedForOnce) {
  auto task = std::get<CutTask>(ByTurns(0));
  task.outer = 10;
  const Divided divided = Divide({task, task}, Access::kInPlace, 2 * kMega);
  EXPECT_EQ(divided.status, absl::OkStatus());
  EXPECT_EQ(divided.parts, 1);
  EXPECT_EQ(divided.asked, 6);
}

TEST(Parts, WhatCannotFitIsSaidBeforeTheFirstPart) {
  CutTask numbers;
  numbers.outer = 1;
  numbers.column_bytes = 8;
  numbers.moves = Share({{{Move::Kind::kRamp, 1, 0, 0, 0, 4, 0}}});
  numbers.dests = {reinterpret_cast<std::byte*>(uintptr_t{1} << 45)};
  numbers.dest_strides = {0};
  const Divided divided = Divide({ByTurns(0), numbers}, Access::kInPlace, 256);
  EXPECT_TRUE(absl::IsResourceExhausted(divided.status));
  EXPECT_TRUE(NeverFits(divided.status));
  EXPECT_THAT(std::string(divided.status.message()), testing::HasSubstr("the 256 bytes"));
  EXPECT_EQ(divided.parts, 0);
}

TEST(Parts, MemoryThatIsRefusedIsRefusedBeforeTheFirstPart) {
  const std::vector<Task> tasks = {ByTurns(0), ByTurns(1)};
  const uint64_t last = reinterpret_cast<uintptr_t>(std::get<CutTask>(tasks[1]).dests[1]);
  const AccessTo ask = [&](const Interval& memory) -> absl::StatusOr<Access> {
    if (memory.begin == last) return absl::InvalidArgumentError("of device 3");
    return Access::kInPlace;
  };
  std::vector<std::byte> block;
  int parts = 0;
  const auto carry = [&](const Part&) {
    ++parts;
    return absl::OkStatus();
  };
  EXPECT_EQ(InParts(tasks, ask, 4096, {nullptr, kMega}, block, carry),
            absl::InvalidArgumentError("of device 3"));
  EXPECT_EQ(parts, 0);
}

TEST(Parts, AnErrorOfCarryingOneOutIsTheEnd) {
  const std::vector<Task> tasks = {ByTurns(0)};
  const AccessTo ask = [](const Interval&) { return Access::kInPlace; };
  std::vector<std::byte> block;
  int parts = 0;
  const auto carry = [&](const Part&) {
    return ++parts == 3 ? absl::ResourceExhaustedError("of the device") : absl::OkStatus();
  };
  EXPECT_EQ(InParts(tasks, ask, 4096, {nullptr, kMega}, block, carry),
            absl::ResourceExhaustedError("of the device"));
  EXPECT_EQ(parts, 3);
}

}  // namespace
}  // namespace cpshard
