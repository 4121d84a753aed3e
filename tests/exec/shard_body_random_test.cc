// Bodies of plans that no layout makes. Fixed seeds; a failure names its plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/exec/bodies.h"
#include "tests/exec/random_plan.h"

namespace cpshard {
namespace {

class RandomBodies : public ShardBodyTest {};

TEST_F(RandomBodies, HoldWhatMakeShardsGives) {
  for (uint32_t seed = 0; seed < 600 && !HasFailure(); ++seed) {
    const RandomPlan random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + ToString(random.plan));
    std::vector<int64_t> ranks = AllRanks(random.plan);
    ExpectRightBodies(random.plan, random.batch, ranks);
    std::reverse(ranks.begin(), ranks.end());
    if (ranks.size() > 1) ranks.pop_back();
    ExpectRightBodies(random.plan, random.batch, ranks);
  }
}

}  // namespace
}  // namespace cpshard
