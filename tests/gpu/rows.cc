#include "tests/gpu/rows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/exec/device/strips.h"
#include "core/exec/device/work_table.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/anchors.h"
#include "tests/gpu/jobs.h"

namespace cpshard {
namespace {

// Seconds of the launches of a table that lies on the device; `first` before each of them.
template <typename Fn>
absl::StatusOr<double> LaunchSeconds(Device& device, const std::vector<Task>& tasks,
                                     std::byte* table_at, int64_t piece_bytes, int rounds,
                                     Fn first) {
  const auto all = [](const std::byte*) -> absl::StatusOr<bool> { return true; };
  CPSHARD_ASSIGN_OR_RETURN(const Strips strips, StripsOf(tasks, all));
  CPSHARD_ASSIGN_OR_RETURN(const WorkTable table,
                           TableOf(strips, piece_bytes, device.pinned().size));
  const auto bytes = static_cast<int64_t>(table.block.size());
  if (bytes > device.pinned().size) {
    return absl::InternalError(absl::StrCat("a table of ", bytes, " bytes"));
  }
  std::memcpy(device.pinned().begin, table.block.data(), bytes);
  const auto at = reinterpret_cast<uintptr_t>(table_at);
  CPSHARD_RETURN_IF_ERROR(device.CopyIn(at, device.pinned().begin, bytes));
  CPSHARD_RETURN_IF_ERROR(device.Finish());
  double least = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    CPSHARD_RETURN_IF_ERROR(first());
    for (const WorkTable::Launch& launch : table.launches) {
      CPSHARD_RETURN_IF_ERROR(device.Launch(reinterpret_cast<const Rule*>(at),
                                            reinterpret_cast<const Piece*>(at + launch.offset),
                                            launch.pieces));
    }
    CPSHARD_RETURN_IF_ERROR(device.Finish());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / kInARow);
  }
  return least;
}

}  // namespace

absl::StatusOr<std::vector<GpuRow>> MeasureGpu(const GpuRowOptions& options) {
  const int64_t room = (int64_t{512} << 20) / options.shrink;
  CudaExecutorOptions cuda;
  cuda.memory_bytes = 3 * room;
  cuda.pinned_bytes = int64_t{64} << 20;
  CPSHARD_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeCudaDevice(0, cuda));
  CPSHARD_ASSIGN_OR_RETURN(FixedPool pool, MakePinnedPool(room));
  CPSHARD_ASSIGN_OR_RETURN(const Buffer pinned, pool.Allocate(room));
  std::byte* const source = device->memory().begin;
  std::byte* const dest = source + room;
  std::byte* const table = dest + room;
  const auto nothing = [] { return absl::OkStatus(); };
  std::vector<GpuRow> rows;
  for (const Job& job : MeasuredJobs(options.shrink)) {
    const double gb = static_cast<double>(job.bytes()) / 1e9;
    const double own = gb / DeviceToDeviceSeconds(dest, source, job.bytes(), options.rounds);
    const double bus = gb / PinnedToDeviceSeconds(dest, pinned.data(), job.bytes(), options.rounds);
    for (const int64_t piece_bytes : {2048, 4096, 8192, 16384}) {
      CPSHARD_ASSIGN_OR_RETURN(const double seconds,
                               LaunchSeconds(*device, TasksOf(job, source, dest), table,
                                             piece_bytes, options.rounds, nothing));
      rows.push_back({absl::StrCat(job.name, "; on the device, pieces of ", piece_bytes),
                      gb / seconds, own, piece_bytes == 4096 ? job.goal : 0});
    }
    CPSHARD_ASSIGN_OR_RETURN(const double in_place,
                             LaunchSeconds(*device, TasksOf(job, pinned.data(), dest), table, 4096,
                                           options.rounds, nothing));
    rows.push_back({absl::StrCat(job.name, "; pinned, read in place"), gb / in_place, bus, 0.9});
    CPSHARD_ASSIGN_OR_RETURN(
        const double copied,
        LaunchSeconds(*device, TasksOf(job, source, dest), table, 4096, options.rounds, [&] {
          return device->CopyIn(reinterpret_cast<uintptr_t>(source), pinned.data(), job.bytes());
        }));
    rows.push_back({absl::StrCat(job.name, "; pinned, copied first"), gb / copied, bus, 0.9});
  }
  if (options.shrink > 1) {
    for (GpuRow& row : rows) row.goal = 0;  // they are for the whole jobs
  }
  return rows;
}

}  // namespace cpshard
