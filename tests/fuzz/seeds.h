// What the writers of seeds share.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/batch/batch.h"

namespace cpshard {

class Seeds {
 public:
  explicit Seeds(std::filesystem::path root) : root_(std::move(root)) {}

  std::string Path(const std::string& target, const std::string& name) const {
    std::filesystem::create_directories(root_ / target);
    return root_ / target / name;
  }
  void Write(const std::string& target, const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(target, name), std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path root_;
};

// Frames of ShardBatches with these batches, and frames that nobody should send.
void WriteBatchFrames(const Seeds& seeds,
                      const std::vector<std::pair<std::string, Batch>>& batches);
void WriteShardFrames(const Seeds& seeds,
                      const std::vector<std::pair<std::string, Batch>>& batches);
// Messages of sessions, those in frames included.
void WriteSessionMessages(const Seeds& seeds);

}  // namespace cpshard
