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

// Packed documents as one stream of T = B * S tokens, every document cut head and tail (contract
// 4.7, 5, 6: TransformerEngine's THD). seq_lens and seq_lens_padded [B, n] hold the real and the
// padded length of every document of every row, -1000 in unused places. At cp_size 1 and without a
// mesh the batch is converted, not cut. Nothing is padded: every padded length must be a multiple
// of 2 * cp_size, and the documents of a row must fill it.
struct ThdOptions {
  int64_t num_chunks = 1;  // micro-batches of B / num_chunks rows each; below 2 acts as 1
};
Sharder Thd(ThdOptions options, SharedOptions shared = {});

}  // namespace cpshard
