#include "core/exec/device/device_executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/batch/buffer.h"
#include "core/exec/device/bounce.h"
#include "core/exec/device/staging.h"
#include "core/exec/device/strips.h"
#include "core/exec/device/work_table.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kDirectCopy = 64 << 10;  // pinned memory this long needs no bounce

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(std::unique_ptr<Device> device, DeviceExecutorOptions options)
      : options_(options), name_(device->name()), device_(std::move(device)) {}

  absl::Status Run(absl::Span<const Task> tasks) override {
    absl::MutexLock lock(&mutex_);
    CPSHARD_ASSIGN_OR_RETURN(Strips strips, StripsOf(tasks, [this](const std::byte* memory) {
                               return Reached(memory);
                             }));
    const Staging staging = StagingOf(strips);
    const Device::Memory memory = device_->memory();
    const auto begin = reinterpret_cast<uintptr_t>(memory.begin);
    Restage(strips, staging, begin);
    const int64_t table_at = AlignUp(staging.bytes);
    CPSHARD_ASSIGN_OR_RETURN(
        const WorkTable table,
        TableOf(strips, options_.piece_bytes, std::max<int64_t>(memory.size - table_at, 0)));
    const auto table_bytes = static_cast<int64_t>(table.block.size());
    if (table.launches.empty()) return absl::OkStatus();
    if (table_at > memory.size || table_bytes > memory.size - table_at) {
      return absl::ResourceExhaustedError(absl::StrCat(
          name_, ": ", staging.bytes, " bytes of copies and ", table_bytes,
          " of tables do not fit the ", memory.size,
          " bytes of device memory: give the executor more, or shard fewer ranks at a time"));
    }
    const absl::Status status = Carry(staging, table, begin, begin + table_at);
    // After an error nothing may be under way that still reads or writes the caller's memory.
    if (!status.ok()) device_->Finish().IgnoreError();
    return status;
  }

  absl::string_view name() const override { return name_; }

 private:
  absl::StatusOr<bool> Reached(const std::byte* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CPSHARD_ASSIGN_OR_RETURN(const Device::Reach reach, device_->ReachOf(memory));
    return reach == Device::Reach::kOwn || (reach == Device::Reach::kPinned &&
                                            options_.pinned_source == PinnedSource::kReadInPlace);
  }

  // Whether the copy engine takes these bytes from where they lie, or puts them there.
  absl::StatusOr<bool> GoesDirect(const std::byte* memory, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // Where pinned memory is read in place, what is copied is not pinned.
    if (options_.pinned_source == PinnedSource::kReadInPlace || bytes < kDirectCopy) return false;
    CPSHARD_ASSIGN_OR_RETURN(const Device::Reach reach, device_->ReachOf(memory));
    return reach == Device::Reach::kPinned;
  }

  absl::Status Carry(const Staging& staging, const WorkTable& table, uint64_t block,
                     uint64_t table_at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Bounce bounce(*device_);
    for (const Staging::Region& in : staging.in) {
      const auto* host = reinterpret_cast<const std::byte*>(in.memory.begin);
      const auto bytes = static_cast<int64_t>(in.memory.end - in.memory.begin);
      CPSHARD_ASSIGN_OR_RETURN(const bool direct, GoesDirect(host, bytes));
      CPSHARD_RETURN_IF_ERROR(direct ? device_->CopyIn(block + in.offset, host, bytes)
                                     : bounce.In(block + in.offset, host, bytes));
    }
    CPSHARD_RETURN_IF_ERROR(
        bounce.In(table_at, table.block.data(), static_cast<int64_t>(table.block.size())));
    CPSHARD_RETURN_IF_ERROR(bounce.Flush());
    for (const WorkTable::Launch& launch : table.launches) {
      CPSHARD_RETURN_IF_ERROR(
          device_->Launch(reinterpret_cast<const Rule*>(table_at),
                          reinterpret_cast<const Piece*>(table_at + launch.offset), launch.pieces));
    }
    for (const Staging::Region& out : staging.out) {
      auto* host = reinterpret_cast<std::byte*>(out.memory.begin);
      const auto bytes = static_cast<int64_t>(out.memory.end - out.memory.begin);
      CPSHARD_ASSIGN_OR_RETURN(const bool direct, GoesDirect(host, bytes));
      CPSHARD_RETURN_IF_ERROR(direct ? device_->CopyOut(host, block + out.offset, bytes)
                                     : bounce.Out(host, block + out.offset, bytes));
    }
    CPSHARD_RETURN_IF_ERROR(bounce.Drain());
    return device_->Finish();
  }

  const DeviceExecutorOptions options_;
  const std::string name_;
  absl::Mutex mutex_;
  const std::unique_ptr<Device> device_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Executor> MakeDeviceExecutor(std::unique_ptr<Device> device,
                                             DeviceExecutorOptions options) {
  return std::make_unique<DeviceExecutor>(std::move(device), options);
}

}  // namespace cpshard
