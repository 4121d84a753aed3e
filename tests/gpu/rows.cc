#include "tests/gpu/rows.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/anchors.h"
#include "tests/gpu/ground.h"
#include "tests/gpu/launches.h"

namespace cpshard {
namespace {

constexpr double kBusGoal = 0.9;
constexpr double kShortRunGoal = 0.7;  // what a job of short runs has at most, and none for the bus
constexpr double kCannotBe = 1.5;      // times a plain copy over the same wires
constexpr int kTimesOnDevice = 20;  // that a walk does all places there: 10 ms and more on an H200
constexpr size_t kPlacesInOne = 8;
constexpr int kRunsAtATime = 4;     // as a server has them
constexpr int kPageableRounds = 3;  // such a walk takes long

// What is measured: a way of doing a job, between two kinds of memory.
struct Course {
  std::string what;
  Where from = Where::kDevice, to = Where::kDevice;
  double goal = 0;
  int times = 1;      // that a walk does all places
  int at_a_time = 0;  // threads that make lists while they are at it
  std::function<absl::StatusOr<Walk>(const Job&, const Places&)> begin;
};

Course Launches(Where from, const LaunchOptions& how, double goal, int64_t table_bytes) {
  const std::string what =
      absl::StrCat("launches alone, pieces of ", how.piece_bytes,
                   how.places > 1 ? absl::StrCat(", ", how.places, " places in one") : "");
  const int times = from == Where::kDevice ? kTimesOnDevice : 1;
  return {what,
          from,
          Where::kDevice,
          goal,
          times,
          0,
          [=](const Job& job, const Places& places) -> absl::StatusOr<Walk> {
            CudaExecutorOptions options;
            options.memory_bytes = table_bytes;
            options.pinned_bytes = 1 << 20;
            CPSHARD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeCudaDevice(0, options));
            return LaunchesOf(job, places, how, std::move(device));
          }};
}

// The batches of all places, by several executors on a thread each, as a server has them.
absl::Status RunAll(const std::vector<std::vector<Task>>& batches,
                    const std::vector<std::shared_ptr<Executor>>& executors) {
  std::vector<absl::Status> results(executors.size());
  const auto run = [&](size_t k) {
    for (size_t i = k; i < batches.size() && results[k].ok(); i += executors.size()) {
      results[k] = executors[k]->Run(batches[i]);
    }
  };
  std::vector<std::thread> others;
  for (size_t k = 1; k < executors.size(); ++k) others.emplace_back(run, k);
  run(0);
  for (std::thread& other : others) other.join();
  for (const absl::Status& result : results) CPSHARD_RETURN_IF_ERROR(result);
  return WaitForDevice();
}

Course Runs(absl::string_view what, Where from, Where to, const DeviceExecutorOptions& how,
            int at_a_time = 1) {
  return {absl::StrCat("Executor::Run", what),
          from,
          to,
          0,
          1,
          at_a_time,
          [=](const Job& job, const Places& places) -> absl::StatusOr<Walk> {
            CudaExecutorOptions options;
            options.memory_bytes /= at_a_time;
            options.executor = how;
            std::vector<std::shared_ptr<Executor>> executors;
            for (int i = 0; i < at_a_time; ++i) {
              CPSHARD_ASSIGN_OR_RETURN(auto executor, MakeCudaExecutor(0, options));
              executors.push_back(std::move(executor));
            }
            std::vector<std::vector<Task>> batches;
            for (size_t i = 0; i < places.sources.size(); ++i) {
              batches.push_back(TasksOf(job, places.sources[i], places.dests[i]));
            }
            return [executors = std::move(executors), batches = std::move(batches)] {
              return RunAll(batches, executors);
            };
          }};
}

std::vector<Course> CoursesOf(const Job& job, int64_t table_bytes) {
  const DeviceExecutorOptions usual;
  std::vector<Course> courses;
  for (const int64_t piece_bytes : {2048, 4096, 8192, 16384}) {
    courses.push_back(Launches(Where::kDevice, {piece_bytes},
                               piece_bytes == usual.piece_bytes ? job.goal : 0, table_bytes));
  }
  courses.push_back(Launches(Where::kDevice, {usual.piece_bytes, kPlacesInOne}, 0, table_bytes));
  courses.push_back(Launches(Where::kPinned, {usual.piece_bytes},
                             job.goal > kShortRunGoal ? kBusGoal : 0, table_bytes));
  courses.push_back(Runs("", Where::kDevice, Where::kDevice, usual));
  DeviceExecutorOptions early = usual;
  early.return_early = true;
  courses.push_back(Runs(" that returns early", Where::kDevice, Where::kDevice, early));
  for (const PinnedSource source : {PinnedSource::kReadInPlace, PinnedSource::kCopyFirst}) {
    const bool in_place = source == PinnedSource::kReadInPlace;
    const absl::string_view what = in_place ? ", read in place" : ", copied first";
    DeviceExecutorOptions how = usual;
    how.pinned_source = source;
    courses.push_back(Runs(what, Where::kPinned, Where::kDevice, how));
    courses.push_back(Runs(what, Where::kPinned, Where::kPinned, how));
  }
  for (const Where to : {Where::kDevice, Where::kPinned}) {
    courses.push_back(Runs(absl::StrCat(", ", kRunsAtATime, " at a time"), Where::kPinned, to,
                           usual, kRunsAtATime));
  }
  courses.push_back(Runs("", Where::kPageable, Where::kPageable, usual));
  return courses;
}

// Both walks once, and the bytes they leave; then in turn.
absl::StatusOr<Pairs> Measure(const Course& course, const Job& job, Ground& ground, int rounds,
                              int most_times) {
  CPSHARD_ASSIGN_OR_RETURN(const Places device, ground.PlacesFor(Where::kDevice, Where::kDevice));
  CPSHARD_ASSIGN_OR_RETURN(Places places, ground.PlacesFor(course.from, course.to));
  places.times = std::min(course.times, most_times);
  const Walk anchor = PlainCopies(places, device);
  CPSHARD_ASSIGN_OR_RETURN(Walk begun, course.begin(job, places));
  const Walk ours = Held(std::move(begun));
  CPSHARD_RETURN_IF_ERROR(anchor());
  CPSHARD_RETURN_IF_ERROR(ground.CheckCopied(places));
  CPSHARD_RETURN_IF_ERROR(ours());
  CPSHARD_RETURN_IF_ERROR(ground.CheckCut(places));
  return MeasurePairs(rounds, static_cast<double>(places.total()), ours, anchor);
}

// The CPU's lists of all places, as Executor::Run makes them before each of its launches.
absl::StatusOr<double> ListSeconds(const Course& course, const Job& job, Ground& ground) {
  CPSHARD_ASSIGN_OR_RETURN(const Places places, ground.PlacesFor(course.from, course.to));
  const double begin = SteadySeconds();
  for (size_t i = 0; i < places.sources.size(); ++i) {
    CPSHARD_RETURN_IF_ERROR(
        TableOfPlaces(job, places, i, 1, DeviceExecutorOptions().piece_bytes, int64_t{1} << 40)
            .status());
  }
  return SteadySeconds() - begin;
}

GpuRow RowOf(const Course& course, const Job& job, Ground& ground, const GpuRowOptions& options) {
  GpuRow row;
  row.what =
      absl::StrCat(job.name, "; ", Name(course.from), " to ", Name(course.to), ", ", course.what);
  const bool pageable = course.from == Where::kPageable;
  if (options.decides) {
    row.goal = course.goal;
    row.limit = pageable ? 0 : kCannotBe;
  }
  const auto pairs = Measure(course, job, ground,
                             pageable ? std::min(options.rounds, kPageableRounds) : options.rounds,
                             options.shrink == 1 ? kTimesOnDevice : 2);
  row.status = pairs.status();
  if (!pairs.ok()) return row;
  row.pairs = *pairs;
  if (course.at_a_time > 0) {
    const auto seconds = ListSeconds(course, job, ground);
    row.status = seconds.status();
    if (seconds.ok()) row.host_seconds = *seconds / course.at_a_time;
  }
  return row;
}

}  // namespace

std::vector<GpuRow> MeasureGpu(const GpuRowOptions& options,
                               const std::function<void(const GpuRow&)>& done) {
  GroundSizes sizes;
  sizes.device_bytes /= options.shrink;
  sizes.host_bytes /= options.shrink;
  Ground ground(sizes);
  const int64_t table_bytes = (int64_t{256} << 20) / options.shrink;
  std::vector<GpuRow> rows;
  for (const Job& job : MeasuredJobs(options.shrink)) {
    const absl::Status begun = ground.Begin(job);
    for (const Course& course : CoursesOf(job, table_bytes)) {
      GpuRow row =
          begun.ok() ? RowOf(course, job, ground, options) : GpuRow{job.name, {}, 0, 0, 0, begun};
      done(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace cpshard
