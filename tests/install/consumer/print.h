// "rank 0: 0 1 6 7": the ids of every shard.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "core/exec/shard.h"

inline void PrintIds(const cpshard::ShardResult& result) {
  for (const cpshard::RankShard& shard : result.shards) {
    std::printf("rank %d:", static_cast<int>(shard.layout.cp_rank));
    const cpshard::Tensor& ids = *shard.batch.FindTensor("input_ids");
    for (size_t at = 0; at < ids.buffer.size(); at += sizeof(int64_t)) {
      int64_t id;
      std::memcpy(&id, ids.buffer.data() + at, sizeof id);
      std::printf(" %d", static_cast<int>(id));
    }
    std::printf("\n");
  }
}
