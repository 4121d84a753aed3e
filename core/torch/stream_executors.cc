#include "core/torch/stream_executors.h"

#include <algorithm>

#include "core/plan/status_macros.h"

namespace cpshard {

absl::Status StreamExecutors::Run(const DeviceStream& stream, absl::Span<const Task> tasks) {
  const std::shared_ptr<Entry> entry = Find(stream);
  absl::MutexLock lock(&entry->mutex);
  if (entry->executor == nullptr) {
    CPSHARD_ASSIGN_OR_RETURN(entry->executor, make_(entry->stream));
  }
  const absl::Status status = entry->executor->Run(tasks);
  if (absl::IsInternal(status)) entry->executor.reset();
  return status;
}

std::shared_ptr<StreamExecutors::Entry> StreamExecutors::Find(const DeviceStream& stream) {
  std::shared_ptr<Entry> gone;  // after the lock: an executor that goes waits for its device
  absl::MutexLock lock(&mutex_);
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [&](const auto& entry) { return entry->stream == stream; });
  if (found == entries_.end()) {
    if (entries_.size() >= most_) {
      gone = std::move(entries_.back());
      entries_.pop_back();
    }
    found = entries_.insert(entries_.begin(), std::make_shared<Entry>(stream));
  }
  entries_.splice(entries_.begin(), entries_, found);
  return *found;
}

}  // namespace cpshard
