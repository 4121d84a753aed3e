#include "core/exec/device/fixed_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace cpshard {
namespace {

// Memory that nobody may touch: the pool keeps its books elsewhere.
std::byte* Untouchable() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 20); }

FixedPool PoolOf(int64_t bytes) { return FixedPool(nullptr, Untouchable(), bytes); }

TEST(FixedPool, BuffersDoNotOverlapAndAreAligned) {
  FixedPool pool = PoolOf(1 << 16);
  std::mt19937 random(2);
  std::vector<Buffer> held;
  for (int round = 0; round < 5000; ++round) {
    if (!held.empty() && random() % 2 == 0) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
      continue;
    }
    const absl::StatusOr<Buffer> buffer = pool.Allocate(1 + random() % 5000);
    if (!buffer.ok()) continue;
    ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % FixedPool::kAlignment, 0u);
    ASSERT_GE(buffer->data(), Untouchable());
    ASSERT_LE(buffer->data() + buffer->size(), Untouchable() + (1 << 16));
    for (const Buffer& other : held) {
      ASSERT_TRUE(buffer->data() >= other.data() + other.size() ||
                  other.data() >= buffer->data() + buffer->size());
    }
    held.push_back(*buffer);
  }
  held.clear();
  EXPECT_EQ(pool.stats().bytes_out, 0);
  EXPECT_EQ(pool.stats().buffers_out, 0);
  EXPECT_EQ(pool.stats().largest_gap, 1 << 16);  // all gaps have joined
}

TEST(FixedPool, WhatDoesNotFitIsRefusedWithTheNumbers) {
  FixedPool pool = PoolOf(1024);
  const absl::StatusOr<Buffer> held = pool.Allocate(500);
  ASSERT_TRUE(held.ok());
  const absl::Status status = pool.Allocate(600).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "fixed pool: 768 bytes asked for; 512 of 1024 are in use, the largest gap has 512");
  EXPECT_EQ(pool.Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.Allocate(INT64_MAX).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FixedPool, NothingAskedForIsNothingTaken) {
  FixedPool pool = PoolOf(0);
  EXPECT_TRUE(pool.Allocate(0).ok());
  EXPECT_EQ(pool.Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(FixedPool, ABufferKeepsTheBlockWhenThePoolHasGone) {
  auto block = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = block;
  Buffer buffer;
  {
    FixedPool pool(std::move(block), Untouchable(), 1024);
    buffer = *pool.Allocate(10);
  }
  EXPECT_FALSE(watched.expired());
  buffer = {};
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace cpshard
