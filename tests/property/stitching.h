// Shards put together slot by slot, and the streams as the caller sent them: what the checks of
// gathers compare with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/exec/shard.h"
#include "core/oracle/restatement.h"
#include "tests/property/layout_cases.h"
#include "tests/property/samples.h"

namespace cpshard::property {

int64_t ProductOf(const std::vector<int64_t>& dims, size_t begin, size_t end);

// The padded column of every slot.
std::vector<int64_t> ColumnsOf(const ShardLayout& layout);

// What the product gave, as the oracle would say it; of the layout the columns alone.
std::vector<oracle::Shard> ToOracle(const std::vector<RankShard>& shards);

// The first `length` columns of `axis`, taken slot by slot from the shards, uneven ones too.
oracle::Tensor Stitched(const std::vector<oracle::Shard>& shards, const std::string& name, int axis,
                        int64_t length);

// Shards of stacked chunks, [C, L, ...], as one stream [T, ...].
oracle::Tensor StitchedChunks(std::vector<oracle::Shard> shards, const std::string& name,
                              int64_t length);

// The stream as the caller sent it, under whatever name; nullopt = it was derived.
std::optional<oracle::Tensor> AsSent(const Sample& sample, const std::string& name, int64_t rows);

// A stream of packed documents as it comes back in rows: token by token what was sent, one axis
// after the rows, cast as contract 4.7 says (D7).
oracle::Tensor RowsAsSent(const Sample& sample, const std::string& name, const Point& point);

}  // namespace cpshard::property
