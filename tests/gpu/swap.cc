#include "tests/gpu/swap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "tests/exec/executor_contract.h"

namespace cpshard {
namespace {

class Refusing : public Executor {
 public:
  explicit Refusing(absl::Status status) : status_(std::move(status)) {}
  absl::Status Run(absl::Span<const Task>) override { return status_; }
  absl::string_view name() const override { return "none"; }

 private:
  const absl::Status status_;
};

}  // namespace

std::unique_ptr<Executor> MadeExecutor(const CudaExecutorOptions& options) {
  auto executor = MakeCudaExecutor(0, options);
  if (executor.ok()) return *std::move(executor);
  ADD_FAILURE() << executor.status();
  return RefusingExecutor(executor.status());
}

std::unique_ptr<Executor> RefusingExecutor(absl::Status status) {
  return std::make_unique<Refusing>(std::move(status));
}

CutTask Swap(const std::byte* source, std::byte* dest, int64_t bytes) {
  CutTask task = CopyOf(source, dest, bytes);
  task.moves = Share({{{Move::Kind::kCopy, 0, 0, 0, bytes / 2, bytes / 2, 0},
                       {Move::Kind::kCopy, 0, 0, bytes / 2, 0, bytes / 2, 0}}});
  return task;
}

void FillWithNumbers(std::byte* memory, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) {
    memory[i] = static_cast<std::byte>((i * i >> 3) + (i >= bytes / 2 ? 1 : 0));
  }
}

bool IsSwapped(const std::byte* dest, const std::byte* source, int64_t bytes) {
  const int64_t half = bytes / 2;
  return std::memcmp(dest, source + half, half) == 0 && std::memcmp(dest + half, source, half) == 0;
}

}  // namespace cpshard
