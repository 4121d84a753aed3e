#include "proto/layout_options.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/layouts.h"

namespace cpshard {
namespace {

using Message = v1::ShardingOptions;
using Made = absl::StatusOr<Sharder>;

Primary ToPrimary(bool keep_full) { return keep_full ? Primary::kLeaveFull : Primary::kCut; }

Made MakeIdentity(const Message&, SharedOptions shared) { return Identity(std::move(shared)); }

Made MakeContiguous(const Message& message, SharedOptions shared) {
  const v1::Contiguous& from = message.contiguous();
  ContiguousOptions options;
  if (from.has_pad_multiple()) options.pad_multiple = from.pad_multiple();
  options.primary = ToPrimary(from.keep_primary_full());
  return Contiguous(options, std::move(shared));
}

Made MakeRoundRobin(const Message& message, SharedOptions shared) {
  return RoundRobin({ToPrimary(message.round_robin().keep_primary_full())}, std::move(shared));
}

Made MakeThd(const Message& message, SharedOptions shared) {
  ThdOptions options;
  if (message.thd().has_num_chunks()) options.num_chunks = message.thd().num_chunks();
  return Thd(options, std::move(shared));
}

Made MakeGlmDsa(const Message& message, SharedOptions shared) {
  ThdOptions options;
  if (message.glm_dsa().has_num_chunks()) options.num_chunks = message.glm_dsa().num_chunks();
  return GlmDsa(options, std::move(shared));
}

Made MakeDeepseekV4(const Message& message, SharedOptions shared) {
  DeepseekV4Options options;
  const v1::DeepseekV4& from = message.deepseek_v4();
  if (from.has_pad_multiple()) options.pad_multiple = from.pad_multiple();
  return DeepseekV4(options, std::move(shared));
}

Made MakeDeepseekV41(const Message& message, SharedOptions shared) {
  DeepseekV41Options options;
  const v1::DeepseekV41& from = message.deepseek_v41();
  if (from.has_pad_multiple()) options.pad_multiple = from.pad_multiple();
  if (from.has_packed_alignment()) options.packed_alignment = from.packed_alignment();
  return DeepseekV41(options, std::move(shared));
}

Made MakeGemma4(const Message&, SharedOptions shared) { return Gemma4(std::move(shared)); }

Made MakeKimi(const Message& message, SharedOptions shared) {
  switch (message.kimi().variant()) {
    case v1::Kimi::LINEAR:
      return Kimi(KimiVariant::kLinear, std::move(shared));
    case v1::Kimi::K3:
      return Kimi(KimiVariant::kK3, std::move(shared));
    default:
      return absl::InvalidArgumentError("options: kimi needs a variant, LINEAR or K3");
  }
}

Made MakeGlm5Next(const Message& message, SharedOptions shared) {
  const v1::Glm5Next& from = message.glm5_next();
  const bool keep_full = !from.has_keep_primary_full() || from.keep_primary_full();
  return Glm5Next(ToPrimary(keep_full), std::move(shared));
}

Made MakeMimo(const Message& message, SharedOptions shared) {
  MimoOptions options;
  const v1::Mimo& from = message.mimo();
  if (from.has_num_chunks()) options.num_chunks = from.num_chunks();
  if (from.has_image_token_id()) options.image_token_id = from.image_token_id();
  if (from.has_video_token_id()) options.video_token_id = from.video_token_id();
  return Mimo(options, std::move(shared));
}

Made MakeQwen38(const Message& message, SharedOptions shared) {
  Qwen38Options options;
  const v1::Qwen38& from = message.qwen3_8();
  if (from.has_pad_multiple()) options.pad_multiple = from.pad_multiple();
  if (from.has_tp_size()) options.tp_size = from.tp_size();
  return Qwen38(options, std::move(shared));
}

Made MakeBlockDiagonal(const Message& message, SharedOptions shared) {
  return BlockDiagonal(ToPrimary(message.block_diagonal().keep_primary_full()), std::move(shared));
}

Made MakeMagi(const Message& message, SharedOptions shared) {
  const v1::Magi& from = message.magi();
  if (from.variant() == v1::Magi::VARIANT_UNSPECIFIED) {
    return absl::InvalidArgumentError("options: magi needs a variant, HF or CUSTOM");
  }
  MagiOptions options;
  if (from.variant() == v1::Magi::CUSTOM) options.variant = MagiVariant::kCustom;
  if (from.domain() == v1::Magi::VLM) options.domain = MagiDomain::kVlm;  // unspecified: LLM
  if (from.has_chunk_size()) options.chunk_size = from.chunk_size();
  if (from.has_min_chunks_per_rank()) options.min_chunks_per_rank = from.min_chunks_per_rank();
  return Magi(options, std::move(shared));
}

Made MakeExplicit(const Message& message, SharedOptions shared) {
  std::vector<std::vector<Run>> ranks;
  for (const v1::Explicit::Rank& rank : message.explicit_().ranks()) {
    ranks.emplace_back();
    for (const v1::Explicit::Run& run : rank.runs()) {
      ranks.back().push_back({run.source(), run.length()});
    }
  }
  return Explicit(std::move(ranks), std::move(shared));
}

Made MakeDocumentHeadTail(const Message&, SharedOptions shared) {
  return DocumentHeadTail(std::move(shared));
}

constexpr LayoutOption kLayouts[] = {
    {Message::kIdentity, MakeIdentity},
    {Message::kContiguous, MakeContiguous},
    {Message::kRoundRobin, MakeRoundRobin},
    {Message::kThd, MakeThd},
    {Message::kGlmDsa, MakeGlmDsa},
    {Message::kDeepseekV4, MakeDeepseekV4},
    {Message::kDeepseekV41, MakeDeepseekV41},
    {Message::kGemma4, MakeGemma4},
    {Message::kKimi, MakeKimi},
    {Message::kGlm5Next, MakeGlm5Next},
    {Message::kMimo, MakeMimo},
    {Message::kQwen38, MakeQwen38},
    {Message::kBlockDiagonal, MakeBlockDiagonal},
    {Message::kMagi, MakeMagi},
    {Message::kExplicit, MakeExplicit},
    {Message::kDocumentHeadTail, MakeDocumentHeadTail},
    {Message::kModel, MakeModel},
};

}  // namespace

absl::Span<const LayoutOption> LayoutOptions() { return kLayouts; }

}  // namespace cpshard
