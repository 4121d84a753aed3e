// A Run in parts that are carried out one after the other: mostly one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/exec/device/device.h"
#include "core/exec/device/staging.h"
#include "core/exec/device/strips.h"
#include "core/exec/device/work_table.h"
#include "core/exec/task.h"

namespace cpshard {

// Of a part, but for tasks that cannot be cut: what the host holds for it at a time is bounded,
// some 50 MB where all of it is staged and some 20 else, however many strips a Run has.
inline constexpr int64_t kMostStrips = int64_t{1} << 18;

struct Part {
  std::vector<Staging::Region> in, out;  // offsets of the device's memory
  WorkTable table;                       // over its addresses
  int64_t table_at = 0;                  // where in it the table comes to lie
};

// Carries out what there is to do, in order: a part is made when `carry` has returned for the one
// before, and fits the device's memory. A table's block is that of the one before, the first one's
// is `block`, which is the last one's afterwards.
// Before the first call of `carry`:
//   ResourceExhausted, with the sizes: one element of a task does not fit (NeverFits).
//   errors of `access_to`, asked for what each task reads and writes.
// What carry returns; where there are several parts, what StripsOf says of one of them: its
// InvalidArgument may come after others have been carried out.
absl::Status InParts(absl::Span<const Task> tasks, const AccessTo& access_to, int64_t piece_bytes,
                     const Device::Memory& memory, std::vector<std::byte>& block,
                     const std::function<absl::Status(const Part&)>& carry);

}  // namespace cpshard
