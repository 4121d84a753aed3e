#include "tests/gpu/launches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/device/strips.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/anchors.h"

namespace cpshard {
namespace {

struct Uploaded {
  uintptr_t at = 0;
  std::vector<WorkTable::Launch> launches;
};

absl::StatusOr<Uploaded> Upload(const WorkTable& table, int64_t used, const Device::Memory& to) {
  const auto bytes = static_cast<int64_t>(table.block.size());
  if (used + bytes > to.size) {
    return absl::ResourceExhaustedError(absl::StrCat("tables of more than ", used + bytes,
                                                     " bytes in ", to.size, " of the device"));
  }
  CPSHARD_RETURN_IF_ERROR(CopyNow(to.begin + used, table.block.data(), bytes));
  return Uploaded{reinterpret_cast<uintptr_t>(to.begin + used), table.launches};
}

}  // namespace

absl::StatusOr<WorkTable> TableOfPlaces(const Job& job, const Places& places, size_t first,
                                        size_t count, int64_t piece_bytes, int64_t memory_bytes) {
  const auto all = [](const Interval&) -> absl::StatusOr<Access> { return Access::kInPlace; };
  std::vector<Task> tasks;
  for (size_t i = first; i < std::min(first + count, places.sources.size()); ++i) {
    for (Task& task : TasksOf(job, places.sources[i], places.dests[i])) {
      tasks.push_back(std::move(task));
    }
  }
  CPSHARD_ASSIGN_OR_RETURN(const Strips strips, StripsOf(tasks, all));
  return TableOf(strips, piece_bytes, memory_bytes);
}

absl::StatusOr<Walk> LaunchesOf(const Job& job, const Places& places, const LaunchOptions& options,
                                std::shared_ptr<Device> device) {
  std::vector<Uploaded> tables;
  int64_t used = 0;
  for (size_t i = 0; i < places.sources.size(); i += options.places) {
    CPSHARD_ASSIGN_OR_RETURN(
        const WorkTable table,
        TableOfPlaces(job, places, i, options.places, options.piece_bytes, device->memory().size));
    CPSHARD_ASSIGN_OR_RETURN(Uploaded uploaded, Upload(table, used, device->memory()));
    tables.push_back(std::move(uploaded));
    used += static_cast<int64_t>((table.block.size() + 255) / 256 * 256);
  }
  return [times = places.times, tables = std::move(tables),
          device = std::move(device)]() -> absl::Status {
    for (size_t n = 0; n < times * tables.size(); ++n) {
      const Uploaded& table = tables[n % tables.size()];
      for (const WorkTable::Launch& launch : table.launches) {
        CPSHARD_RETURN_IF_ERROR(device->Launch(
            reinterpret_cast<const Rule*>(table.at),
            reinterpret_cast<const Piece*>(table.at + launch.offset), launch.pieces));
      }
    }
    return WaitForDevice();
  };
}

}  // namespace cpshard
