#include "tests/gpu/jobs.h"

#include <memory>
#include <utility>

namespace cpshard {
namespace {

std::shared_ptr<const std::vector<Moves>> HeadsAndTails(const Job& job) {
  std::vector<Moves> rows(1);
  const int64_t runs = job.columns / job.run;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t from = i % 2 == 0 ? i / 2 : runs - 1 - i / 2;
    rows[0].push_back({Move::Kind::kCopy, 0, 0, from * job.run, i * job.run, job.run, 0});
  }
  return std::make_shared<const std::vector<Moves>>(std::move(rows));
}

}  // namespace

std::vector<Job> MeasuredJobs(int64_t shrink) {
  const int64_t million = (int64_t{1} << 20) / shrink;
  return {
      {"1M ids, labels, positions, mask; cp 8", {8, 8, 8, 1}, million, million / 16, 0.9},
      {"256 MB of embeddings, runs of 8 KB", {8192}, million / 32, 1, 0.9},
      {"1M ids, labels, positions; runs of 600 bytes", {8, 8, 8}, 75 * (million / 75), 75, 0.7}};
}

std::vector<Task> TasksOf(const Job& job, const std::byte* source, std::byte* dest) {
  const auto moves = HeadsAndTails(job);
  std::vector<Task> tasks;
  for (const int64_t width : job.column_bytes) {
    CutTask task;
    task.source = source;
    task.outer = 1;
    task.column_bytes = width;
    task.dtype = DType::kU8;
    task.moves = moves;
    task.dests = {dest};
    task.dest_strides = {width * job.columns};
    source += width * job.columns;
    dest += width * job.columns;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace cpshard
