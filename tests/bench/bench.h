// The groups of rows, one file each.
#pragma once

#include <cstdint>

#include "core/plan/spec.h"
#include "tests/bench/table.h"

namespace cpshard::bench {

inline constexpr int64_t kRanks = 8;

// input_ids, labels, position_ids (int64) and padding_mask (bool), all [rows, columns]: 25 bytes
// per token. Without position_ids the layouts create them.
BatchSpec TokenBatch(int64_t rows, int64_t columns, bool position_ids = true);

// Planning and lowering; they move no bytes.
void AddPlanRows(int rounds, Table& table);

// Plans of 10,000 documents by every layout that reads their lengths, and magi's solver.
void AddPackedPlanRows(int rounds, Table& table);

// The CPU executor against memcpy and StreamCopy of the same bytes.
void AddExecutorRows(int rounds, Table& table);

// The same of packed documents, how it falls with their length.
void AddPackedExecutorRows(int rounds, Table& table);

// What is said about a plan: documents, balance, totals, pictures.
void AddInspectRows(int rounds, Table& table);

}  // namespace cpshard::bench
