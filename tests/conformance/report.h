// Counts outcomes and prints them.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/run.h"

namespace cpshard::conformance {

// Families are in the order of their first case. Not thread-safe.
class Report {
 public:
  Report(std::ostream& out, bool verbose) : out_(out), verbose_(verbose) {}

  // `family`: the file's stem and the backend. Prints a failure at once.
  void Add(const std::string& family, const std::string& id, const Outcome& outcome);

  // A line per family, the skipped ids by reason, and the closing line
  // "N passed, N failed[, N skipped]".
  void PrintSummary();

  // "N passed, N failed[, N skipped]"
  std::string Totals() const;

  // Nothing failed and something passed.
  bool ok() const { return total_.failed == 0 && total_.passed > 0; }

 private:
  struct Counts {
    int64_t passed = 0, failed = 0, skipped = 0;
    void Count(Outcome::Kind kind);
  };

  std::ostream& out_;
  bool verbose_;
  Counts total_;
  std::vector<std::string> order_;
  std::map<std::string, Counts> families_;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> skipped_ids_;
  std::map<std::string, int64_t> keys_not_compared_;
};

}  // namespace cpshard::conformance
