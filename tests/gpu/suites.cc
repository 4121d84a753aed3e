// The suites of tests/exec on a GPU, in every way that memory reaches it.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/exec/cuda.h"
#include "tests/exec/device_equality.h"
#include "tests/gpu/laid_out.h"
#include "tests/gpu/swap.h"

namespace cpshard {
namespace {

constexpr int64_t kMemoryBytes = 64 << 20;

CudaExecutorOptions Options(int64_t pinned_bytes, int64_t piece_bytes) {
  CudaExecutorOptions options;
  options.memory_bytes = kMemoryBytes;
  options.pinned_bytes = pinned_bytes;
  options.executor.piece_bytes = piece_bytes;
  return options;
}

ExecutorFactory Pageable(std::string name, const CudaExecutorOptions& options) {
  return {std::move(name), [options] { return MadeExecutor(options); }};
}

// One for all tests of a kind of memory: pinned memory is slow to get.
const absl::StatusOr<FixedPool>& SharedPool(bool is_pinned) {
  static const auto* const pinned = new auto(MakePinnedPool(0, kMemoryBytes));
  static const auto* const device = new auto(MakeCudaMemoryPool(0, kMemoryBytes));
  return is_pinned ? *pinned : *device;
}

ExecutorFactory LaidOut(std::string name, bool is_pinned, const CudaExecutorOptions& options) {
  return {std::move(name), [=] {
            const absl::StatusOr<FixedPool>& pool = SharedPool(is_pinned);
            return pool.ok() ? MakeLaidOutExecutor(MadeExecutor(options), *pool)
                             : RefusingExecutor(pool.status());
          }};
}

CudaExecutorOptions WithPinned(PinnedSource source) {
  CudaExecutorOptions options = Options(1 << 20, 4096);
  options.executor.pinned_source = source;
  return options;
}

CudaExecutorOptions ReturningEarly() {
  CudaExecutorOptions options = Options(1 << 20, 4096);
  options.executor.return_early = true;
  return options;
}

CudaExecutorOptions OnTheDefaultStream(CudaExecutorOptions options) {
  options.stream = nullptr;
  return options;
}

const auto kEveryWay = testing::Values(
    Pageable("pageable", Options(32 << 20, 4096)),
    Pageable("pageable_through_little", Options(4096, 4096)),
    Pageable("small_pieces", Options(32 << 20, 100)),
    Pageable("pageable_on_a_callers_stream", OnTheDefaultStream(Options(32 << 20, 4096))),
    LaidOut("pinned_in_place", true, WithPinned(PinnedSource::kReadInPlace)),
    LaidOut("pinned_copied_first", true, WithPinned(PinnedSource::kCopyFirst)),
    LaidOut("pinned_on_a_callers_stream", true,
            OnTheDefaultStream(WithPinned(PinnedSource::kCopyFirst))),
    LaidOut("device", false, Options(1 << 20, 4096)),
    LaidOut("device_through_little", false, Options(4096, 100)),
    LaidOut("device_returning_early_on_a_callers_stream", false,
            OnTheDefaultStream(ReturningEarly())));

std::string NameOf(const testing::TestParamInfo<ExecutorFactory>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Gpu, ExecutorContract, kEveryWay, NameOf);
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceEquality, kEveryWay, NameOf);

}  // namespace
}  // namespace cpshard
