// The layouts. Each is one function, in one file under layouts/, that returns a Sharder.
#pragma once

#include <cstdint>

#include "core/plan/sharder.h"

namespace cpshard {

// Whether the layout cuts input_ids / inputs_embeds too, or leaves them whole for the model to cut
// in its forward pass (contract 4.2 `shard_primary`, 4.4).
enum class Primary { kCut, kLeaveFull };

// Every rank gets the batch as sent (contract 4.1). Without a primary of at least two axes there is
// no layout to report. Any mesh, or none.
Sharder Identity(SharedOptions shared = {});

// Consecutive slices of rows padded to a multiple of cp_size * max(pad_multiple, 2), at cp_size 1
// too (contract 4.2). attention_mask becomes padding_mask, position ids go on over the padding, a
// loss mask stands in for missing labels.
struct ContiguousOptions {
  int64_t pad_multiple = 1;  // below 2 acts as 2
  Primary primary = Primary::kCut;
};
Sharder Contiguous(ContiguousOptions options, SharedOptions shared = {});

// Head and tail chunk of rows padded to a multiple of 2 * cp_size (contract 4.3; with kLeaveFull
// 4.4, "aux-only"). Shards are cut eagerly (D1), the loss mask is returned (D2).
struct RoundRobinOptions {
  Primary primary = Primary::kCut;
};
Sharder RoundRobin(RoundRobinOptions options, SharedOptions shared = {});

}  // namespace cpshard
