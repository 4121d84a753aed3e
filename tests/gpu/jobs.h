// What is measured and counted: streams that are cut alike, in runs of several lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/exec/task.h"

namespace cpshard {

// Streams [1, columns] that are cut alike, all ranks' parts one behind the other.
struct Job {
  std::string name;
  std::vector<int64_t> column_bytes;  // one a stream
  int64_t columns = 0, run = 0;       // columns; of a run
  double goal = 0;

  int64_t bytes() const {
    int64_t bytes = 0;
    for (const int64_t width : column_bytes) bytes += width * columns;
    return bytes;
  }
};

// `shrink` times smaller than their names say.
std::vector<Job> MeasuredJobs(int64_t shrink);

// job.bytes() from `source` to `dest`: runs from both ends in turn, as a head and a tail go to one
// rank.
std::vector<Task> TasksOf(const Job& job, const std::byte* source, std::byte* dest);

}  // namespace cpshard
