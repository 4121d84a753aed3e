// Drawn batches with drawn damage: the product accepts what the oracle accepts, with the same
// values, and refuses the rest as INVALID_ARGUMENT (decisions D5 - D9, D13, D16 - D18).
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/property/checks.h"
#include "tests/property/mutations.h"

namespace cpshard::property {
namespace {

constexpr int kRounds = 60000;

std::string Fault(const LayoutCase& layout, const Sample& sample, const Point& point,
                  const std::vector<oracle::Shard>& want) {
  const auto got = ShardSample(layout, sample, point);
  if (!got.ok()) {
    if (!want.empty()) return absl::StrCat("refused: ", got.status().ToString());
    return absl::IsInvalidArgument(got.status()) ? "" : got.status().ToString();
  }
  if (want.empty()) return "accepted what the oracle refuses";
  for (size_t rank = 0; rank < want.size(); ++rank) {
    const std::string fault = ShardFault(got->shards[rank], want[rank]);
    if (!fault.empty()) return absl::StrCat("rank ", rank, ": ", fault);
  }
  const std::string fault = GatherFault(layout, sample, point, got->shards);
  return fault.empty() ? AgreementFault(layout, got->shards) : fault;
}

uint64_t Seed() {
  const char* given = std::getenv("CPSHARD_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

TEST(DamagedBatches, AreAcceptedOrRefusedAsTheOracleSays) {
  const uint64_t seed = Seed();
  struct Count {
    int64_t drawn = 0, accepted = 0;
  };
  std::map<std::string, Count> counts;
  int faults = 0;
  for (int round = 0; round < kRounds && faults < 5; ++round) {
    Rng rng(seed * 1000003 + round);
    const LayoutCase& layout = LayoutCases()[rng.Below(LayoutCases().size())];
    if (!layout.restated) continue;
    Point point{.cp_size = 1 + rng.Below(5), .length = rng.Below(20), .rows = rng.Below(4)};
    if (!rng.OneIn(8)) point = layout.NearestPoint(point);
    Sample sample = layout.Draw(point, rng);
    if (!rng.OneIn(8)) layout.Fit(sample);
    for (int64_t left = rng.Below(4); left > 0; --left) {
      if (layout.packed && rng.OneIn(2)) {
        MutateDocuments(rng, sample);
      } else {
        Mutate(rng, sample, point);
      }
    }
    const std::vector<oracle::Shard> want = layout.Expected(sample, point);
    Count& count = counts[layout.name];
    ++count.drawn;
    count.accepted += want.empty() ? 0 : 1;
    const std::string fault = Fault(layout, sample, point, want);
    if (fault.empty()) continue;
    ++faults;
    ADD_FAILURE() << layout.name << ": " << fault << "\n  " << Describe(sample, point)
                  << "\n  CPSHARD_SEED=" << seed << ", round " << round;
  }
  for (const auto& [layout, count] : counts) {
    EXPECT_GT(count.accepted, count.drawn / 6) << layout;
    EXPECT_LT(count.accepted, count.drawn * 19 / 20) << layout;  // identity refuses little
  }
}

}  // namespace
}  // namespace cpshard::property
