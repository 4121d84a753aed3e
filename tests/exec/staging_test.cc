#include "core/exec/device/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpshard {
namespace {

// Copies between pieces of memory that the device does not reach; launches in order.
Strips Copies(std::vector<std::vector<Strip>> launches) {
  Strips strips;
  strips.rules.resize(1);
  strips.launches = std::move(launches);
  return strips;
}

Strip Copy(uint64_t dest, uint64_t source, int64_t size) {
  Strip strip{dest, source, 0, size, 0};
  strip.source_memory = strip.dest_memory = kPageableMemory;
  return strip;
}

std::vector<Interval> MemoryOf(const std::vector<Staging::Region>& regions) {
  std::vector<Interval> memory;
  for (const Staging::Region& region : regions) memory.push_back(region.memory);
  return memory;
}

TEST(Staging, BringsInWhatIsReadAndTakesOutWhatIsWrittenAndNothingElse) {
  const Staging staging =
      StagingOf(Copies({{Copy(5000, 1000, 10), Copy(5010, 1500, 20), Copy(6000, 1010, 5)}}));
  EXPECT_THAT(MemoryOf(staging.in),
              testing::UnorderedElementsAre(Interval{1000, 1015}, Interval{1500, 1520}));
  EXPECT_THAT(MemoryOf(staging.out),
              testing::UnorderedElementsAre(Interval{5000, 5030}, Interval{6000, 6005}));
}

TEST(Staging, WhatALaunchWroteIsNotBroughtInForALaterOne) {
  const Staging staging = StagingOf(Copies({{Copy(5000, 1000, 10)}, {Copy(6000, 5002, 8)}}));
  EXPECT_THAT(MemoryOf(staging.in), testing::ElementsAre(Interval{1000, 1010}));
}

TEST(Staging, WhatIsPartlyWrittenBeforeIsBroughtIn) {
  const Staging staging = StagingOf(Copies({{Copy(5000, 1000, 10)}, {Copy(6000, 5005, 10)}}));
  EXPECT_THAT(MemoryOf(staging.in),
              testing::UnorderedElementsAre(Interval{1000, 1010}, Interval{5005, 5015}));
}

TEST(Staging, CopiesLieApartAlignedAsTheMemoryIsWhatIsBroughtInFirst) {
  const Staging staging =
      StagingOf(Copies({{Copy(5003, 1001, 100), Copy(300, 2077, 1), Copy(7000, 3333, 70)}}));
  int64_t in_end = 0;
  for (const Staging::Region& in : staging.in) {
    in_end = std::max<int64_t>(in_end, in.offset + in.memory.end - in.memory.begin);
  }
  for (const Staging::Region& out : staging.out) EXPECT_GE(out.offset, in_end);
  std::vector<Interval> copies;
  for (const Staging::Region& region : staging.regions) {
    EXPECT_EQ(region.offset % 64, static_cast<int64_t>(region.memory.begin % 64));
    const auto begin = static_cast<uint64_t>(region.offset);
    copies.push_back({begin, begin + region.memory.end - region.memory.begin});
  }
  std::sort(copies.begin(), copies.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < copies.size(); ++i) EXPECT_GE(copies[i].begin, copies[i - 1].end);
  EXPECT_EQ(staging.bytes, static_cast<int64_t>(copies.back().end));
}

TEST(Staging, RestagedStripsNameTheCopies) {
  Strips strips = Copies({{Copy(5000, 1000, 10)}, {Copy(6000, 5002, 8)}});
  const Staging staging = StagingOf(strips);
  Restage(strips, staging, 1 << 20);
  EXPECT_EQ(strips.launches[0][0].source, (1 << 20) + staging.OffsetOf(1000));
  EXPECT_EQ(strips.launches[0][0].dest, (1 << 20) + staging.OffsetOf(5000));
  EXPECT_EQ(strips.launches[1][0].source, strips.launches[0][0].dest + 2);
}

TEST(Staging, MemoryThatTouchesIsOneRegionOnlyWhereItIsOneAllocation) {
  const uint32_t a = kPinnedMemory, b = a + 1, c = a + 2;
  Strips strips = Copies({{Copy(9000, 1000, 10), Copy(9100, 1010, 10), Copy(9200, 1020, 10),
                           Copy(9300, 1030, 10), Copy(9400, 1040, 10), Copy(9500, 1045, 10)}});
  const uint32_t memories[] = {kPageableMemory, kPageableMemory, a, a, b, c};
  for (size_t i = 0; i < 6; ++i) strips.launches[0][i].source_memory = memories[i];
  strips.pinned = {{1020, 1040}, {1040, 1050}, {1045, 1055}};
  const Staging staging = StagingOf(strips);
  EXPECT_THAT(MemoryOf(staging.in),
              testing::UnorderedElementsAre(Interval{1000, 1020}, Interval{1020, 1040},
                                            Interval{1040, 1055}));
  for (const Staging::Region& in : staging.in) EXPECT_EQ(in.pinned, in.memory.begin >= 1020);
}

TEST(Staging, MemoryThatIsReachedStaysWhereItIs) {
  Strip strip = Copy(5000, 1000, 10);
  strip.source_memory = kReachedMemory;
  Strips strips = Copies({{strip}});
  const Staging staging = StagingOf(strips);
  EXPECT_TRUE(staging.in.empty());
  Restage(strips, staging, 1 << 20);
  EXPECT_EQ(strips.launches[0][0].source, 1000u);
}

}  // namespace
}  // namespace cpshard
