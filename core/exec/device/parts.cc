#include "core/exec/device/parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch/buffer.h"
#include "core/exec/device/needs.h"
#include "core/exec/device/split.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// What a part would take, by arithmetic.
struct Load {
  int64_t strips = 0, bytes = 0;  // of the device's memory

  Load operator+(const Load& other) const { return {strips + other.strips, bytes + other.bytes}; }
};

class Division {
 public:
  Division(const AccessTo& access_to, int64_t piece_bytes, const Device::Memory& memory,
           std::vector<std::byte>& block, const std::function<absl::Status(const Part&)>& carry)
      : access_to_(access_to),
        piece_bytes_(std::max<int64_t>(piece_bytes, 1)),
        memory_(memory),
        block_(block),
        carry_(carry) {}

  absl::Status Do(absl::Span<const Task> tasks) {
    if (tasks.empty()) return absl::OkStatus();
    if (MayFitAtOnce(tasks)) {
      int64_t copies = 0;
      CPSHARD_ASSIGN_OR_RETURN(const bool done, Try(tasks, copies));
      if (done) return absl::OkStatus();
    }
    CPSHARD_RETURN_IF_ERROR(CheckElements(tasks));
    return DoAll(tasks);
  }

 private:
  // Whether it can be tried before anything is asked of memory.
  bool MayFitAtOnce(absl::Span<const Task> tasks) const {
    Load load;
    for (const Task& task : tasks) {
      const Needs needs = NeedsOf(task);
      load = load + Load{needs.strips, needs.table_bytes};
    }
    return Fits(load);
  }

  bool Fits(const Load& load) const {
    return load.strips <= kMostStrips && load.bytes <= memory_.size;
  }

  // That each element of every task fits, and lies in memory that is good for it.
  absl::Status CheckElements(absl::Span<const Task> tasks) const {
    for (const Task& task : tasks) {
      CPSHARD_ASSIGN_OR_RETURN(const Operands operands, OperandsOf(task, access_to_));
      const int64_t least = LeastMemory(task, operands);
      if (least > memory_.size) return NothingFits(least);
    }
    return absl::OkStatus();
  }

  // As many of the tasks at a time as are likely to fit.
  absl::Status DoAll(absl::Span<const Task> tasks) {
    while (!tasks.empty()) {
      CPSHARD_ASSIGN_OR_RETURN(Load load, LoadOf(tasks.front()));
      size_t count = 1;
      for (; count < tasks.size(); ++count) {
        CPSHARD_ASSIGN_OR_RETURN(const Load next, LoadOf(tasks[count]));
        if (!Fits(load + next)) break;
        load = load + next;
      }
      CPSHARD_RETURN_IF_ERROR(DoSome(tasks.first(count), load));
      tasks.remove_prefix(count);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Load> LoadOf(const Task& task) const {
    CPSHARD_ASSIGN_OR_RETURN(const Operands operands, OperandsOf(task, access_to_));
    const Needs needs = NeedsOf(task);
    return Load{needs.strips, needs.table_bytes +
                                  (operands.source == Access::kInPlace ? 0 : needs.read_bytes) +
                                  (operands.dest == Access::kInPlace ? 0 : needs.written_bytes)};
  }

  // At once where that goes, else in parts, each of which is smaller.
  absl::Status DoSome(absl::Span<const Task> tasks, const Load& load) {
    int64_t copies = 0;
    if (Fits(load)) {
      CPSHARD_ASSIGN_OR_RETURN(const bool done, Try(tasks, copies));
      if (done) return absl::OkStatus();
    }
    if (tasks.size() > 1) {
      const size_t half = tasks.size() / 2;
      CPSHARD_RETURN_IF_ERROR(DoSome(tasks.first(half), {}));
      return DoSome(tasks.subspan(half), {});
    }
    const int64_t bytes = std::max(load.bytes, copies + copies / 16);
    const int64_t times =
        std::max(bytes / std::max<int64_t>(memory_.size, 1), load.strips / kMostStrips);
    const std::vector<Task> smaller = SplitTask(tasks.front(), times + 1);
    if (smaller.empty()) return DoElement(tasks);
    for (const Task& task : smaller) {
      CPSHARD_ASSIGN_OR_RETURN(const Load one, LoadOf(task));
      CPSHARD_RETURN_IF_ERROR(DoSome({&task, 1}, one));
    }
    return absl::OkStatus();
  }

  // What cannot be cut. CheckElements has found that it fits.
  absl::Status DoElement(absl::Span<const Task> task) {
    int64_t copies = 0;
    CPSHARD_ASSIGN_OR_RETURN(const bool done, Try(task, copies));
    return done ? absl::OkStatus() : NothingFits(copies);
  }

  // Makes one part of the tasks and carries it out; false: it does not fit. `copies`: of what the
  // device does not reach, in bytes.
  absl::StatusOr<bool> Try(absl::Span<const Task> tasks, int64_t& copies) {
    absl::StatusOr<Part> part = PartOf(tasks, copies);
    if (absl::IsResourceExhausted(part.status())) return false;
    CPSHARD_RETURN_IF_ERROR(part.status());
    absl::Status status;
    if (!part->table.launches.empty()) status = carry_(*part);
    block_ = std::move(part->table.block);
    CPSHARD_RETURN_IF_ERROR(status);
    return true;
  }

  // All of `tasks` at a time.
  absl::StatusOr<Part> PartOf(absl::Span<const Task> tasks, int64_t& copies) {
    CPSHARD_ASSIGN_OR_RETURN(Strips strips, StripsOf(tasks, access_to_));
    Staging staging = StagingOf(strips);
    copies = staging.bytes;
    Restage(strips, staging, reinterpret_cast<uintptr_t>(memory_.begin));
    Part part;
    part.table_at = AlignUp(copies);
    if (part.table_at > memory_.size) {
      return absl::ResourceExhaustedError(absl::StrCat(copies, " bytes of copies"));
    }
    const int64_t left = memory_.size - part.table_at;
    CPSHARD_ASSIGN_OR_RETURN(part.table, ShortTable(strips, left));
    part.in = std::move(staging.in);
    part.out = std::move(staging.out);
    return part;
  }

  // With longer pieces where those asked for make too long a table.
  absl::StatusOr<WorkTable> ShortTable(const Strips& strips, int64_t max_bytes) {
    absl::StatusOr<WorkTable> table =
        TableOf(strips, piece_bytes_, max_bytes, std::exchange(block_, {}));
    for (int64_t piece_bytes = 2 * piece_bytes_;
         absl::IsResourceExhausted(table.status()) && piece_bytes <= kLongestPiece;
         piece_bytes *= 2) {
      table = TableOf(strips, piece_bytes, max_bytes);
    }
    return table;
  }

  absl::Status NothingFits(int64_t needed) const {
    return ThatNeverFits(absl::ResourceExhaustedError(
        absl::StrCat("no part of a task fits the ", memory_.size,
                     " bytes of device memory: one element with its table has up to ", needed,
                     "; give the executor more")));
  }

  const AccessTo& access_to_;
  const int64_t piece_bytes_;
  const Device::Memory memory_;
  std::vector<std::byte>& block_;
  const std::function<absl::Status(const Part&)>& carry_;
};

}  // namespace

absl::Status InParts(absl::Span<const Task> tasks, const AccessTo& access_to, int64_t piece_bytes,
                     const Device::Memory& memory, std::vector<std::byte>& block,
                     const std::function<absl::Status(const Part&)>& carry) {
  return Division(access_to, piece_bytes, memory, block, carry).Do(tasks);
}

}  // namespace cpshard
