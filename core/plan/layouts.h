// The layouts. Each is one function, in one file under layouts/, that returns a Sharder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

// The THD conversion, cut into consecutive slices at every cp_size (contract 4.11). Only the
// streams that the contract names come out; cu_seqlens stay those of the real lengths. Needs a
// mesh.
Sharder GlmDsa(ThdOptions options, SharedOptions shared = {});

// THD with what MiMo's adapter adds (contract 4.17): the partition as int64 _mimo_thd_local_indices
// and the masks of image and video tokens, whole. Refuses empty documents.
struct MimoOptions {
  int64_t num_chunks = 1;
  std::optional<int64_t> image_token_id, video_token_id;
};
Sharder Mimo(MimoOptions options, SharedOptions shared = {});

// DeepSeek V4 (contract 4.8): contiguous with rows padded to cp_size * max(pad_multiple, 2); packed
// rows (seq_lens) are laid out anew, every document padded to that multiple, with
// packed_seq_ids. At cp_size 1 the batch stays as it is.
struct DeepseekV4Options {
  int64_t pad_multiple = 1;
};
Sharder DeepseekV4(DeepseekV4Options options, SharedOptions shared = {});

// DeepSeek V4.1 (contract 4.9): as V4, documents aligned to packed_alignment whatever cp_size is;
// pads have position and id 0. Without a mesh rows are aligned, not cut. Emits attention_mask.
struct DeepseekV41Options {
  int64_t pad_multiple = 1;
  int64_t packed_alignment = 1;
};
Sharder DeepseekV41(DeepseekV41Options options, SharedOptions shared = {});

// Contiguous, the primary whole, with a document map _packed_seq_ids (contract 4.10).
Sharder Gemma4(SharedOptions shared = {});

// Kimi Linear and K3 (contract 4.12): consecutive slices of rows padded to a multiple of cp_size,
// with the whole document map, as one record or as three entries. A mesh or none.
enum class KimiVariant { kLinear, kK3 };
Sharder Kimi(KimiVariant variant, SharedOptions shared = {});

// GLM-5-next (contract 4.16): much like Kimi's record; pad positions are 0.
Sharder Glm5Next(Primary primary, SharedOptions shared = {});

// Qwen3.8-Flash-Next (contract 4.18): contiguous, with the whole ids, padding mask and document
// boundaries beside the shard. tp_size > 1: Unimplemented.
struct Qwen38Options {
  int64_t pad_multiple = 4;
  int64_t tp_size = 1;
};
Sharder Qwen38(Qwen38Options options, SharedOptions shared = {});

// Block-diagonal packed CP (contract 4.13): consecutive slices of one row padded to a multiple of 2
// * cp_size, padding_mask from document ids, DeepStack rows by the tokens they belong to.
Sharder BlockDiagonal(Primary primary, SharedOptions shared = {});

// MagiAttention (contract 7): chunks of a stream dealt out to ranks by their causal workload.
enum class MagiVariant { kHf, kCustom };
enum class MagiDomain { kLlm, kVlm };
struct MagiOptions {
  MagiVariant variant = MagiVariant::kHf;
  MagiDomain domain = MagiDomain::kLlm;
  int64_t chunk_size = 512;         // at most so many tokens
  int64_t min_chunks_per_rank = 8;  // of a stream that is long enough
  int64_t num_chunks = 1;           // as of thd, where a packed batch is converted and not cut
};
Sharder Magi(MagiOptions options, SharedOptions shared = {});

// A partition handed in as data: ranks[r] are the columns of rank r. It must hold every column
// once. Streams are padded as contiguous pads them, up to the columns that the partition has.
Sharder Explicit(std::vector<std::vector<Run>> ranks, SharedOptions shared = {});

// Beyond the reference: head and tail of every document without padding (WLB-LLM), shards may
// differ in length by a token.
Sharder DocumentHeadTail(SharedOptions shared = {});

}  // namespace cpshard
