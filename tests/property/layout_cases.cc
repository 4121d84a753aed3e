#include "tests/property/layout_cases.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/property/layout_samples.h"

namespace cpshard::property {
namespace {

LayoutCase IdentityCase() {
  return {.name = "identity",
          .make = [](SharedOptions shared, const Point&) { return Identity(std::move(shared)); },
          .whole = true,
          .restated = oracle::Options{.layout = "identity"}};
}

LayoutCase ContiguousCase(int64_t pad_multiple, Primary primary) {
  const bool full = primary == Primary::kLeaveFull;
  const ContiguousOptions options = {.pad_multiple = pad_multiple, .primary = primary};
  return {.name = absl::StrCat("contiguous_", pad_multiple, full ? "_full" : ""),
          .make = [=](SharedOptions shared,
                      const Point&) { return Contiguous(options, std::move(shared)); },
          .extras = ExtrasTaken::kNamesAndPads,
          .restated = oracle::Options{
              .layout = "contiguous", .keep_primary_full = full, .pad_multiple = pad_multiple}};
}

LayoutCase RoundRobinCase(Primary primary) {
  const bool full = primary == Primary::kLeaveFull;
  return {.name = absl::StrCat("round_robin", full ? "_full" : ""),
          .make = [=](SharedOptions shared,
                      const Point&) { return RoundRobin({primary}, std::move(shared)); },
          .extras = ExtrasTaken::kNames,
          .fills = {.ids_zero = true, .floats_zero = true},
          .restated = oracle::Options{.layout = "round_robin", .keep_primary_full = full}};
}

// What the conversion of packed documents makes anew (contract 5.5).
const std::set<std::string> kConverted = {"padding_mask", "cu_seqlens", "cu_seqlens_padded",
                                          "max_seqlen", "_thd_local_indices"};

int64_t RoundUp(int64_t length, int64_t block) { return (length + block - 1) / block * block; }

// Documents that divide into 2 * cp_size pieces, where they are cut.
LayoutCase ThdCase(int64_t num_chunks) {
  return {.name = absl::StrCat("thd_", num_chunks),
          .make = [=](SharedOptions shared,
                      const Point&) { return Thd({num_chunks}, std::move(shared)); },
          .packed = true,
          .num_chunks = num_chunks,
          .rebuilt = kConverted,
          .nearest =
              [](Point point) {
                if (point.num_ranks() > 1) {
                  point.length = RoundUp(point.length, 2 * point.num_ranks());
                }
                return point;
              },
          .rules =
              [=](const Point& point) {
                const bool cut = point.num_ranks() > 1;
                return DocumentRules{.num_chunks = num_chunks,
                                     .block = cut ? 2 * point.num_ranks() : 1,
                                     .fill = cut,
                                     .needs_lengths = cut};
              },
          .restated = oracle::Options{.layout = "thd", .num_chunks = num_chunks}};
}

LayoutCase MimoCase(int64_t num_chunks) {
  LayoutCase layout = ThdCase(num_chunks);
  const MimoOptions options = {.num_chunks = num_chunks, .image_token_id = 12, .video_token_id = 3};
  layout.name = absl::StrCat("mimo_", num_chunks);
  layout.make = [=](SharedOptions shared, const Point&) {
    return Mimo(options, std::move(shared));
  };
  layout.rules = [of_thd = layout.rules](const Point& point) {
    DocumentRules rules = of_thd(point);
    rules.strict = point.num_ranks() > 1;
    rules.needs_lengths = true;
    return rules;
  };
  layout.adjust = AdjustMimo;
  layout.restated.reset();
  return layout;
}

LayoutCase GlmDsaCase(int64_t num_chunks) {
  return {.name = absl::StrCat("glm_dsa_", num_chunks),
          .make = [=](SharedOptions shared,
                      const Point&) { return GlmDsa({num_chunks}, std::move(shared)); },
          .packed = true,
          .num_chunks = num_chunks,
          .rebuilt = kConverted,
          .nearest =
              [](Point point) {
                point.length = RoundUp(std::max<int64_t>(point.length, 1), point.num_ranks());
                return point;
              },
          .rules =
              [=](const Point&) {
                return DocumentRules{.num_chunks = num_chunks, .needs_lengths = true};
              }};
}

LayoutCase DocumentHeadTailCase() {
  return {.name = "document_head_tail",
          .make = [](SharedOptions shared,
                     const Point&) { return DocumentHeadTail(std::move(shared)); },
          .packed = true,
          .uneven = true,
          .rebuilt = kConverted,
          .rules = [](const Point&) { return DocumentRules{.needs_lengths = true}; }};
}

LayoutCase DeepseekV4Case(int64_t pad_multiple) {
  return {.name = absl::StrCat("deepseek_v4_", pad_multiple),
          .make = [=](SharedOptions shared,
                      const Point&) { return DeepseekV4({pad_multiple}, std::move(shared)); },
          .syncs_lengths = true,
          .rebuilt = {"position_ids", "padding_mask", "seq_lens", "seq_lens_padded"},
          .adjust = AdjustDeepseekV4};
}

LayoutCase DeepseekV41Case(int64_t pad_multiple, int64_t alignment) {
  const DeepseekV41Options options = {.pad_multiple = pad_multiple, .packed_alignment = alignment};
  return {.name = absl::StrCat("deepseek_v41_", pad_multiple, "_", alignment),
          .make = [=](SharedOptions shared,
                      const Point&) { return DeepseekV41(options, std::move(shared)); },
          .syncs_lengths = true,
          .rebuilt = {"position_ids", "attention_mask"},
          .adjust = AdjustDeepseekV41};
}

LayoutCase Gemma4Case() {
  return {.name = "gemma4",
          .make = [](SharedOptions shared, const Point&) { return Gemma4(std::move(shared)); },
          .extras = ExtrasTaken::kNamesAndPads,
          .adjust = AdjustGemma4,
          .restated = oracle::Options{.layout = "gemma4"}};
}

LayoutCase KimiCase(KimiVariant variant) {
  return {
      .name = variant == KimiVariant::kK3 ? "kimi_k3" : "kimi_linear",
      .make = [=](SharedOptions shared, const Point&) { return Kimi(variant, std::move(shared)); },
      .adjust = AdjustKimi};
}

LayoutCase Glm5NextCase(Primary primary) {
  const bool full = primary == Primary::kLeaveFull;
  return {.name = absl::StrCat("glm5_next", full ? "_full" : ""),
          .make = [=](SharedOptions shared,
                      const Point&) { return Glm5Next(primary, std::move(shared)); },
          .adjust = AdjustGlm5Next,
          .restated = oracle::Options{.layout = "glm5_next", .keep_primary_full = full}};
}

LayoutCase Qwen38Case(int64_t pad_multiple) {
  return {.name = absl::StrCat("qwen3_8_", pad_multiple),
          .make = [=](SharedOptions shared,
                      const Point&) { return Qwen38({pad_multiple}, std::move(shared)); },
          .rebuilt = {"padding_mask"},
          .nearest =
              [](Point point) {
                point.length = std::max<int64_t>(point.length, 1);
                return point;
              },
          .adjust = AdjustQwen38};
}

Point OneRowWhereCut(Point point) {
  if (point.num_ranks() > 1) point.rows = 1;
  return point;
}

LayoutCase BlockDiagonalCase(Primary primary) {
  const bool full = primary == Primary::kLeaveFull;
  return {.name = absl::StrCat("block_diagonal", full ? "_full" : ""),
          .make = [=](SharedOptions shared,
                      const Point&) { return BlockDiagonal(primary, std::move(shared)); },
          .fills = {.floats_zero = true},
          .rebuilt = {"padding_mask"},
          .nearest = OneRowWhereCut,
          .adjust = AdjustBlockDiagonal,
          .restated = oracle::Options{.layout = "block_diagonal", .keep_primary_full = full}};
}

// One row, no shorter than there are ranks.
LayoutCase MagiHfCase(int64_t chunk_size, int64_t min_chunks) {
  const MagiOptions options = {.chunk_size = chunk_size, .min_chunks_per_rank = min_chunks};
  return {
      .name = absl::StrCat("magi_hf_", chunk_size, "_", min_chunks),
      .make = [=](SharedOptions shared, const Point&) { return Magi(options, std::move(shared)); },
      .fills = {.ids_zero = true},
      .rebuilt = {"position_ids"},
      .nearest =
          [](Point point) {
            return Point{.cp_size = point.num_ranks(),
                         .length = std::max(point.length, point.num_ranks()),
                         .rows = 1};
          },
      .adjust = AdjustMagiHf};
}

LayoutCase MagiCustomCase(int64_t chunk_size, int64_t min_chunks) {
  const MagiOptions options = {
      .variant = MagiVariant::kCustom, .chunk_size = chunk_size, .min_chunks_per_rank = min_chunks};
  return {
      .name = absl::StrCat("magi_custom_", chunk_size, "_", min_chunks),
      .make = [=](SharedOptions shared, const Point&) { return Magi(options, std::move(shared)); },
      .packed = true,
      .no_padding_mask = true,
      .fills = {.ids_zero = true},
      .rebuilt = {"position_ids", "padding_mask", "cu_seqlens", "cu_seqlens_padded", "max_seqlen",
                  "_thd_local_indices"},
      .nearest =
          [](Point point) {
            point.length = std::max(point.length, point.num_ranks());
            return point;
          },
      .rules =
          [](const Point& point) {
            const bool cut = point.num_ranks() > 1;
            return DocumentRules{.fill = cut, .needs_lengths = cut};
          },
      .adjust = AdjustMagiCustom};
}

LayoutCase ExplicitCase() {
  return {.name = "explicit",
          .make = [](SharedOptions shared,
                     const Point& point) { return Explicit(DrawPartition(point), shared); },
          .uneven = true};
}

}  // namespace

const std::vector<LayoutCase>& LayoutCases() {
  static const auto& cases = *new std::vector<LayoutCase>{
      IdentityCase(),
      ContiguousCase(0, Primary::kCut),
      ContiguousCase(1, Primary::kCut),
      ContiguousCase(1, Primary::kLeaveFull),
      ContiguousCase(2, Primary::kCut),
      ContiguousCase(3, Primary::kCut),
      ContiguousCase(3, Primary::kLeaveFull),
      ContiguousCase(5, Primary::kCut),
      ContiguousCase(5, Primary::kLeaveFull),
      RoundRobinCase(Primary::kCut),
      RoundRobinCase(Primary::kLeaveFull),
      ThdCase(1),
      ThdCase(2),
      ThdCase(3),
      GlmDsaCase(1),
      GlmDsaCase(2),
      MimoCase(1),
      MimoCase(2),
      DeepseekV4Case(1),
      DeepseekV4Case(3),
      DeepseekV4Case(8),
      DeepseekV41Case(1, 1),
      DeepseekV41Case(1, 3),
      DeepseekV41Case(4, 8),
      Gemma4Case(),
      KimiCase(KimiVariant::kLinear),
      KimiCase(KimiVariant::kK3),
      Glm5NextCase(Primary::kCut),
      Glm5NextCase(Primary::kLeaveFull),
      Qwen38Case(2),
      Qwen38Case(4),
      BlockDiagonalCase(Primary::kCut),
      BlockDiagonalCase(Primary::kLeaveFull),
      MagiHfCase(512, 8),
      MagiHfCase(3, 1),
      MagiHfCase(1, 8),
      MagiCustomCase(512, 8),
      MagiCustomCase(3, 1),
      MagiCustomCase(1, 8),
      ExplicitCase(),
      DocumentHeadTailCase(),
  };
  return cases;
}

const LayoutCase& CaseNamed(const std::string& name) {
  for (const LayoutCase& layout : LayoutCases()) {
    if (layout.name == name) return layout;
  }
  std::abort();
}

Point LayoutCase::NearestPoint(Point point) const {
  if (packed) point.rows = std::max<int64_t>(point.rows, 1) * num_chunks;
  return nearest ? nearest(point) : point;
}

void LayoutCase::Complete(const Point& point, Rng& rng, Sample& sample) const {
  if (packed) PutDocuments(point, rules(point), rng, sample);
  if (adjust) adjust(point, rng, sample);
}

Sample LayoutCase::Draw(const Point& point, Rng& rng) const {
  Sample sample = DrawSample(StreamsToVary(), point, rng);
  Complete(point, rng, sample);
  return sample;
}

Sample LayoutCase::PlainSampleWith(size_t stream, size_t choice, const Point& point,
                                   Rng& rng) const {
  Sample sample = property::PlainSampleWith(StreamsToVary(), stream, choice, point, rng);
  Complete(point, rng, sample);
  return sample;
}

std::vector<oracle::Shard> LayoutCase::Expected(const Sample& sample, const Point& point) const {
  oracle::Options options = *restated;
  options.padding_token_id = sample.padding_token_id;
  options.extras = sample.extras;
  options.qkv_format = sample.qkv_format;
  std::vector<oracle::Shard> shards;
  for (int64_t rank = 0; rank < point.num_ranks(); ++rank) {
    auto shard = oracle::Restate(sample.streams, options, point.cp_size, rank);
    if (!shard) return {};
    shards.push_back(*std::move(shard));
  }
  return shards;
}

void LayoutCase::Fit(Sample& sample) const {
  if (extras == ExtrasTaken::kNone) sample.extras.clear();
  if (extras != ExtrasTaken::kNames) return;
  for (oracle::Extra& extra : sample.extras) extra.pad.reset();
}

}  // namespace cpshard::property
