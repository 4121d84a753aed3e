#include "core/exec/device/launch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/exec/device/strips.h"

namespace cpshard {
namespace {

struct Access {
  Interval reads;
  std::vector<Interval> writes;
  size_t launch = 0;
};

bool Meet(const Interval& a, const Interval& b) {
  return std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

bool AnyMeets(const std::vector<Interval>& writes, const Interval& other) {
  return std::any_of(writes.begin(), writes.end(),
                     [&](const Interval& write) { return Meet(write, other); });
}

// Whether `later` must not run together with `earlier`.
bool MustWait(const Access& earlier, const Access& later) {
  return AnyMeets(earlier.writes, later.reads) || AnyMeets(later.writes, earlier.reads) ||
         std::any_of(later.writes.begin(), later.writes.end(),
                     [&](const Interval& write) { return AnyMeets(earlier.writes, write); });
}

TEST(LaunchOrder, ATaskComesInTheFirstLaunchBehindAllThatItMustWaitFor) {
  std::mt19937 random(3);
  const auto interval = [&](uint64_t most) {
    const uint64_t begin = random() % 60;
    return Interval{begin, begin + random() % most};
  };
  for (int round = 0; round < 2000; ++round) {
    LaunchOrder order;
    std::vector<Access> before;
    for (int task = 0; task < 12; ++task) {
      Access now{interval(12), {}};
      for (int dest = random() % 3; dest >= 0; --dest) now.writes.push_back(interval(6));
      now.launch = order.Place(now.reads, now.writes);
      size_t expected = 0;
      for (const Access& earlier : before) {
        if (MustWait(earlier, now)) expected = std::max(expected, earlier.launch + 1);
      }
      ASSERT_EQ(now.launch, expected) << "round " << round << ", task " << task;
      before.push_back(now);
    }
  }
}

}  // namespace
}  // namespace cpshard
