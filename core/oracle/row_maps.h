// Rows that travel with a map of their documents (contract 4.10, 4.12, 4.13, 4.16).
#pragma once

#include <cstdint>
#include <optional>

#include "core/oracle/restatement.h"

namespace cpshard::oracle {

// One rank's shard; no mesh is the same as cp_size 1. nullopt = refused.
std::optional<Shard> RestateKimi(const Batch& batch, const Options& options, int64_t cp_size,
                                 int64_t rank);
std::optional<Shard> RestateGlm5Next(const Batch& batch, const Options& options, int64_t cp_size,
                                     int64_t rank);

// Precondition: cp_size > 1.
std::optional<Shard> RestateBlockDiagonal(const Batch& batch, const Options& options,
                                          int64_t cp_size, int64_t rank);

}  // namespace cpshard::oracle
