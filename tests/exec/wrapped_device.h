// A device that hands everything on to another one: tests derive from it and change one thing.
#pragma once

#include <memory>
#include <utility>

#include "core/exec/device/device.h"

namespace cpshard {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  absl::string_view name() const override { return device_->name(); }
  absl::StatusOr<Reach> ReachOf(const std::byte* at) override { return device_->ReachOf(at); }
  Memory memory() override { return device_->memory(); }
  Memory pinned() override { return device_->pinned(); }
  absl::Status Begin() override { return device_->Begin(); }
  absl::Status CopyIn(uint64_t device, const std::byte* pinned, int64_t bytes) override {
    return device_->CopyIn(device, pinned, bytes);
  }
  absl::Status CopyOut(std::byte* pinned, uint64_t device, int64_t bytes) override {
    return device_->CopyOut(pinned, device, bytes);
  }
  absl::Status Mark(int number) override { return device_->Mark(number); }
  absl::Status Await(int number) override { return device_->Await(number); }
  absl::Status Launch(const Rule* rules, const Piece* pieces, int64_t count) override {
    return device_->Launch(rules, pieces, count);
  }
  absl::Status Finish() override { return device_->Finish(); }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace cpshard
