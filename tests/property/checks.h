// The properties themselves. Each function compares what the product did for one batch with the
// input, with another run, or with the oracle, and says what is wrong; "" = nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/shard.h"
#include "tests/property/layout_cases.h"
#include "tests/property/samples.h"

namespace cpshard::property {

using Shards = std::vector<RankShard>;

// Streams of this name have rows of visual tokens, not tokens (contract 4.13).
inline constexpr const char* kDeepStack = "_deepstack_visual_embeds.";

// Of all checks.
Executor& TheExecutor();
BufferPool& ThePool();

// Shards the sample in process; empty `ranks` = all.
absl::StatusOr<ShardResult> ShardSample(const LayoutCase& layout, const Sample& sample,
                                        const Point& point, const std::vector<int64_t>& ranks = {});

// "" = the same dtype, shape and bytes.
std::string TensorFault(const std::string& name, const oracle::Tensor& got,
                        const oracle::Tensor& want);

// Every padded column is on exactly one rank; where each rank holds all, on all of them in order.
std::string CoverageFault(const LayoutCase& layout, const Shards& shards);

// Ranks differ in anything but their rank, their columns and their values (and in length, where the
// layout is uneven), or are told another rank or start than their layout's.
std::string AgreementFault(const LayoutCase& layout, const Shards& shards);

// One rank's streams and layout are not the oracle's.
std::string ShardFault(const RankShard& got, const oracle::Shard& want);

// The streams but `except` differ between two runs.
std::string DifferenceFault(const Shards& a, const Shards& b, const std::string& except = "");

// A stream does not come back: in padded columns as the oracle's shards put together, trimmed as it
// was sent (packed documents at cp > 1: cast; chunks are not trimmed). Nothing where the oracle
// does not know the layout.
std::string GatherFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                        const Shards& shards);

// What needs no oracle (contract 15, properties 2 and 8): a gathered stream is its shards put
// together slot by slot; trimmed, it is what was sent, or the fill where a token was dropped; where
// no token stands, there is the fill; nobody gathers or trims what cannot be.
std::string RoundTripFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                           const Shards& shards);

// The same shards as views on the batch have other bytes.
std::string ViewsFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                       const Shards& shards);

// The slots that padding_mask does not call padding are not as many as the real tokens (contract
// 15, property 9).
std::string PaddingFault(const Sample& sample, const Shards& shards);

// The number of labels that are not -100 is not the input's (of tokens that were not dropped).
std::string LabelCountFault(const Sample& sample, const Shards& shards);

}  // namespace cpshard::property
