#include "tests/fuzz/targets.h"

#include <map>

namespace cpshard::fuzz {

Target FindTarget(const std::string& name) {
  static const auto& targets = *new std::map<std::string, Target>{
      {"index_map", IndexMapTarget}, {"layouts", LayoutsTarget},         {"options", OptionsTarget},
      {"request", RequestTarget},    {"safetensors", SafetensorsTarget},
  };
  const auto found = targets.find(name);
  return found == targets.end() ? nullptr : found->second;
}

}  // namespace cpshard::fuzz
