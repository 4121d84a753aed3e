// What gpu_check has to say about one thing that it looked at.
#pragma once

#include <string>

namespace cpshard {

struct Item {
  std::string name;
  std::string verdict;  // PASS, FAIL or SKIP
  std::string reason;   // may be empty of a PASS
  double goal = 0;      // that was held against it; 0: none
};

}  // namespace cpshard
