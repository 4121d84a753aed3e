// The reports of all loaders on one layout, added up, and the verdict over them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/demo/report.h"

namespace cpshard::demo {

// How often a stream, gathered and trimmed, came back as expected.
struct StreamFigure {
  std::string name;
  int64_t equal = 0;  // batches
  friend bool operator==(const StreamFigure&, const StreamFigure&) = default;
};

struct Figures {
  int64_t batches = 0, real_tokens = 0, columns = 0, bytes = 0;  // reported, each batch once
  std::vector<int64_t> tokens_of_rank;
  std::vector<StreamFigure> streams;  // those that came back once at least
  // Of one loader, by its own clock; the median of those that had batches. (Their clocks do not run
  // at the same time, so that a sum would be no rate of the server.)
  double tokens_per_second = 0, bytes_per_second = 0;
  // Why the layout is not EQUAL, with loader and batch; empty = every batch was reported exactly
  // once, by the loader whose it is, and is equal.
  std::string difference;
};

// Batch i is the share of loader i % loaders. Not thread-safe.
class Tally {
 public:
  Tally(std::string layout, int64_t batches, int64_t loaders);

  void Add(int64_t loader, const BatchReport& report);

  int64_t batches() const { return static_cast<int64_t>(entries_.size()); }
  int64_t reported() const;                  // of all loaders
  int64_t ShareOf(int64_t loader) const;     // batches
  int64_t ReportedBy(int64_t loader) const;  // of its share, those before the first that is missing

  Figures Sum() const;

 private:
  struct Entry {
    int64_t times = 0;   // reported
    BatchReport report;  // the first
  };

  std::string DifferenceOf(int64_t batch) const;

  const std::string layout_;
  const int64_t loaders_;
  std::vector<Entry> entries_;  // of every batch
  std::string stray_;           // the first report that belongs to no batch
};

}  // namespace cpshard::demo
