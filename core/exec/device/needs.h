// What tasks need of a device, by arithmetic over the moves of their rows: before they are expanded
// to strips, of which a Run may have many more than there is memory for.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/exec/device/strips.h"
#include "core/exec/task.h"

namespace cpshard {

struct Needs {
  int64_t strips = 0;       // as many as StripsOf makes where no moves overlap
  int64_t table_bytes = 0;  // of pieces and rules, with pieces as long as they get; about
  int64_t read_bytes = 0, written_bytes = 0;  // what a staged copy of either has; about
};

Needs NeedsOf(const Task& task);

// What the first byte and the last one say that a task reads or writes.
struct Operands {
  Access source = Access::kInPlace;
  Access dest = Access::kInPlace;  // not in place where one of the destinations is not
};

// Errors of `access_to`, which is asked as StripsOf asks it.
absl::StatusOr<Operands> OperandsOf(const Task& task, const AccessTo& access_to);

// Bytes of the device's memory that one element of the task needs at the most, table included: no
// part of it needs more.
int64_t LeastMemory(const Task& task, const Operands& operands);

}  // namespace cpshard
