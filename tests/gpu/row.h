// One line of gpu_check's table and what is to be thought of it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/gpu/pairs.h"

namespace cpshard {

struct GpuRow {
  std::string what;
  Pairs pairs;
  double goal = 0;   // of the median ratio; 0: none, the row is shown and decides nothing
  double limit = 0;  // a ratio that cannot be: what is faster did not do it all; 0: none

  double host_seconds =
      0;  // of a walk, the CPU's making of its lists; 0: it makes none, or not here

  // Why there are no numbers. ResourceExhausted: this machine has not the memory.
  absl::Status status;
};

enum class Verdict { kNone, kPass, kFail, kSkip };
Verdict VerdictOf(const GpuRow& row);

// "" of kNone.
absl::string_view Name(Verdict verdict);

// With the numbers: "0.871 x a plain copy (0.854 to 0.880 in 21 pairs), goal 0.9".
std::string ReasonOf(const GpuRow& row);

// Of the table, without the end of the line; the heading over its columns.
std::string LineOf(const GpuRow& row);
std::string RowHeading();

// An object with what, gb_per_s, anchor_gb_per_s and ratio (each [least, median, most]), pairs,
// host (its share of our time, 0 to 1), goal, verdict and reason.
std::string JsonOf(const GpuRow& row);

// `text` between quotes, as JSON wants it.
std::string Quoted(absl::string_view text);

}  // namespace cpshard
