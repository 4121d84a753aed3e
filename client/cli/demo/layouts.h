// The layouts that the demo goes through.
#pragma once

#include <string>
#include <vector>

#include "client/cli/demo/pack.h"
#include "core/oracle/restatement.h"

namespace cpshard::demo {

inline constexpr int64_t kCpSize = 4;

// One layout, for the product and for the restatement.
struct DemoLayout {
  std::string name;
  std::string options;  // JSON
  oracle::Options restated;
  PackOptions pack;  // the form of batch that it wants
};

std::vector<DemoLayout> Layouts();

}  // namespace cpshard::demo
