#include "core/exec/device/pinned_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace cpshard {
namespace {

constexpr size_t kBlock = 64 << 10;
constexpr int64_t kPinned = 4 * int64_t{kBlock};  // room for four blocks

// A pool of ordinary memory in the place of pinned memory, and whether a block lies in it.
class Pinned {
 public:
  Pinned() : memory_(new (std::align_val_t{256}) std::byte[kPinned], Free()) {}

  FixedPool pool() const { return FixedPool(memory_, memory_.get(), kPinned); }
  bool Has(const std::byte* at) const {
    return at >= memory_.get() && at < memory_.get() + kPinned;
  }

 private:
  struct Free {
    void operator()(std::byte* at) const { operator delete[](at, std::align_val_t{256}); }
  };
  std::shared_ptr<std::byte> memory_;
};

TEST(PinnedBlocks, WhatFindsNoGapIsOrdinaryMemoryAndIsCounted) {
  const Pinned pinned;
  PinnedBlocks blocks(pinned.pool());
  std::vector<std::byte*> taken;
  for (int i = 0; i < 6; ++i) {
    taken.push_back(blocks.Take(kBlock));
    ASSERT_NE(taken[i], nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(taken[i]) % kBufferAlignment, 0u);
    EXPECT_EQ(pinned.Has(taken[i]), i < 4);
    std::memset(taken[i], i, kBlock);
  }
  EXPECT_EQ(blocks.stats().pinned_bytes, kPinned);
  EXPECT_EQ(blocks.stats().pinned_bytes_out, kPinned);
  EXPECT_EQ(blocks.stats().unpinned_bytes_out, 2 * static_cast<int64_t>(kBlock));
  EXPECT_EQ(blocks.stats().unpinned_blocks, 2);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(taken[i][kBlock - 1], static_cast<std::byte>(i));
  for (std::byte* block : taken) blocks.Give(block, kBlock);
}

TEST(PinnedBlocks, PinnedMemoryThatCameBackIsUsedAgain) {
  const Pinned pinned;
  PinnedBlocks blocks(pinned.pool());
  std::byte* const all = blocks.Take(kPinned);
  EXPECT_TRUE(pinned.Has(all));
  std::byte* const other = blocks.Take(kBlock);
  EXPECT_FALSE(pinned.Has(other));
  blocks.Give(all, kPinned);
  blocks.Give(other, kBlock);
  EXPECT_EQ(blocks.stats().pinned_bytes_out, 0);
  EXPECT_EQ(blocks.stats().unpinned_bytes_out, 0);
  std::byte* const again = blocks.Take(kPinned);
  EXPECT_TRUE(pinned.Has(again));
  EXPECT_EQ(blocks.stats().unpinned_blocks, 1);  // since the start
  blocks.Give(again, kPinned);
}

// Fresh pages are slow to write.
TEST(PinnedBlocks, OrdinaryMemoryThatCameBackIsUsedAgain) {
  const Pinned pinned;
  PinnedBlocks blocks(pinned.pool());
  std::byte* const all = blocks.Take(kPinned);
  std::byte* const first = blocks.Take(kBlock);
  std::byte* const second = blocks.Take(kBlock);
  blocks.Give(first, kBlock);
  EXPECT_EQ(blocks.stats().unpinned_bytes_idle, static_cast<int64_t>(kBlock));
  EXPECT_EQ(blocks.Take(kBlock), first);
  EXPECT_EQ(blocks.stats().unpinned_bytes_idle, 0);
  EXPECT_EQ(blocks.stats().unpinned_bytes_out, 2 * static_cast<int64_t>(kBlock));
  blocks.Give(first, kBlock);
  blocks.Give(second, kBlock);
  blocks.Give(all, kPinned);
  EXPECT_EQ(blocks.stats().unpinned_bytes_out, 0);
  EXPECT_TRUE(pinned.Has(blocks.Take(kBlock)));  // what is pinned comes first
}

TEST(PinnedBlocks, NoMoreOrdinaryMemoryIsKeptThanWasOutAtATime) {
  const Pinned pinned;
  PinnedBlocks blocks(pinned.pool());
  std::byte* const all = blocks.Take(kPinned);
  int64_t most = 0;
  for (const size_t size : {3 * kBlock, 5 * kBlock, kBlock, 2 * kBlock, 4 * kBlock, 5 * kBlock}) {
    std::byte* const block = blocks.Take(size);
    ASSERT_NE(block, nullptr);
    std::memset(block, 1, size);
    most = std::max(most, static_cast<int64_t>(size));
    const PinnedBlocks::Stats stats = blocks.stats();
    EXPECT_LE(stats.unpinned_bytes_out + stats.unpinned_bytes_idle, most);
    blocks.Give(block, size);
    EXPECT_LE(blocks.stats().unpinned_bytes_idle, most);
  }
  EXPECT_GT(blocks.stats().unpinned_bytes_idle, 0);
  blocks.Give(all, kPinned);
}

TEST(PinnedBlocks, APoolOverThemHasItsOwnLimitAndOutlivesNothingItNeeds) {
  const Pinned pinned;
  const auto blocks = std::make_shared<PinnedBlocks>(pinned.pool());
  std::vector<Buffer> buffers;
  {
    BufferPool pool({.max_bytes = 6 * kBlock, .blocks = blocks});
    for (int i = 0; i < 6; ++i) buffers.push_back(pool.Allocate(kBlock).value());
    EXPECT_EQ(pool.Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
  }
  std::memset(buffers[5].data(), 1, kBlock);
  buffers.clear();
  EXPECT_EQ(blocks->stats().pinned_bytes_out, 0);
  EXPECT_EQ(blocks->stats().unpinned_bytes_out, 0);
}

}  // namespace
}  // namespace cpshard
