#include "tests/fuzz/targets.h"

#include <map>

namespace cpshard::fuzz {

Target FindTarget(const std::string& name) {
  static const auto& targets = *new std::map<std::string, Target>{
      {"batch_frame", BatchFrameTarget},
      {"index_map", IndexMapTarget},
      {"layouts", LayoutsTarget},
      {"options", OptionsTarget},
      {"request", RequestTarget},
      {"safetensors", SafetensorsTarget},
      {"session_message", SessionMessageTarget},
      {"shard_frame", ShardFrameTarget},
  };
  const auto found = targets.find(name);
  return found == targets.end() ? nullptr : found->second;
}

}  // namespace cpshard::fuzz
