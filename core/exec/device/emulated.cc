#include "core/exec/device/emulated.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/device/bodies.h"
#include "core/exec/device/device_lost.h"

namespace cpshard {
namespace {

constexpr int64_t kAlignment = 256;

struct HostMemory {
  void Round(uint32_t) {}

  template <typename T>
  T Load(uint64_t address) {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    return value;
  }
  template <typename T>
  void Store(uint64_t address, T value) {
    std::memcpy(reinterpret_cast<void*>(address), &value, sizeof(T));
  }
};

// The same, remembering the accesses of the lanes of one warp.
class CountedMemory {
 public:
  explicit CountedMemory(DeviceTraffic& traffic) : traffic_(traffic) {}

  void Round(uint32_t round) {
    round_ = round;
    loads_ = stores_ = 0;
  }

  template <typename T>
  T Load(uint64_t address) {
    Note(false, loads_++, address, sizeof(T));
    traffic_.bytes_read += sizeof(T);
    return HostMemory().Load<T>(address);
  }
  template <typename T>
  void Store(uint64_t address, T value) {
    Note(true, stores_++, address, sizeof(T));
    traffic_.bytes_written += sizeof(T);
    HostMemory().Store<T>(address, value);
  }

  // The lanes have all been.
  void EndWarp() {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    const Touched* before = nullptr;
    for (const Touched& now : touched_) {
      const bool is_store = std::get<0>(now);
      ++(is_store ? traffic_.written_sectors : traffic_.read_sectors);
      const bool joined = before != nullptr && std::get<0>(*before) == is_store &&
                          std::get<1>(*before) == std::get<1>(now) &&
                          std::get<2>(*before) == std::get<2>(now);
      if (!joined) ++(is_store ? traffic_.writes : traffic_.reads);
      before = &now;
    }
    touched_.clear();
  }

 private:
  using Touched = std::tuple<bool, uint32_t, uint32_t, uint64_t>;  // store, round, which, sector

  void Note(bool is_store, uint32_t which, uint64_t address, size_t size) {
    if (address % size != 0) ++traffic_.misaligned;
    for (uint64_t sector = address / 32; sector <= (address + size - 1) / 32; ++sector) {
      touched_.emplace_back(is_store, round_, which, sector);
    }
  }

  DeviceTraffic& traffic_;
  uint32_t round_ = 0, loads_ = 0, stores_ = 0;
  std::vector<Touched> touched_;
};

class EmulatedDevice : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options)
      : options_(options),
        memory_(new std::byte[options.memory_bytes + kAlignment]),
        pinned_(new std::byte[options.pinned_bytes]) {}

  absl::string_view name() const override { return "emulated-device"; }

  absl::StatusOr<Reach> ReachOf(const std::byte* memory) override {
    if (lost_) return Lost();
    const std::byte* begin = this->memory().begin;
    const bool own = memory >= begin && memory < begin + options_.memory_bytes;
    return own ? Reach::kOwn : options_.host_memory;
  }

  Memory memory() override {
    const auto at = reinterpret_cast<uintptr_t>(memory_.get());
    return {memory_.get() + -at % kAlignment, options_.memory_bytes};
  }
  Memory pinned() override { return {pinned_.get(), options_.pinned_bytes}; }

  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    return Enqueue([=, this] {
      if (options_.traffic != nullptr) options_.traffic->copied_in += bytes;
      std::memcpy(reinterpret_cast<void*>(device), pinned, bytes);
    });
  }

  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    return Enqueue([=, this] {
      if (options_.traffic != nullptr) options_.traffic->copied_out += bytes;
      std::memcpy(pinned, reinterpret_cast<const void*>(device), bytes);
    });
  }

  absl::Status Mark(int number) override {
    if (lost_) return Lost();
    marks_[number] = done_ + static_cast<int64_t>(queue_.size());
    return absl::OkStatus();
  }

  absl::Status Await(int number) override {
    while (!lost_ && done_ < marks_[number]) DoNext();
    return lost_ ? Lost() : absl::OkStatus();
  }

  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    return Enqueue([=, this] {
      if (launches_++ == options_.lose_after_launches) {
        lost_ = true;
        return;
      }
      options_.traffic == nullptr ? RunAll(rules, pieces, count) : CountAll(rules, pieces, count);
    });
  }

  absl::Status Finish() override {
    while (!lost_ && !queue_.empty()) DoNext();
    return lost_ ? Lost() : absl::OkStatus();
  }

 private:
  absl::Status Lost() const {
    return DeviceLost(absl::InternalError(
        absl::StrCat("emulated device: lost at launch ", options_.lose_after_launches + 1)));
  }

  absl::Status Enqueue(std::function<void()> work) {
    if (lost_) return Lost();
    queue_.push_back(std::move(work));
    return absl::OkStatus();
  }

  void DoNext() {
    queue_.front()();
    queue_.pop_front();
    ++done_;
  }

  // Back to front: nothing may depend on the order of the pieces.
  void RunAll(const Rule* rules, const Piece* pieces, int64_t count) {
    HostMemory memory;
    for (int64_t i = count; i-- > 0;) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) RunPiece(memory, pieces[i], rules, lane);
    }
  }

  void CountAll(const Rule* rules, const Piece* pieces, int64_t count) {
    CountedMemory memory(*options_.traffic);
    for (int64_t i = count; i-- > 0;) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        RunPiece(memory, pieces[i], rules, lane);
      }
      memory.EndWarp();
    }
    ++options_.traffic->launches;
    options_.traffic->pieces += count;
  }

  const EmulatedDeviceOptions options_;
  const std::unique_ptr<std::byte[]> memory_, pinned_;
  std::deque<std::function<void()>> queue_;
  int64_t done_ = 0, marks_[2] = {0, 0};
  int64_t launches_ = 0;  // carried out
  bool lost_ = false;
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

std::unique_ptr<Executor> MakeEmulatedDeviceExecutor(const EmulatedDeviceOptions& options) {
  return MakeDeviceExecutor(MakeEmulatedDevice(options), options.executor);
}

}  // namespace cpshard
