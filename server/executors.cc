#include "server/executors.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/exec/device/device_lost.h"

namespace cpshard {
namespace {

constexpr char kUnderWay[] = "cpshard/under-way-when-lost";  // payload of a status

// An executor whose device may be lost. What is under way elsewhere then fails by itself.
class Watched final : public Executor {
 public:
  Watched(std::unique_ptr<Executor> executor, std::function<void(const absl::Status&)> on_lost)
      : executor_(std::move(executor)), on_lost_(std::move(on_lost)) {}

  absl::Status Run(absl::Span<const Task> tasks) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!lost_.ok()) return lost_;
    }
    const absl::Status status = executor_->Run(tasks);
    if (!IsDeviceLost(status)) return status;
    absl::Status lost = Lose(status);
    lost.SetPayload(kUnderWay, absl::Cord());
    return lost;
  }

  absl::string_view name() const override { return executor_->name(); }

 private:
  absl::Status Lose(const absl::Status& status) {
    absl::Status lost;
    {
      absl::MutexLock lock(&mutex_);
      if (!lost_.ok()) return lost_;
      lost = lost_ = DeviceLost(absl::UnavailableError(
          absl::StrCat("the server has lost ", name(),
                       " and has to be started again; try again then: ", status.message())));
    }
    if (on_lost_) on_lost_(status);
    return lost;
  }

  const std::unique_ptr<Executor> executor_;
  const std::function<void(const absl::Status&)> on_lost_;
  absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);  // OK: it is not
};

bool IsCpu(const Executor& executor) { return executor.name() == ToString(ExecutorKind::kCpu); }

std::unique_ptr<Executor> Watch(std::unique_ptr<Executor> own,
                                std::function<void(const absl::Status&)> on_lost) {
  if (IsCpu(*own)) return nullptr;
  return std::make_unique<Watched>(std::move(own), std::move(on_lost));
}

}  // namespace

bool WasUnderWayWhenLost(const absl::Status& status) {
  return status.GetPayload(kUnderWay).has_value();
}

Executors::Executors(Place own, std::function<void(const absl::Status&)> on_lost)
    : reason_(std::move(own.reason)),
      blocks_(std::move(own.blocks)),
      cpu_(MakeCpuExecutor()),
      cuda_(Watch(std::move(own.executor), std::move(on_lost))) {}

Executors::~Executors() = default;

absl::string_view Executors::name() const { return (cuda_ ? cuda_ : cpu_)->name(); }

absl::StatusOr<Executor*> Executors::Named(ExecutorKind kind) const {
  if (kind == ExecutorKind::kCpu || (kind == ExecutorKind::kAuto && !cuda_)) return cpu_.get();
  if (cuda_) return cuda_.get();
  return absl::FailedPreconditionError(absl::StrCat(
      "this server has no executor '", ToString(kind), "', it shards on the ", name(), " (",
      reason_, "): name no executor, or start it with executor = ", ToString(kind),
      " where it has a device"));
}

}  // namespace cpshard
