// Files of the corpus, case after case.
#pragma once

#include <istream>
#include <set>
#include <string>
#include <utility>

#include "tests/conformance/report.h"
#include "tests/conformance/target.h"

namespace cpshard::conformance {

// Keeps references. Not thread-safe.
class Session {
 public:
  // `wanted`: ids of the cases to run, none: all.
  Session(std::set<std::string> wanted, const Target& target, Report& report)
      : wanted_(std::move(wanted)), target_(target), report_(report) {}

  // JSON lines of cases, or .json with vectors. What cannot be read is a failure in the report.
  void RunFile(const std::string& path);

  // Ids that no file had are failures.
  void ReportUnknownIds();

 private:
  void RunVectors(const std::string& stem, std::istream& file);
  void RunLine(const std::string& stem, const std::string& where, const std::string& line);

  const std::set<std::string> wanted_;
  std::set<std::string> seen_;
  const Target& target_;
  Report& report_;
};

}  // namespace cpshard::conformance
