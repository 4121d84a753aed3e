// Tasks cut into smaller ones write what the whole does: the CPU executor carries out both.
#include "core/exec/device/split.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/exec/any_task.h"
#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

// Splits again and again, at most so many times; what comes out is in order.
void SplitAll(const Task& task, int64_t parts, int times, std::vector<Task>& all) {
  const std::vector<Task> smaller = times == 0 ? std::vector<Task>() : SplitTask(task, parts);
  if (smaller.empty()) all.push_back(task);
  for (const Task& one : smaller) SplitAll(one, parts, times - 1, all);
}

TEST(Split, PartsWriteInOrderWhatTheWholeWrites) {
  const std::unique_ptr<Executor> cpu = MakeCpuExecutor();
  std::vector<std::byte> source(kSourceBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * i >> 4);
  for (uint32_t seed = 0; seed < 700; ++seed) {
    std::vector<std::byte> whole(kDestBytes, std::byte{0x5a}), in_parts = whole;
    const Task task = AnyTask(seed).Make(source.data(), whole.data());
    const Task same = AnyTask(seed).Make(source.data(), in_parts.data());
    std::vector<Task> parts;
    SplitAll(same, 2 + seed % 5, seed % 3 == 0 ? 3 : 100, parts);
    ASSERT_TRUE(cpu->Run({&task, 1}).ok());
    ASSERT_TRUE(cpu->Run(parts).ok());
    ASSERT_EQ(whole, in_parts) << "seed " << seed << ", " << parts.size() << " parts";
  }
}

int64_t ElementsOf(const Task& task) {
  if (const auto* derive = std::get_if<DeriveTask>(&task)) return derive->count;
  const auto& cut = std::get<CutTask>(task);
  int64_t elements = 0;
  for (int64_t outer = 0; outer < cut.outer; ++outer) {
    for (const Move& move : (*cut.moves)[outer / cut.row_divisor % cut.moves->size()]) {
      elements += move.length * cut.column_bytes / ItemSize(cut.dtype);
    }
  }
  return elements;
}

TEST(Split, EndsAtSingleElements) {
  std::vector<std::byte> source(kSourceBytes), dest(kDestBytes);
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::vector<Task> parts;
    SplitAll(AnyTask(seed).Make(source.data(), dest.data()), 2 + seed % 5, 100, parts);
    for (const Task& part : parts) ASSERT_LE(ElementsOf(part), 1) << "seed " << seed;
  }
}

TEST(Split, MakesAboutAsManyPartsAsAreAskedFor) {
  CutTask task;
  std::vector<std::byte> memory(1);
  task.source = memory.data();
  task.dtype = DType::kU8;
  task.column_bytes = 1;
  task.outer = 1;
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, 0, 0, 1000000, 0}}});
  task.dests = {memory.data()};
  task.dest_strides = {0};
  for (const int64_t parts : {2, 3, 10, 100}) {
    const auto made = static_cast<int64_t>(SplitTask(task, parts).size());
    EXPECT_GE(made, parts);
    EXPECT_LE(made, parts + parts / 10 + 1);
  }
}

// Otherwise all parts together would hold as many moves as the task has strips.
TEST(Split, PartsShareTheMovesWhereTheRowsComeAgainAndAgain) {
  std::vector<std::byte> memory(1);
  CutTask task;
  task.source = memory.data();
  task.dtype = DType::kU8;
  task.column_bytes = 1;
  task.outer = 6 * 4 * 3 + 5;  // six times four rows, each of three outer indices, and some more
  task.row_divisor = 3;
  task.moves = Share(std::vector<Moves>(4, Moves{{Move::Kind::kCopy, 0, 0, 0, 0, 1, 0}}));
  task.dests = {memory.data()};
  task.dest_strides = {0};
  const std::vector<Task> parts = SplitTask(task, 1000);
  EXPECT_EQ(parts.size(), 7u);
  for (const Task& part : parts) EXPECT_EQ(std::get<CutTask>(part).moves, task.moves);
}

}  // namespace
}  // namespace cpshard
