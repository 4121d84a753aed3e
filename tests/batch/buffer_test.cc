#include "core/batch/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace cpshard {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMega = size_t{1} << 20;

void ExpectNothingOut(const BufferPool& pool) {
  EXPECT_EQ(pool.stats().buffers_out, 0u);
  EXPECT_EQ(pool.stats().bytes_out, 0u);
}

void Paint(const Buffer& buffer, int value) { std::memset(buffer.data(), value, buffer.size()); }

bool IsPainted(const Buffer& buffer, int value) {
  for (size_t i = 0; i < buffer.size(); ++i) {
    if (buffer.data()[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

TEST(BufferPool, EveryBlockHasItsSizeAndAlignment) {
  BufferPool pool;
  std::vector<Buffer> buffers;
  for (size_t size : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4095}, size_t{4096},
                      size_t{4097}, size_t{5120}, size_t{5121}, size_t{100'000}, 2 * kMega - 1,
                      2 * kMega, 2 * kMega + 1, 5 * kMega + 3}) {
    const absl::StatusOr<Buffer> buffer = pool.Allocate(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kBufferAlignment, 0u) << size;
    Paint(*buffer, static_cast<int>(buffers.size()));
    buffers.push_back(*buffer);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {  // no block overlaps another
    EXPECT_TRUE(IsPainted(buffers[i], static_cast<int>(i))) << i;
  }
}

TEST(BufferPool, SizeZeroIsAnEmptyBufferThatTakesNothing) {
  BufferPool pool;
  const absl::StatusOr<Buffer> buffer = pool.Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0u);
  EXPECT_EQ(buffer->data(), nullptr);
  ExpectNothingOut(pool);
}

TEST(BufferPool, ABlockIsGivenBackWithItsLastHandle) {
  BufferPool pool;
  std::optional<Buffer> first = pool.Allocate(1000).value();
  std::optional<Buffer> copy = *first;
  std::optional<Buffer> slice = first->Slice(100, 8);
  EXPECT_EQ(pool.stats().buffers_out, 1u);
  EXPECT_GE(pool.stats().bytes_out, 1000u);
  first.reset();
  copy.reset();
  EXPECT_EQ(pool.stats().buffers_out, 1u);
  slice.reset();
  ExpectNothingOut(pool);
}

TEST(BufferPool, ASliceIsAWindowOnTheSameBytes) {
  BufferPool pool;
  const Buffer whole = pool.Allocate(100).value();
  const Buffer slice = whole.Slice(30, 5);
  EXPECT_EQ(slice.data(), whole.data() + 30);
  EXPECT_EQ(slice.size(), 5u);
  EXPECT_EQ(whole.Slice(100, 0).size(), 0u);
}

TEST(BufferPool, AReturnedBlockIsUsedAgain) {
  BufferPool pool;
  const std::byte* before = pool.Allocate(3 * kMega).value().data();
  EXPECT_GE(pool.stats().bytes_idle, 3 * kMega);
  const Buffer again = pool.Allocate(3 * kMega).value();
  EXPECT_EQ(again.data(), before);
  EXPECT_EQ(pool.stats().bytes_idle, 0u);
}

TEST(BufferPool, KeepsNoMoreIdleBytesThanItMay) {
  BufferPool pool({.max_bytes = 64 * kMega, .max_idle_bytes = 4 * kMega});
  std::vector<Buffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(pool.Allocate(kMega).value());
  buffers.clear();
  EXPECT_LE(pool.stats().bytes_idle, 4 * kMega);
  EXPECT_GT(pool.stats().bytes_idle, 0u);
  ExpectNothingOut(pool);
}

TEST(BufferPool, RefusesToPassItsLimitAndNamesTheNumbers) {
  BufferPool pool({.max_bytes = 8 * kMega});
  std::optional<Buffer> first = pool.Allocate(4 * kMega).value();
  const Buffer second = pool.Allocate(4 * kMega).value();
  const absl::Status refused = pool.Allocate(4 * kMega).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("8388608"));  // in use, and the limit
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4194304"));
  EXPECT_EQ(pool.stats().buffers_out, 2u);
  first.reset();
  EXPECT_TRUE(pool.Allocate(4 * kMega).ok());
}

TEST(BufferPool, IdleBlocksMakeRoomForAnotherSize) {
  BufferPool pool({.max_bytes = 8 * kMega, .max_idle_bytes = 8 * kMega});
  { const Buffer small = pool.Allocate(kMega).value(); }
  { const Buffer small = pool.Allocate(2 * kMega).value(); }
  const absl::StatusOr<Buffer> all = pool.Allocate(8 * kMega);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(pool.stats().bytes_idle, 0u);
}

TEST(BufferPool, RefusesASizeThatNoMachineHas) {
  BufferPool pool;
  for (size_t size : {size_t{1} << 62, size_t{1} << 63, std::numeric_limits<size_t>::max() - 4096,
                      std::numeric_limits<size_t>::max()}) {
    EXPECT_EQ(pool.Allocate(size).status().code(), absl::StatusCode::kResourceExhausted) << size;
  }
  ExpectNothingOut(pool);
}

TEST(BufferPool, ABufferMayOutliveThePool) {
  std::optional<BufferPool> pool(std::in_place);
  const Buffer buffer = pool->Allocate(kMega).value();
  Paint(buffer, 7);
  pool.reset();
  EXPECT_TRUE(IsPainted(buffer, 7));
}

TEST(BufferPool, BuffersMayGoOnAnyThread) {
  BufferPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::vector<Buffer> held;
      for (size_t i = 0; i < 500; ++i) {
        const Buffer buffer = pool.Allocate(1 + (i * 7919 + t * 131) % 20'000).value();
        Paint(buffer, t);
        held.push_back(buffer);
        if (held.size() == 16) {
          for (const Buffer& old : held) ASSERT_TRUE(IsPainted(old, t));
          held.clear();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectNothingOut(pool);
}

TEST(Buffer, AnEmptyOneHasNoBytes) {
  EXPECT_EQ(Buffer().size(), 0u);
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST(Buffer, KeepsItsOwnerAliveAsLongAsAnyHandle) {
  auto owner = std::make_shared<std::vector<std::byte>>(16);
  const std::weak_ptr<void> watch = owner;
  std::byte* data = owner->data();
  std::optional<Buffer> slice = Buffer(std::move(owner), data, 16).Slice(4, 4);
  EXPECT_FALSE(watch.expired());
  slice.reset();
  EXPECT_TRUE(watch.expired());
}

// Blocks of somebody else's, of which there are so many bytes.
class CountedBlocks final : public BlockSource {
 public:
  explicit CountedBlocks(size_t bytes) : bytes_(bytes) {}

  std::byte* Take(size_t size) override {
    if (out_ + size > bytes_) return nullptr;
    out_ += size;
    return SystemBlocks()->Take(size);
  }
  void Give(std::byte* block, size_t size) override {
    out_ -= size;
    SystemBlocks()->Give(block, size);
  }
  size_t out() const { return out_; }

 private:
  const size_t bytes_;
  size_t out_ = 0;
};

TEST(BufferPool, BlocksOfAnotherSourceGoBackToItAtOnce) {
  const auto blocks = std::make_shared<CountedBlocks>(64 * kMega);
  BufferPool pool({.max_idle_bytes = 64 * kMega, .blocks = blocks});
  {
    const Buffer buffer = pool.Allocate(3 * kMega).value();
    EXPECT_GE(blocks->out(), 3 * kMega);
    EXPECT_EQ(pool.stats().bytes_out, blocks->out());
    Paint(buffer, 7);
  }
  EXPECT_EQ(blocks->out(), 0u);
  EXPECT_EQ(pool.stats().bytes_idle, 0u);
  ExpectNothingOut(pool);
}

TEST(BufferPool, TheLimitHoldsHoweverMuchAnotherSourceHas) {
  const auto blocks = std::make_shared<CountedBlocks>(64 * kMega);
  BufferPool pool({.max_bytes = 8 * kMega, .blocks = blocks});
  const Buffer held = pool.Allocate(6 * kMega).value();
  const absl::Status refused = pool.Allocate(4 * kMega).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(NeverFits(refused));
  EXPECT_TRUE(NeverFits(pool.Allocate(9 * kMega).status()));
  EXPECT_EQ(blocks->out(), pool.stats().bytes_out);
}

TEST(BufferPool, ASourceThatHasNothingLeftIsARefusalThatTakesNothing) {
  const auto blocks = std::make_shared<CountedBlocks>(4 * kMega);
  BufferPool pool({.blocks = blocks});
  std::optional<Buffer> held = pool.Allocate(3 * kMega).value();
  const BufferPoolStats before = pool.stats();
  const absl::Status refused = pool.Allocate(2 * kMega).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(NeverFits(refused));
  EXPECT_EQ(pool.stats().bytes_out, before.bytes_out);
  EXPECT_EQ(pool.stats().buffers_out, 1u);
  held.reset();
  EXPECT_TRUE(pool.Allocate(2 * kMega).ok());
}

TEST(BufferPool, ABufferOfAnotherSourceGoesBackToItAfterThePool) {
  const auto blocks = std::make_shared<CountedBlocks>(4 * kMega);
  std::optional<BufferPool> pool(std::in_place, BufferPoolOptions{.blocks = blocks});
  std::optional<Buffer> buffer = pool->Allocate(kMega).value();
  pool.reset();
  Paint(*buffer, 3);
  EXPECT_GE(blocks->out(), kMega);
  buffer.reset();
  EXPECT_EQ(blocks->out(), 0u);
}

}  // namespace
}  // namespace cpshard
