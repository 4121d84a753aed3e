#include "core/exec/device/device_executor.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/exec/device/bounce.h"
#include "core/exec/device/device_lost.h"
#include "core/exec/device/parts.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kDirectCopy = 64 << 10;  // pinned memory this long needs no bounce
constexpr size_t kMostSpare = 16 << 20;    // of memory kept between Runs

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(std::unique_ptr<Device> device, DeviceExecutorOptions options)
      : options_(options), name_(device->name()), device_(std::move(device)), bounce_(*device_) {}

  ~DeviceExecutor() override {
    absl::MutexLock lock(&mutex_);
    device_->Finish().IgnoreError();
  }

  absl::Status Run(absl::Span<const Task> tasks) override {
    absl::MutexLock lock(&mutex_);
    CPSHARD_RETURN_IF_ERROR(device_->Begin());
    bool all_own = true, begun = false;
    const auto access_to = [&](const Interval& memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return AccessOf(memory, all_own);
    };
    const auto carry = [&](const Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      begun = true;
      return Carry(part);
    };
    absl::Status status =
        InParts(tasks, access_to, options_.piece_bytes, device_->memory(), block_, carry);
    if (block_.capacity() > kMostSpare) block_ = {};
    if (!begun) return status;
    if (status.ok() && (!options_.return_early || !all_own)) status = device_->Finish();
    return status.ok() ? status : Settle(std::move(status));
  }

  absl::string_view name() const override { return name_; }

 private:
  // After an error nothing may be under way that still reads or writes the caller's memory. Where
  // that cannot be had the device is lost, whatever the error was.
  absl::Status Settle(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status end = device_->Finish();
    bounce_.Reset();
    return IsDeviceLost(end) ? end : error;
  }

  // `all_own` becomes false where the memory is not all the device's.
  absl::StatusOr<Access> AccessOf(const Interval& memory, bool& all_own)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    using Reach = Device::Reach;
    const auto reach_of = [this](uint64_t at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return device_->ReachOf(reinterpret_cast<const std::byte*>(at));
    };
    CPSHARD_ASSIGN_OR_RETURN(const Reach first, reach_of(memory.begin));
    CPSHARD_ASSIGN_OR_RETURN(const Reach last, reach_of(memory.end - 1));
    if (first != last) {
      // Tasks might get at the same bytes in two ways, with copies that do not see each other.
      constexpr absl::string_view kNames[] = {"pageable", "pinned", "the device's"};
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": of the ", memory.end - memory.begin,
                       " bytes on end that a task names the first is ",
                       kNames[static_cast<int>(first)], " memory, the last ",
                       kNames[static_cast<int>(last)], ": one tensor lies in one of them"));
    }
    if (first == Reach::kOwn) return Access::kInPlace;
    all_own = false;
    if (first == Reach::kNone) return Access::kBounced;
    return options_.pinned_source == PinnedSource::kReadInPlace ? Access::kInPlace
                                                                : Access::kCopied;
  }

  absl::Status Carry(const Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t block = reinterpret_cast<uintptr_t>(device_->memory().begin);
    const uint64_t table_at = block + part.table_at;
    for (const Staging::Region& in : part.in) {
      const auto* host = reinterpret_cast<const std::byte*>(in.memory.begin);
      const auto bytes = static_cast<int64_t>(in.memory.end - in.memory.begin);
      CPSHARD_RETURN_IF_ERROR(GoesDirect(in) ? device_->CopyIn(block + in.offset, host, bytes)
                                             : bounce_.In(block + in.offset, host, bytes));
    }
    CPSHARD_RETURN_IF_ERROR(bounce_.In(table_at, part.table.block.data(),
                                       static_cast<int64_t>(part.table.block.size())));
    CPSHARD_RETURN_IF_ERROR(bounce_.Flush());
    for (const WorkTable::Launch& launch : part.table.launches) {
      CPSHARD_RETURN_IF_ERROR(
          device_->Launch(reinterpret_cast<const Rule*>(table_at),
                          reinterpret_cast<const Piece*>(table_at + launch.offset), launch.pieces));
    }
    bool direct = false;
    for (const Staging::Region& out : part.out) {
      auto* host = reinterpret_cast<std::byte*>(out.memory.begin);
      const auto bytes = static_cast<int64_t>(out.memory.end - out.memory.begin);
      direct = direct || GoesDirect(out);
      CPSHARD_RETURN_IF_ERROR(GoesDirect(out) ? device_->CopyOut(host, block + out.offset, bytes)
                                              : bounce_.Out(host, block + out.offset, bytes));
    }
    if (!part.out.empty()) CPSHARD_RETURN_IF_ERROR(bounce_.Drain());
    // The CPU may be the one that reads it next, for another part.
    return direct ? device_->Finish() : absl::OkStatus();
  }

  // Whether the copy engine takes these bytes from where they lie, or puts them there.
  static bool GoesDirect(const Staging::Region& region) {
    return region.pinned &&
           static_cast<int64_t>(region.memory.end - region.memory.begin) >= kDirectCopy;
  }

  const DeviceExecutorOptions options_;
  const std::string name_;
  absl::Mutex mutex_;
  const std::unique_ptr<Device> device_ ABSL_PT_GUARDED_BY(mutex_);
  Bounce bounce_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte> block_ ABSL_GUARDED_BY(mutex_);  // memory for the next table
};

}  // namespace

std::unique_ptr<Executor> MakeDeviceExecutor(std::unique_ptr<Device> device,
                                             DeviceExecutorOptions options) {
  return std::make_unique<DeviceExecutor>(std::move(device), options);
}

}  // namespace cpshard
