#include "tests/gpu/traffic.h"

#include <memory>

#include "core/exec/device/emulated.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/jobs.h"

namespace cpshard {
namespace {

std::byte* Aligned(std::vector<std::byte>& memory) {
  return memory.data() + -reinterpret_cast<uintptr_t>(memory.data()) % 256;
}

}  // namespace

absl::StatusOr<std::vector<TrafficRow>> CountTraffic(int64_t shrink) {
  std::vector<TrafficRow> rows;
  for (const Job& job : MeasuredJobs(shrink)) {
    std::vector<std::byte> source(job.bytes() + 256), dest(job.bytes() + 256);
    DeviceTraffic traffic;
    EmulatedDeviceOptions options;
    options.traffic = &traffic;
    CPSHARD_RETURN_IF_ERROR(
        MakeEmulatedDeviceExecutor(options)->Run(TasksOf(job, Aligned(source), Aligned(dest))));
    const auto per_byte = [&](int64_t count) {
      return static_cast<double>(count) / static_cast<double>(job.bytes());
    };
    const auto per = [](int64_t count, int64_t of) { return static_cast<double>(count) / of; };
    rows.push_back({job.name, per_byte(traffic.bytes_read), per_byte(traffic.bytes_written),
                    per_byte(32 * traffic.read_sectors), per_byte(32 * traffic.written_sectors),
                    per_byte(traffic.copied_in), per(traffic.read_sectors, traffic.reads),
                    per(traffic.written_sectors, traffic.writes)});
  }
  return rows;
}

}  // namespace cpshard
