// Packed documents as one stream (contract 4.7 and 5).
#pragma once

#include <cstdint>
#include <optional>

#include "core/oracle/restatement.h"

namespace cpshard::oracle {

// One rank's shard; no mesh is the same as cp_size 1. nullopt = refused.
std::optional<Shard> RestateThd(const Batch& batch, const Options& options, int64_t cp_size,
                                int64_t rank);

}  // namespace cpshard::oracle
