// What arithmetic says of a task, against its strips.
#include "core/exec/device/needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/exec/device/overlaps.h"
#include "core/exec/device/parts.h"
#include "tests/exec/any_task.h"

namespace cpshard {
namespace {

constexpr uint32_t kSeeds = 2000;

// Memory that is never touched.
const std::byte* Source() { return reinterpret_cast<const std::byte*>(uintptr_t{1} << 40); }
std::byte* Dest() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 44); }

bool Overlaps(const Task& task) {
  const auto* cut = std::get_if<CutTask>(&task);
  return cut != nullptr && FootprintOf(*cut).overlaps;
}

int64_t Count(const Strips& strips) {
  int64_t count = 0;
  for (const std::vector<Strip>& launch : strips.launches) {
    count += static_cast<int64_t>(launch.size());
  }
  return count;
}

TEST(Needs, StripsAreCountedWithoutMakingThem) {
  int counted = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Task task = AnyTask(seed).Make(Source(), Dest());
    if (Overlaps(task)) continue;
    const auto bounced = [](const Interval&) { return Access::kBounced; };
    const absl::StatusOr<Strips> strips = StripsOf({&task, 1}, bounced);
    ASSERT_TRUE(strips.ok()) << strips.status();
    const Needs needs = NeedsOf(task);
    ASSERT_EQ(needs.strips, Count(*strips)) << "seed " << seed;
    int64_t written = 0;
    for (const std::vector<Strip>& launch : strips->launches) {
      for (const Strip& strip : launch) {
        const Interval bytes = strips->Writes(strip);
        written += static_cast<int64_t>(bytes.end - bytes.begin);
      }
    }
    ASSERT_EQ(needs.written_bytes, written) << "seed " << seed;
    ++counted;
  }
  EXPECT_GT(counted, 500);
}

TEST(Needs, MemoryIsAskedForAsStripsAskForIt) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Task task = AnyTask(seed).Make(Source(), Dest());
    std::vector<Interval> asked;
    const AccessTo ask = [&](const Interval& memory) {
      asked.push_back(memory);
      return Access::kCopied;
    };
    ASSERT_TRUE(StripsOf({&task, 1}, ask).ok());
    const std::vector<Interval> by_strips = std::exchange(asked, {});
    const absl::StatusOr<Operands> operands = OperandsOf(task, ask);
    ASSERT_TRUE(operands.ok());
    ASSERT_EQ(asked, by_strips) << "seed " << seed;
  }
}

TEST(Needs, OneDestinationThatIsNotReachedIsEnough) {
  CutTask task;
  task.outer = 1;
  task.column_bytes = 1;
  task.dtype = DType::kU8;
  task.moves = Share({{{Move::Kind::kFill, 0, 0, 0, 0, 9, 0}, {Move::Kind::kFill, 0, 1, 0, 0, 9}}});
  task.dests = {Dest(), Dest() + 100};
  task.dest_strides = {0, 0};
  const auto second = reinterpret_cast<uintptr_t>(Dest()) + 100;
  const auto ask = [&](const Interval& memory) {
    return memory.begin == second ? Access::kBounced : Access::kInPlace;
  };
  const absl::StatusOr<Operands> operands = OperandsOf(task, ask);
  ASSERT_TRUE(operands.ok());
  EXPECT_EQ(operands->source, Access::kInPlace);
  EXPECT_EQ(operands->dest, Access::kBounced);
}

// Whatever is refused later than at the first part would have been refused too late.
TEST(Needs, MemoryForTheLargestElementIsEnoughForAllParts) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Task task = AnyTask(seed).Make(Source() + seed % 64, Dest() + seed % 61);
    const Access source = seed % 3 == 0 ? Access::kInPlace : Access::kBounced;
    const Access dest = seed % 5 == 0 ? Access::kInPlace : Access::kCopied;
    const auto begin = reinterpret_cast<uintptr_t>(Dest());
    const AccessTo ask = [&](const Interval& memory) {
      return memory.begin < begin ? source : dest;
    };
    const int64_t least = LeastMemory(task, OperandsOf(task, ask).value());
    std::vector<std::byte> block;
    const auto carry = [](const Part&) { return absl::OkStatus(); };
    const absl::Status status = InParts({&task, 1}, ask, 4096, {nullptr, least}, block, carry);
    ASSERT_TRUE(status.ok()) << status << ", seed " << seed << ", " << least << " bytes";
  }
}

}  // namespace
}  // namespace cpshard
