// One task of more elements than 31 bits count, where a device has the memory for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "tests/gpu/anchors.h"
#include "tests/gpu/swap.h"

namespace cpshard {
namespace {

// Bytes that come again after so many, which no power of two is a multiple of.
class Pattern {
 public:
  Pattern() : bytes_((1 << 23) - 39) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i * i >> 7);
  }

  // byte i becomes whether it was not zero
  void MakeFlags() {
    for (std::byte& byte : bytes_) byte = byte == std::byte{0} ? byte : std::byte{1};
  }

  // Calls fn(at, bytes, size) for the pieces of `total` bytes of the pattern from `first` on.
  template <typename Fn>
  void ForPieces(int64_t first, int64_t total, Fn fn) const {
    const auto period = static_cast<int64_t>(bytes_.size());
    for (int64_t at = 0; at < total;) {
      const int64_t from = (first + at) % period;
      const int64_t size = std::min(total - at, period - from);
      fn(at, bytes_.data() + from, size);
      at += size;
    }
  }

 private:
  std::vector<std::byte> bytes_;
};

absl::Status Write(std::byte* to, int64_t total, const Pattern& pattern) {
  absl::Status status;
  pattern.ForPieces(0, total, [&](int64_t at, const std::byte* bytes, int64_t size) {
    status.Update(EnqueueCopy(to + at, bytes, size));
  });
  status.Update(WaitForDevice());
  return status;
}

// Whether memory of the device holds the pattern from its byte `first` on.
testing::AssertionResult Holds(const std::byte* memory, int64_t total, const Pattern& pattern,
                               int64_t first) {
  testing::AssertionResult result = testing::AssertionSuccess();
  std::vector<std::byte> found;
  pattern.ForPieces(first, total, [&](int64_t at, const std::byte* bytes, int64_t size) {
    found.resize(size);
    const absl::Status status = CopyNow(found.data(), memory + at, size);
    if (!status.ok()) {
      result = testing::AssertionFailure() << status;
    } else if (result && std::memcmp(found.data(), bytes, size) != 0) {
      const auto wrong = std::mismatch(found.begin(), found.end(), bytes).first - found.begin();
      result = testing::AssertionFailure() << "byte " << at + wrong << " of " << total;
    }
  });
  return result;
}

class GpuLarge : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    const auto devices = CudaDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    const int64_t needed = 2 * kStride + (int64_t{512} << 20);
    if (devices->front().memory_bytes < needed) {
      GTEST_SKIP() << absl::StrCat("needs ", needed, " bytes of device memory, of which there are ",
                                   devices->front().memory_bytes);
    }
    auto pool = MakeCudaMemoryPool(0, 2 * kStride);
    if (absl::IsResourceExhausted(pool.status())) GTEST_SKIP() << pool.status().message();
    ASSERT_TRUE(pool.ok()) << pool.status();
    memory_ = *pool->Allocate(2 * kStride);
    source_ = memory_.data();
    dest_ = memory_.data() + kStride;
    ASSERT_TRUE(Write(source_, count(), pattern_).ok());
  }

  static int64_t count() { return GetParam(); }

  const int64_t kStride = (count() + 255) / 256 * 256;
  Pattern pattern_;
  Buffer memory_;
  std::byte* source_ = nullptr;
  std::byte* dest_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Gpu, GpuLarge,
                         testing::Values((int64_t{1} << 24) + 122, (int64_t{1} << 31) + 122),
                         [](const auto& info) { return absl::StrCat(info.param, "_elements"); });

TEST_P(GpuLarge, OneCutMovesAllOfThem) {
  const Task tasks[] = {Swap(source_, dest_, count())};
  const absl::Status status = MadeExecutor()->Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Holds(dest_, count() / 2, pattern_, count() / 2));
  EXPECT_TRUE(Holds(dest_ + count() / 2, count() / 2, pattern_, 0));
}

TEST_P(GpuLarge, OneDerivationMakesAllOfThem) {
  DeriveTask task;
  task.source = source_;
  task.source_dtype = DType::kU8;
  task.dest = dest_;
  task.dest_dtype = DType::kBool;
  task.count = count();
  const Task tasks[] = {task};
  const absl::Status status = MadeExecutor()->Run(tasks);
  ASSERT_TRUE(status.ok()) << status;
  pattern_.MakeFlags();
  EXPECT_TRUE(Holds(dest_, count(), pattern_, 0));
}

}  // namespace
}  // namespace cpshard
