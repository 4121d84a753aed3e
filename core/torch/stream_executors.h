// Executors for the streams of devices, kept from one call to the next: what a call leaves behind
// on a stream (its work table, copies under way) must not meet a call on another one, so every
// stream of a device has an executor of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/exec/executor.h"

namespace cpshard {

struct DeviceStream {
  int device = 0;
  void* handle = nullptr;  // as the device's own calls take it; null is the default stream
  friend bool operator==(const DeviceStream&, const DeviceStream&) = default;
};

// Thread-safe. Runs on one stream are done one after the other, those on several at once.
class StreamExecutors {
 public:
  using Make = std::function<absl::StatusOr<std::unique_ptr<Executor>>(const DeviceStream& stream)>;

  // Keeps `most` at a time, 1 at least: the one that was used longest ago goes, not while in use.
  explicit StreamExecutors(Make make, size_t most = 16) : make_(std::move(make)), most_(most) {}

  // By the executor of the stream, which is made when it is first used, and anew after Internal.
  // What the executor says, or who makes it.
  absl::Status Run(const DeviceStream& stream, absl::Span<const Task> tasks);

 private:
  struct Entry {
    explicit Entry(const DeviceStream& of) : stream(of) {}
    const DeviceStream stream;
    absl::Mutex mutex;
    std::unique_ptr<Executor> executor ABSL_GUARDED_BY(mutex);
  };

  std::shared_ptr<Entry> Find(const DeviceStream& stream);

  const Make make_;
  const size_t most_;
  absl::Mutex mutex_;
  std::list<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // the last used in front
};

}  // namespace cpshard
