// The contract of Executor as a suite of tests: see executor_contract_*.cc. An executor gets in by
// naming a factory in INSTANTIATE_TEST_SUITE_P(Name, ExecutorContract, ...).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/exec/executor.h"
#include "tests/exec/encode.h"

namespace cpshard {

struct ExecutorFactory {
  std::string name;
  std::function<std::unique_ptr<Executor>()> make;
  friend void PrintTo(const ExecutorFactory& factory, std::ostream* out) { *out << factory.name; }
};

// Memory for a source: it begins `offset` bytes after a cache line and ends where the allocation
// ends, so that a sanitizer sees one byte read too many.
class SourceMemory {
 public:
  SourceMemory(size_t offset, size_t size) : offset_(offset), size_(size) {
    void* block = nullptr;
    if (posix_memalign(&block, 64, offset + size + (offset + size == 0)) != 0) std::abort();
    block_.reset(static_cast<std::byte*>(block));
  }
  std::byte* data() const { return block_.get() + offset_; }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* block) const { std::free(block); }
  };
  size_t offset_, size_;
  std::unique_ptr<std::byte, Free> block_;
};

// Memory for a destination, `offset` bytes after a cache line, with guard bytes around it and in
// the gaps that nobody writes. A test writes what it expects beside it; Matches() compares all.
class GuardedMemory {
 public:
  GuardedMemory(size_t offset, size_t size)
      : actual_(kGuard + offset + size + kGuard + 64), start_(kGuard + offset), size_(size) {
    start_ += (64 - reinterpret_cast<uintptr_t>(actual_.data() + kGuard) % 64) % 64;
    for (size_t i = 0; i < actual_.size(); ++i) actual_[i] = static_cast<std::byte>(0xa5 ^ i * 29);
    expected_ = actual_;
  }
  std::byte* data() { return actual_.data() + start_; }
  std::byte* expected() { return expected_.data() + start_; }

  testing::AssertionResult Matches() const {
    if (std::memcmp(actual_.data(), expected_.data(), actual_.size()) == 0) {
      return testing::AssertionSuccess();
    }
    size_t i = 0;
    while (actual_[i] == expected_[i]) ++i;
    return testing::AssertionFailure()
           << "byte " << static_cast<int64_t>(i) - static_cast<int64_t>(start_) << " of " << size_
           << " is " << std::to_integer<int>(actual_[i]) << ", expected "
           << std::to_integer<int>(expected_[i]);
  }

 private:
  static constexpr size_t kGuard = 128;
  std::vector<std::byte> actual_, expected_;
  size_t start_, size_;
};

inline std::shared_ptr<const std::vector<Moves>> Share(std::vector<Moves> rows) {
  return std::make_shared<const std::vector<Moves>>(std::move(rows));
}

// `bytes` from source to dest.
inline CutTask CopyOf(const std::byte* source, std::byte* dest, int64_t bytes) {
  CutTask task;
  task.source = source;
  task.outer = 1;
  task.column_bytes = 1;
  task.dtype = DType::kU8;
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, 0, 0, bytes, 0}}});
  task.dests = {dest};
  task.dest_strides = {bytes};
  return task;
}

class ExecutorContract : public testing::TestWithParam<ExecutorFactory> {
 protected:
  // One task; it must succeed.
  void Execute(const Task& task) { ExecuteAll({task}); }
  void ExecuteAll(const std::vector<Task>& tasks) {
    const absl::Status status = executor_->Run(tasks);
    ASSERT_TRUE(status.ok()) << status;
  }

  const std::unique_ptr<Executor> executor_ = GetParam().make();
};

// Calls fn(source offset, dest offset): each from 0 to 64 with the other aligned, and some pairs.
template <typename Fn>
void ForAlignments(Fn fn) {
  for (size_t offset = 0; offset <= 64; ++offset) {
    fn(offset, size_t{0});
    fn(size_t{0}, offset);
    fn(offset, offset * 7 % 65);
  }
}

}  // namespace cpshard
