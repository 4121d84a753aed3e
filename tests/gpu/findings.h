// What gpu_check has found so far, on stdout and in a file that is whole at every moment: whatever
// the next test does to this process, the last ones are kept.
#pragma once

#include <string>
#include <vector>

#include "tests/gpu/item.h"
#include "tests/gpu/row.h"

namespace cpshard {

class Findings {
 public:
  // No file where `path` is empty.
  Findings(std::string path, std::string device)
      : path_(std::move(path)), device_(std::move(device)) {
    Write();
  }

  // Shown are items that are not a PASS, and all with `is_shown`; every row.
  void Add(Item item, bool is_shown = true);
  void Add(GpuRow row);

  bool has_failed() const { return has_failed_; }

 private:
  void Write() const;

  const std::string path_, device_;
  std::vector<Item> items_;
  std::vector<GpuRow> rows_;
  mutable bool has_failed_ = false;  // a file that cannot be written, too
};

// cpshard's version and commit, of this program.
std::string BuildOfThis();

}  // namespace cpshard
