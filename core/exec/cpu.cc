#include <cstring>
#include <optional>
#include <vector>

#include "core/exec/copy.h"
#include "core/exec/elementwise.h"
#include "core/exec/executor.h"
#include "core/exec/stream_writer.h"

namespace cpshard {
namespace {

const Moves& MovesOf(const CutTask& task, int64_t outer) {
  const std::vector<Moves>& rows = *task.moves;
  return rows[rows.size() == 1 ? 0 : (outer / task.row_divisor) % rows.size()];
}

// What a task moves: bytes, in how many moves, and how often a copy reads elsewhere than where the
// one before it ended.
struct Work {
  int64_t bytes = 0;
  int64_t moves = 0;
  int64_t jumps = 0;

  void Add(const Moves& row, const CutTask& task) {
    std::optional<int64_t> first, at;
    for (const Move& move : row) {
      bytes += move.length * task.column_bytes;
      if (move.kind != Move::Kind::kCopy) continue;
      jumps += at && *at != move.from ? 1 : 0;
      if (!first) first = move.from;
      at = move.from + move.length;
    }
    // The row before is taken to end where this one does.
    if (first) jumps += (*at - *first) * task.column_bytes != task.source_stride ? 1 : 0;
    moves += static_cast<int64_t>(row.size());
  }
};

Work WorkOf(const CutTask& task) {
  Work work;
  if (task.moves->size() == 1) {
    work.Add(task.moves->front(), task);
    return {work.bytes * task.outer, work.moves * task.outer, work.jumps * task.outer};
  }
  for (int64_t outer = 0; outer < task.outer; ++outer) work.Add(MovesOf(task, outer), task);
  return work;
}

// Carries out the moves; copies go through `copy(dest index, to, from, bytes)`, and
// `before_write(dest index)` comes before what is written otherwise.
template <typename Copy, typename BeforeWrite>
void RunCut(const CutTask& task, Copy copy, BeforeWrite before_write) {
  const int64_t item = ItemSize(task.dtype);
  const int64_t inner = task.column_bytes / item;
  for (int64_t outer = 0; outer < task.outer; ++outer) {
    const std::byte* row = task.source + outer * task.source_stride;
    for (const Move& move : MovesOf(task, outer)) {
      const int64_t bytes = move.length * task.column_bytes;
      if (bytes == 0) continue;
      std::byte* to = task.dests[move.dest] + outer * task.dest_strides[move.dest] +
                      move.to * task.column_bytes;
      if (move.kind == Move::Kind::kCopy) {
        copy(move.dest, to, row + move.from * task.column_bytes, bytes);
        continue;
      }
      before_write(move.dest);
      if (move.kind == Move::Kind::kFill) {
        FillElements(to, task.fill, item, move.length * inner);
      } else if (move.kind == Move::Kind::kContinue) {
        ContinueElements(to, row + move.from * task.column_bytes, task.dtype, move.start,
                         move.length, inner);
      } else {
        RampElements(to, task.dtype, move.start, move.step, move.length, inner);
      }
    }
  }
}

void RunCutCaching(const CutTask& task) {
  RunCut(
      task,
      [](int32_t, std::byte* to, const std::byte* from, int64_t bytes) {
        std::memcpy(to, from, bytes);
      },
      [](int32_t) {});
}

// One writer per destination: in source order each destination is written front to back, so that
// runs of any length leave as whole cache lines.
void RunCutStreaming(const CutTask& task, std::vector<StreamWriter>& writers) {
  if (writers.size() < task.dests.size()) writers.resize(task.dests.size());
  RunCut(
      task,
      [&](int32_t dest, std::byte* to, const std::byte* from, int64_t bytes) {
        writers[dest].Append(to, from, bytes);
      },
      [&](int32_t dest) { writers[dest].Flush(); });
  for (StreamWriter& writer : writers) writer.Flush();
}

class CpuExecutor : public Executor {
 public:
  explicit CpuExecutor(CpuExecutorOptions options) : options_(options) {}

  absl::Status Run(absl::Span<const Task> tasks) override {
    std::vector<Work> works(tasks.size());
    int64_t total = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (const CutTask* cut = std::get_if<CutTask>(&tasks[i])) works[i] = WorkOf(*cut);
      total += works[i].bytes;
    }
    const bool stream = total >= options_.stream_total_bytes;
    std::vector<StreamWriter> writers;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const CutTask* cut = std::get_if<CutTask>(&tasks[i]);
      if (cut == nullptr) {
        RunDerive(std::get<DeriveTask>(tasks[i]));
      } else if (works[i].bytes == 0) {
        continue;  // however many rows of nothing there are
      } else if (stream && StreamingPays(works[i])) {
        RunCutStreaming(*cut, writers);
      } else {
        RunCutCaching(*cut);
      }
    }
    if (stream) StreamCopyFence();
    return absl::OkStatus();
  }

  absl::string_view name() const override { return "cpu"; }

 private:
  bool StreamingPays(const Work& work) const {
    return work.bytes >= options_.stream_run_bytes * work.moves &&
           work.bytes >= options_.stream_read_bytes * work.jumps;
  }

  const CpuExecutorOptions options_;
};

}  // namespace

std::unique_ptr<Executor> MakeCpuExecutor(CpuExecutorOptions options) {
  return std::make_unique<CpuExecutor>(options);
}

}  // namespace cpshard
