// What the layouts refuse beyond THD, round robin and contiguous, in one table: contract 4.8
// - 4.18, 7, 13, 14, decisions D5 - D9, D13, D14, D17. Each row is one step beyond a border; what
// stands inside it is in layout_borders_test.cc. THD's own table is thd_refusals_test.cc,
// explicit's explicit_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <tuple>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

using Parts = std::vector<std::string>;
using Code = absl::StatusCode;

constexpr int64_t kHuge = int64_t{1} << 62;
const SharedOptions kPadId{.padding_token_id = 0};

struct Refusal {
  std::string name;  // a sentence about the input
  Sharder sharder;
  PackedBatch batch;
  Parts parts;  // stream, row, numbers and the way out, as the message has them
  Code code = Code::kInvalidArgument;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

// Two rows of eight tokens for two ranks; the first holds two documents, the second one.
PackedBatch Packed() {
  PackedBatch batch(2, 8);
  batch.Real({{3, 4}, {8}}).Padded({{4, 4}, {8}});
  return batch;
}

PackedBatch Lengths(const PackedBatch::Rows& real, const PackedBatch::Rows& padded) {
  return Packed().Real(real).Padded(padded);
}

PackedBatch Thd(PackedBatch batch) { return batch.SetScalar("qkv_format", std::string("thd")); }

PackedBatch OneRow(int64_t length) { return PackedBatch(1, length); }

PackedBatch Plain() { return PackedBatch(2, 6); }

TensorSpec Of(const char* name, std::vector<int64_t> dims, DType dtype = DType::kI64) {
  return {name, dtype, std::move(dims)};
}

// Streams of another shape than the rows, which every layout over rows refuses (D5).
std::vector<Refusal> OfShapes(const std::string& layout, const Sharder& sharder, PackedBatch batch,
                              const std::vector<const char*>& names) {
  std::vector<Refusal> rows;
  const std::vector<int64_t> dims = batch.spec().FindTensor("input_ids")->dims;
  const int64_t b = dims[0], s = dims[1];
  for (const char* name : names) {
    const auto add = [&](const char* what, std::vector<int64_t> wrong, Parts parts) {
      const std::string stream = std::string("'") + name + "'";
      parts.push_back(stream);
      parts.push_back(DimsString(wrong));
      rows.push_back({layout + what + name, sharder,
                      PackedBatch(batch).Set(Of(name, std::move(wrong))), std::move(parts)});
    };
    add("_TooLong_", {b, s + 1}, {"expected " + std::to_string(s)});
    add("_OtherRows_", {b + 1, s}, {"expected " + std::to_string(b)});
    rows.push_back({layout + "_AScalar_" + name,
                    sharder,
                    PackedBatch(batch).SetScalar(name, int64_t{3}),
                    {std::string("'") + name + "' is a scalar"}});
  }
  return rows;
}

// Length tables that no layout over documents takes (D5).
std::vector<Refusal> OfLengthTables(const std::string& layout, const Sharder& sharder,
                                    const PackedBatch& batch) {
  const auto with = [&](const PackedBatch::Rows& real, const PackedBatch::Rows& padded) {
    return PackedBatch(batch).Real(real).Padded(padded);
  };
  std::vector<Refusal> rows = {
      {layout + "_FloatingLengths",
       sharder,
       PackedBatch(batch).Set(Of("seq_lens", {2, 2}, DType::kF32)),
       {"'seq_lens' f32[2, 2]", "i16, i32 or i64"}},
      {layout + "_LengthsOfOtherRows",
       sharder,
       PackedBatch(batch).Set(Of("seq_lens", {3, 2})),
       {"'seq_lens' i64[3, 2]", "[2, n]", "-1000"}},
      {layout + "_PaddedLengthsOfThreeAxes",
       sharder,
       PackedBatch(batch).Set(Of("seq_lens_padded", {2, 2, 1})),
       {"'seq_lens_padded' i64[2, 2, 1]", "[2, n]"}},
      {layout + "_AScalarLength",
       sharder,
       PackedBatch(batch).SetScalar("seq_lens", int64_t{8}),
       {"'seq_lens' is a scalar"}},
      {layout + "_TooManyLengthsForTheRanks",
       sharder,
       PackedBatch(2, 8192)
           .Cp(4096)
           .Real(PackedBatch::Rows(2, std::vector<int64_t>(513, -1000)))
           .Padded({{1}, {1}})
           .SetScalar("qkv_format", std::string("thd")),
       {"'seq_lens'", "1026 entries", "4096 ranks", "4194304"}},
  };
  for (int64_t length : {int64_t{-1}, int64_t{-999}, std::numeric_limits<int64_t>::min()}) {
    const std::string digits = std::to_string(length);
    rows.push_back({layout + "_ALengthOfMinus" + digits.substr(1),
                    sharder,
                    with({{3, length}, {8}}, {{4, 4}, {8}}),
                    {"row 0", "entry 1", digits, "-1000"}});
  }
  return rows;
}

// Options and streams that a layout has no use for (D13, D14, D17).
std::vector<Refusal> OfTraits(const std::string& layout,
                              const std::function<Sharder(SharedOptions)>& make,
                              const PackedBatch& batch, bool mesh, bool min_padded_len,
                              bool loss_mask) {
  std::vector<Refusal> rows = {
      {layout + "_AnExtraStream",
       make({.padding_token_id = 0, .extra_streams = {{"weights"}}}),
       PackedBatch(batch).Set(Of("weights", {2, 8})),
       {"'weights'", layout, "contiguous"}},
  };
  if (mesh) {
    rows.push_back({layout + "_NoMesh",
                    make(kPadId),
                    PackedBatch(batch).Cp(std::nullopt),
                    {layout, "needs a mesh", "cp_size"}});
  }
  if (!min_padded_len) {
    rows.push_back({layout + "_AMinimumOfThePaddedLength",
                    make({.padding_token_id = 0, .min_padded_len = 64}),
                    batch,
                    {"min_padded_len 64", layout, "deepseek_v4"}});
  }
  if (!loss_mask) {
    rows.push_back({layout + "_ALossMask",
                    make(kPadId),
                    PackedBatch(batch).Set(Of("loss_mask", {2, 8})),
                    {"'loss_mask'", layout, "leave it out"}});
  }
  return rows;
}

std::vector<Refusal> OfAllTraits() {
  std::vector<Refusal> all;
  const auto add = [&](std::vector<Refusal> rows) {
    for (Refusal& row : rows) all.push_back(std::move(row));
  };
  const PackedBatch packed = Thd(Packed());
  using S = SharedOptions;
  add(OfTraits(
      "glm_dsa", [](S s) { return GlmDsa({}, s); }, packed, true, false, false));
  add(OfTraits(
      "mimo", [](S s) { return Mimo({}, s); }, packed, false, false, false));
  add(OfTraits(
      "deepseek_v4", [](S s) { return DeepseekV4({}, s); }, packed, true, true, true));
  add(OfTraits(
      "deepseek_v41", [](S s) { return DeepseekV41({}, s); }, packed, false, true, true));
  add(OfTraits(
      "kimi", [](S s) { return Kimi(KimiVariant::kK3, s); }, packed, false, false, true));
  add(OfTraits(
      "glm5_next", [](S s) { return Glm5Next(Primary::kCut, s); }, packed, false, false, true));
  add(OfTraits(
      "qwen3_8", [](S s) { return Qwen38({}, s); }, packed, true, false, true));
  add(OfTraits(
      "block_diagonal", [](S s) { return BlockDiagonal(Primary::kCut, s); }, packed, true, false,
      true));
  add(OfTraits(
      "magi", [](S s) { return Magi({.variant = MagiVariant::kCustom}, s); }, packed, false, false,
      false));
  add(OfTraits(
      "explicit", [](S s) { return Explicit({}, s); }, packed, true, false, true));
  add(OfTraits(
      "document_head_tail", [](S s) { return DocumentHeadTail(s); }, packed, true, false, false));
  all.push_back({"gemma4_NoMesh", Gemma4(kPadId), Plain().Cp(std::nullopt), {"gemma4", "mesh"}});
  all.push_back({"gemma4_AMinimumOfThePaddedLength",
                 Gemma4({.min_padded_len = 64}),
                 Plain(),
                 {"min_padded_len 64", "gemma4"}});
  return all;
}

// Contract 4.11, and the layout that shares its streams.
std::vector<Refusal> OfFlatStreams(const std::string& layout, const Sharder& sharder) {
  std::vector<Refusal> rows = {
      {layout + "_ThreeAxesOfPositionsOfOtherRows",
       sharder,
       Packed().Set(Of("position_ids", {3, 1, 8})),
       {"'position_ids'", "[3, 1, 8]", "[2, 8]"}},
      {layout + "_AShortFirstRow",
       sharder,
       Lengths({{4}, {8}}, {{4}, {8}}),
       {"'seq_lens_padded' row 0", "sum to 4", "S = 8", "pad its last one"}},
      {layout + "_ALongLastRow",
       sharder,
       Lengths({{8}, {9}}, {{8}, {9}}),
       {"'seq_lens_padded' row 1", "sum to 9", "S = 8", "shorten"}},
      {layout + "_ALengthOverItsPaddedOne",
       sharder,
       Lengths({{5, 3}, {8}}, {{4, 4}, {8}}),
       {"row 0", "document 0", "5 in 'seq_lens'", "4 in 'seq_lens_padded'"}},
      {layout + "_UnequalCounts",
       sharder,
       Lengths({{8}, {8}}, {{4, 4}, {8}}),
       {"row 0", "'seq_lens' has 1", "'seq_lens_padded' has 2"}},
      {layout + "_NoDocumentAtAll",
       sharder,
       Lengths({{}, {-1000}}, {{-1000}, {}}),
       {"'seq_lens'", "rows 0 to 1", "leave such rows out"}},
      {layout + "_NoRows",
       sharder,
       PackedBatch(0, 8).Set(Of("seq_lens", {0, 1})),
       {"'input_ids'", "B = 0", "S = 8"}},
      {layout + "_NoColumns",
       sharder,
       PackedBatch(2, 0).Set(Of("seq_lens", {2, 1}), {0, 0}),
       {"'input_ids'", "B = 2", "S = 0"}},
      {layout + "_TokensBeyondInt32",
       sharder,
       OneRow(int64_t{1} << 31).Real({{int64_t{1} << 31}}),
       {"'seq_lens'", "2147483648", "2147483647"}},
      {layout + "_IdsOfOneAxis",
       sharder,
       Packed().Set(Of("input_ids", {16})),
       {"'input_ids' [16]", "[B, S, ...]"}},
      {layout + "_LabelsOfAnotherLength",
       sharder,
       Packed().Set(Of("labels", {2, 9})),
       {"'labels'", "[2, 9]", "[2, 8, ...]"}},
      {layout + "_OneRowOfPositionsForTwo",
       sharder,
       Packed().Set(Of("position_ids", {1, 8})),
       {"'position_ids'", "[1, 8]", "not shared between rows"}},
  };
  for (const char* name : {"input_ids", "labels", "seq_lens", "position_ids"}) {
    rows.push_back({layout + "_No_" + name,
                    sharder,
                    Packed().Remove("seq_lens_padded").Remove(name),
                    {std::string("no '") + name + "'", layout}});
  }
  for (Refusal& row : OfLengthTables(layout, sharder, Packed())) rows.push_back(std::move(row));
  return rows;
}

std::vector<Refusal> OfGlmDsa() {
  std::vector<Refusal> rows = OfFlatStreams("glm_dsa", GlmDsa({}, kPadId));
  const Sharder two_chunks = GlmDsa({.num_chunks = 2}, kPadId);
  rows.push_back({"glm_dsa_TokensThatDoNotDivide",
                  GlmDsa({}, kPadId),
                  OneRow(9).Real({{9}}),
                  {"'input_ids'", "1 rows of 9", "9 tokens", "cp_size 2", "pad the rows"}});
  rows.push_back({"glm_dsa_TokensOfAChunkThatDoNotDivide",
                  two_chunks,
                  PackedBatch(2, 3).Real({{3}, {3}}),
                  {"1 rows of 3", "3 tokens", "cp_size 2"}});
  rows.push_back({"glm_dsa_RowsThatDoNotDivideIntoChunks",
                  two_chunks,
                  PackedBatch(3, 4).Real({{4}, {4}, {4}}),
                  {"3 rows", "num_chunks 2"}});
  rows.push_back({"glm_dsa_AChunkWithoutDocuments",
                  two_chunks,
                  Lengths({{8}, {}}, {{8}, {}}),
                  {"'seq_lens'", "rows 1 to 1"}});
  rows.push_back({"glm_dsa_ThreeAxesOfPositionsAtOneRank",
                  GlmDsa({}, kPadId),
                  Packed().Cp(1).Set(Of("position_ids", {3, 2, 8})),
                  {"'position_ids'", "[3, 2, 8]", "three axes", "send [2, 8]"}});
  return rows;
}

std::vector<Refusal> OfDocumentHeadTail() {
  return OfFlatStreams("document_head_tail", DocumentHeadTail(kPadId));
}

// Contract 4.17.
std::vector<Refusal> OfMimo() {
  const Sharder mimo = Mimo({}, kPadId);
  std::vector<Refusal> rows = {
      {"mimo_NoFormat", mimo, Packed(), {"mimo", "'qkv_format' = thd"}},
      {"mimo_AnotherFormat",
       mimo,
       Packed().SetScalar("qkv_format", std::string("bshd")),
       {"'qkv_format' = thd"}},
      {"mimo_NoIds", mimo, Thd(Packed()).Remove("input_ids"), {"no 'input_ids'", "mimo"}},
      {"mimo_Embeddings",
       mimo,
       Thd(Packed()).Set(Of("input_ids", {2, 8, 4}, DType::kF32)),
       {"'input_ids' [2, 8, 4]", "[B, S]"}},
      {"mimo_NoPaddedLengths",
       mimo,
       Thd(Packed()).Remove("seq_lens_padded"),
       {"'seq_lens_padded' [B, n]", "none"}},
      {"mimo_PaddedLengthsOfOneAxis",
       mimo,
       Thd(OneRow(8).Real({{8}}).Set(Of("seq_lens_padded", {1}), {8})),
       {"'seq_lens_padded' [B, n]", "[1]"}},
      {"mimo_AnEmptyDocument",
       mimo,
       Thd(Lengths({{4, 0, 4}, {8}}, {{4, 0, 4}, {8}})),
       {"'seq_lens_padded' row 0", "document 1 is empty", "cp_size 2", "leave it out"}},
      {"mimo_AnEmptyDocumentOfALaterRow",
       mimo,
       Thd(Lengths({{8}, {0, 8}}, {{8}, {0, 8}})),
       {"'seq_lens_padded' row 1", "document 0 is empty"}},
      // THD extends the last document (absorption); mimo works its partition out without that.
      {"mimo_AShortLastRow",
       mimo,
       Thd(Lengths({{8}, {4}}, {{8}, {4}})),
       {"'seq_lens_padded' row 1", "sum to 4", "S = 8", "pad the last document"}},
      {"mimo_ADocumentThatDoesNotDivide",
       mimo,
       Thd(Lengths({{6, 2}, {8}}, {{6, 2}, {8}})),
       {"'seq_lens", "row 0", "document 0", "length 6", "2 * cp_size = 4"}},
      {"mimo_RowsThatDoNotDivideIntoChunks",
       Mimo({.num_chunks = 2}, kPadId),
       Thd(PackedBatch(3, 4).Real({{4}, {4}, {4}}).Padded({{4}, {4}, {4}})),
       {"3 rows", "num_chunks 2"}},
      {"mimo_ThreeAxesOfPositionsInChunks",
       Mimo({.num_chunks = 2}, kPadId),
       Thd(Packed()).Cp(1).Set(Of("position_ids", {3, 2, 8})),
       {"'position_ids'", "[3, 2, 8]"}},
      {"mimo_NoRows",
       mimo,
       Thd(PackedBatch(0, 8).Set(Of("seq_lens", {0, 1})).Set(Of("seq_lens_padded", {0, 1}))),
       {"B = 0", "S = 8"}},
  };
  for (Refusal& row : OfLengthTables("mimo", mimo, Thd(Packed()))) {
    // Lengths of three axes are refused in its own words, below.
    if (row.name != "mimo_PaddedLengthsOfThreeAxes") rows.push_back(std::move(row));
  }
  rows.push_back({"mimo_PaddedLengthsOfThreeAxes",
                  mimo,
                  Thd(Packed()).Set(Of("seq_lens_padded", {2, 2, 1})),
                  {"[B, n]", "[2, 2, 1]"}});
  return rows;
}

// Contract 4.8.
std::vector<Refusal> OfDeepseekV4() {
  const Sharder v4 = DeepseekV4({}, kPadId);
  std::vector<Refusal> rows = {
      {"deepseek_v4_ThdWithoutLengths", v4, Thd(Plain()), {"qkv_format", "'seq_lens'"}},
      {"deepseek_v4_BoundariesAlone",
       v4,
       Plain().Set(Of("cu_seqlens", {3})),
       {"'cu_seqlens'", "no 'seq_lens'"},
       Code::kUnimplemented},
      {"deepseek_v4_BothPrimaries",
       v4,
       Packed().Set(Of("inputs_embeds", {2, 8, 4}, DType::kF32)),
       {"exactly one of", "both"}},
      {"deepseek_v4_NoPrimary", v4, Packed().Remove("input_ids"), {"exactly one of", "neither"}},
      {"deepseek_v4_NoLabels",
       v4,
       Packed().Remove("labels").Set(Of("loss_mask", {2, 8})),
       {"no 'labels'", "loss_mask does not stand in"}},
      {"deepseek_v4_NoRows", v4, PackedBatch(0, 8).Set(Of("seq_lens", {0, 1})), {"B = 0"}},
      {"deepseek_v4_ARowWithoutDocuments",
       v4,
       Lengths({{8}, {-1000}}, {{8}, {-1000}}),
       {"'seq_lens' row 1", "no document", "-1000", "leave the row out"}},
      {"deepseek_v4_NoDocumentAtAll",
       v4,
       Lengths({{}, {}}, {{}, {}}),
       {"'seq_lens' row 0", "no document"}},
      {"deepseek_v4_ADocumentPastItsRow",
       v4,
       Lengths({{8}, {4, 5}}, {{8}, {4, 5}}),
       {"row 1", "document 1 of 5 tokens", "column 4", "S = 8"}},
      {"deepseek_v4_ADocumentBehindASpanPastItsRow",
       v4,
       Lengths({{8}, {1, 0}}, {{8}, {9, 0}}),
       {"row 1", "document 1 of 0 tokens", "S = 8"}},
      {"deepseek_v4_ASpanOfInt64",
       v4,
       Lengths({{8}, {1, 1}}, {{8}, {std::numeric_limits<int64_t>::max(), 1}}),
       {"row 1", "document 1", "S = 8"}},
      {"deepseek_v4_ALengthOverItsPaddedOne",
       v4,
       Lengths({{5}, {8}}, {{4}, {8}}),
       {"row 0", "document 0", "5 in 'seq_lens'", "4 in 'seq_lens_padded'"}},
      {"deepseek_v4_UnequalCounts",
       v4,
       Lengths({{4, 4}, {8}}, {{8}, {8}}),
       {"row 0", "'seq_lens' has 2", "'seq_lens_padded' has 1"}},
      {"deepseek_v4_NoPadId", DeepseekV4({}), Packed(), {"'input_ids'", "padding_token_id"}},
      {"deepseek_v4_NoPadIdUnpacked",
       DeepseekV4({}),
       Plain(),
       {"'input_ids'", "6 -> 8", "padding_token_id"}},
      {"deepseek_v4_AHugeMultiple",
       DeepseekV4({.pad_multiple = kHuge}, kPadId),
       Packed(),
       {"64 bits", "4611686018427387904"}},
      {"deepseek_v4_AHugeMultipleUnpacked",
       DeepseekV4({.pad_multiple = kHuge}, kPadId),
       Plain(),
       {"64 bits", "2 * 4611686018427387904"}},
      {"deepseek_v4_AMinimumOfInt64",
       DeepseekV4({},
                  {.padding_token_id = 0, .min_padded_len = std::numeric_limits<int64_t>::max()}),
       Packed(),
       {"9223372036854775807", "64 bits"}},
      {"deepseek_v4_UnsignedLabels",
       v4,
       Packed().Set(Of("labels", {2, 8}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
      {"deepseek_v4_BoolLossMaskForLabels",
       v4,
       Plain().Remove("labels").Set(Of("loss_mask", {2, 6}, DType::kBool)),
       {"'labels'", "bool", "-100"}},
      {"deepseek_v4_NeitherLabelsNorLossMask",
       v4,
       Plain().Remove("labels"),
       {"'labels'", "'loss_mask'"}},
      {"deepseek_v4_AFourDimensionalIntegerMask",
       v4,
       Packed().Set(Of("attention_mask", {2, 1, 8, 8})),
       {"'attention_mask' [2, 1, 8, 8]", "i64", "bool"}},
      {"deepseek_v4_AMaskOfAnotherLength",
       v4,
       Packed().Set(Of("attention_mask", {2, 9})),
       {"'attention_mask' [2, 9]", "expected 8"}},
      {"deepseek_v4_ADiagonalOfAnotherLength",
       v4,
       Packed().Set(Of("attention_mask", {2, 1, 8, 7}, DType::kBool)),
       {"'attention_mask' [2, 1, 8, 7]", "min(Q, K) = 8"}},
  };
  for (auto more : {OfShapes("deepseek_v4", v4, Packed(), {"labels", "loss_mask"}),
                    OfShapes("deepseek_v4_unpacked", v4, Plain(),
                             {"labels", "loss_mask", "padding_mask", "attention_mask"}),
                    OfLengthTables("deepseek_v4", v4, Packed())}) {
    for (Refusal& row : more) rows.push_back(std::move(row));
  }
  return rows;
}

// Contract 4.9.
std::vector<Refusal> OfDeepseekV41() {
  const Sharder v41 = DeepseekV41({.packed_alignment = 4}, kPadId);
  std::vector<Refusal> rows = {
      {"deepseek_v41_Pixels",
       v41,
       Packed().Set(Of("pixel_values", {3}, DType::kF32)),
       {"'pixel_values'", "text alone"}},
      {"deepseek_v41_Embeddings",
       v41,
       Packed().Set(Of("inputs_embeds", {2, 8, 4}, DType::kF32)),
       {"'inputs_embeds'", "text alone"}},
      {"deepseek_v41_BoundariesAlone",
       v41,
       Plain().Set(Of("cu_seqlens", {3})),
       {"'cu_seqlens'", "no 'seq_lens'"}},
      {"deepseek_v41_ThdWithoutLengths", v41, Thd(Plain()), {"qkv_format", "'seq_lens'"}},
      {"deepseek_v41_NoIds", v41, Packed().Remove("input_ids"), {"'input_ids'"}},
      {"deepseek_v41_IdsOfOneAxis", v41, Packed().Set(Of("input_ids", {8})), {"'input_ids' [8]"}},
      {"deepseek_v41_NeitherLabelsNorLossMask",
       v41,
       Packed().Remove("labels"),
       {"'labels'", "'loss_mask'"}},
      {"deepseek_v41_NeitherLabelsNorLossMaskUnpacked",
       v41,
       Plain().Remove("labels"),
       {"'labels'", "'loss_mask'"}},
      // Rows of 5 become 8: what is appended is -100, what is laid out is 0.
      {"deepseek_v41_ABoolLossMaskForLabels",
       DeepseekV41({}, kPadId),
       OneRow(5).Real({{5}}).Remove("labels").Set(Of("loss_mask", {1, 5}, DType::kBool)),
       {"'labels'", "bool", "-100"}},
      {"deepseek_v41_NoRows", v41, PackedBatch(0, 8).Set(Of("seq_lens", {0, 1})), {"B = 0"}},
      {"deepseek_v41_NoAlignment",
       DeepseekV41({.packed_alignment = 0}, kPadId),
       Packed(),
       {"packed_alignment 0", "1 at least"}},
      {"deepseek_v41_ANegativeAlignment",
       DeepseekV41({.packed_alignment = -4}, kPadId),
       Packed(),
       {"packed_alignment -4"}},
      {"deepseek_v41_AHugeAlignment",
       DeepseekV41({.packed_alignment = kHuge}, kPadId),
       Packed(),
       {"2 documents", "packed_alignment = 4611686018427387904", "64 bits"}},
      {"deepseek_v41_AHugeMultiple",
       DeepseekV41({.pad_multiple = kHuge}, kPadId),
       Packed(),
       {"64 bits", "2 * 4611686018427387904"}},
      {"deepseek_v41_AHugeMultipleUnpacked",
       DeepseekV41({.pad_multiple = kHuge}, kPadId),
       Plain(),
       {"64 bits", "2 * 4611686018427387904"}},
      {"deepseek_v41_AMinimumOfInt64",
       DeepseekV41({.packed_alignment = 4},
                   {.min_padded_len = std::numeric_limits<int64_t>::max()}),
       Packed(),
       {"9223372036854775807", "packed_alignment", "64 bits"}},
      {"deepseek_v41_LengthsOfI16",
       v41,
       Packed().Lengths("seq_lens", {{3, 4}, {8}}, DType::kI16),
       {"'seq_lens'", "i16", "i32 or i64"}},
      {"deepseek_v41_LengthsOfAnotherShapeThanTheSpans",
       v41,
       Lengths({{4, 4}, {8}}, {{8}, {8}}),
       {"'seq_lens' [2, 2]", "'seq_lens_padded' [2, 1]", "same shape"}},
      {"deepseek_v41_AnAbsentDocumentWithASpan",
       v41,
       Lengths({{4, 0}, {8}}, {{4, 4}, {8}}),
       {"row 0", "entry 1", "length 0", "span 4", "absent has no span"}},
      {"deepseek_v41_AnUnusedPlaceWithASpan",
       v41,
       Lengths({{4, -1000}, {8}}, {{4, 4}, {8}}),
       {"row 0", "entry 1", "length -1000", "span 4"}},
      {"deepseek_v41_AnAbsentDocumentWithANegativeSpan",
       v41,
       Lengths({{4, 0}, {8}}, {{4, -3}, {8}}),
       {"row 0", "entry 1", "span -3"}},
      {"deepseek_v41_ASpanShorterThanItsDocument",
       v41,
       Lengths({{5}, {8}}, {{4}, {8}}),
       {"row 0", "entry 0", "length 5", "span 4", "the whole document"}},
      {"deepseek_v41_ADocumentWithoutASpan",
       v41,
       Lengths({{5}, {8}}, {{-1000}, {8}}),
       {"row 0", "entry 0", "length 5", "span -1000"}},
      {"deepseek_v41_ASpanPastItsRow",
       v41,
       Lengths({{8}, {4, 4}}, {{8}, {4, 5}}),
       {"row 1", "entry 1", "span 5", "column 4", "S = 8"}},
      {"deepseek_v41_ASpanOfInt64",
       v41,
       Lengths({{8}, {4, 4}}, {{8}, {4, std::numeric_limits<int64_t>::max()}}),
       {"row 1", "entry 1", "S = 8"}},
      {"deepseek_v41_UnsignedLabels",
       v41,
       Packed().Set(Of("labels", {2, 8}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
      {"deepseek_v41_AFloatingPaddingMask",
       v41,
       Plain().Set(Of("padding_mask", {2, 6}, DType::kF32)),
       {"'padding_mask'", "f32", "send bool"}},
      {"deepseek_v41_AFourDimensionalIntegerMask",
       v41,
       Plain().Set(Of("attention_mask", {2, 1, 6, 6})),
       {"'attention_mask'", "i64", "bool"}},
      {"deepseek_v41_AMaskOfAnotherLengthWithoutAMesh",
       v41,  // D19
       Plain().Cp(std::nullopt).Set(Of("attention_mask", {2, 7})),
       {"'attention_mask' [2, 7]"}},
      {"deepseek_v41_AFloatingPaddingMaskWithoutAMesh",
       v41,
       Plain().Cp(std::nullopt).Set(Of("padding_mask", {2, 6}, DType::kF64)),
       {"'padding_mask'", "f64"}},
  };
  for (auto more :
       {OfShapes("deepseek_v41", v41, Packed(), {"labels", "loss_mask"}),
        OfShapes("deepseek_v41_unpacked", v41, Plain(), {"labels", "loss_mask", "padding_mask"}),
        OfLengthTables("deepseek_v41", v41, Packed())}) {
    for (Refusal& row : more) rows.push_back(std::move(row));
  }
  return rows;
}

// Contract 4.10.
std::vector<Refusal> OfGemma4() {
  const Sharder gemma4 = Gemma4(kPadId);
  const auto with_extra = [](std::vector<ExtraStream> extras) {
    return Gemma4({.extra_streams = std::move(extras)});
  };
  std::vector<Refusal> rows = {
      {"gemma4_BothPrimaries",
       gemma4,
       Plain().Set(Of("inputs_embeds", {2, 6, 4}, DType::kF32)),
       {"exactly one of", "both"}},
      {"gemma4_NeitherLabelsNorLossMask",
       gemma4,
       Plain().Remove("labels"),
       {"'labels'", "'loss_mask'"}},
      {"gemma4_AFourDimensionalIntegerMask",
       gemma4,
       Plain().Set(Of("attention_mask", {2, 1, 6, 6})),
       {"'attention_mask'", "i64", "bool"}},
      {"gemma4_AMapOfAnotherLength",
       gemma4,
       Plain().Set(Of("_packed_seq_ids", {2, 7})),
       {"'_packed_seq_ids' [2, 7]", "expected 6"}},
      {"gemma4_AMapWithoutAnAxis",
       gemma4,
       Plain().Set(Of("_packed_seq_ids", {6})),
       {"'_packed_seq_ids' [6]", "no axis 1"}},
      {"gemma4_AScalarMap",
       gemma4,
       Plain().SetScalar("_packed_seq_ids", int64_t{1}),
       {"'_packed_seq_ids' is a scalar"}},
      {"gemma4_AMapThatIsMadeOnAnAxisItHasNot",
       with_extra({{"_packed_seq_ids", 2}}),
       Plain(),
       {"'_packed_seq_ids' [2, 6]", "no axis 2"}},
      {"gemma4_AMapThatIsMadeOnTheAxisOfRows",
       with_extra({{"_packed_seq_ids", 0}}),
       Plain(),
       {"'_packed_seq_ids' [2, 6]", "length 2 on axis 0", "expected 6"}},
      {"gemma4_AnExtraStreamThatIsAbsent",
       with_extra({{"weights"}}),
       Plain(),
       {"'weights'", "declared", "send it"}},
      {"gemma4_AnExtraStreamOfAnotherLength",
       with_extra({{"weights"}}),
       Plain().Set(Of("weights", {2, 5})),
       {"'weights' [2, 5]", "expected 6"}},
      {"gemma4_AnExtraPadThatDoesNotFit",
       with_extra({{"weights", 1, int64_t{-1}}}),
       Plain().Set(Of("weights", {2, 6}, DType::kU8)),
       {"'weights'", "u8", "-1"}},
      {"gemma4_OneAxisOfPositions",
       gemma4,
       Plain().Set(Of("position_ids", {6})),
       {"'position_ids' [6]", "[2, 6]"}},
      {"gemma4_UnsignedLabels",
       gemma4,
       Plain().Set(Of("labels", {2, 6}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
  };
  for (Refusal& row : OfShapes("gemma4", gemma4, Plain(),
                               {"labels", "loss_mask", "padding_mask", "attention_mask"})) {
    rows.push_back(std::move(row));
  }
  return rows;
}

// Contract 4.12 and 4.16: rows with a document map.
std::vector<Refusal> OfMappedRows(const std::string& layout, const Sharder& sharder,
                                  const Sharder& without_pad_id) {
  const PackedBatch odd(2, 7);
  std::vector<Refusal> rows = {
      {layout + "_NoIds", sharder, Plain().Remove("input_ids"), {layout, "'input_ids'"}},
      {layout + "_EmbeddingsAlone",
       sharder,
       Plain().Remove("input_ids").Set(Of("inputs_embeds", {2, 6, 4}, DType::kF32)),
       {layout, "'input_ids'", "inputs_embeds do not stand in"}},
      {layout + "_AScalarForIds",
       sharder,
       Plain().SetScalar("input_ids", int64_t{1}),
       {layout, "'input_ids'"}},
      {layout + "_ThreeAxesOfPositions",
       sharder,
       Plain().Set(Of("position_ids", {3, 2, 6})),
       {"'position_ids' [3, 2, 6]", "[2, 6]"}},
      {layout + "_OneAxisOfPositions",
       sharder,
       Plain().Set(Of("position_ids", {6})),
       {"'position_ids' [6]", "[2, 6]"}},
      {layout + "_NoPadId",
       without_pad_id,
       odd,
       {"'input_ids'", "7 columns", "cp_size 2", "padding_token_id"}},
      {layout + "_UnsignedLabels",
       sharder,
       PackedBatch(odd).Set(Of("labels", {2, 7}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
      {layout + "_BoolLabels",
       sharder,
       PackedBatch(odd).Set(Of("labels", {2, 7}, DType::kBool)),
       {"'labels'", "bool", "-100"}},
      {layout + "_ALengthOverItsPaddedOne",
       sharder,
       Lengths({{5}, {8}}, {{4}, {8}}),
       {"row 0", "document 0", "5 in 'seq_lens'"}},
      {layout + "_UnequalCounts",
       sharder,
       Lengths({{4, 4}, {8}}, {{8}, {8}}),
       {"row 0", "'seq_lens' has 2"}},
      {layout + "_AColumnCountBeyondInt64",
       sharder,
       PackedBatch(0, std::numeric_limits<int64_t>::max()).Cp(2),
       {"9223372036854775807", "cp_size", "64 bits"}},
  };
  for (auto more : {OfShapes(layout, sharder, Plain(), {"labels", "loss_mask", "padding_mask"}),
                    OfLengthTables(layout, sharder, Packed())}) {
    for (Refusal& row : more) rows.push_back(std::move(row));
  }
  for (const char* name : {"_packed_seq_ids", "attention_mask"}) {
    rows.push_back({layout + "_AMapOfAnotherLength_" + name,
                    sharder,
                    Plain().Set(Of(name, {2, 7})),
                    {std::string(name) + "' [2, 7]", "expected 6"}});
  }
  return rows;
}

// Where a batch has several faults, shapes come before what padding needs.
std::vector<Refusal> OfOrder() {
  const auto short_labels = [](PackedBatch batch) { return batch.Set(Of("labels", {1, 3})); };
  const Parts parts = {"'labels' [1, 3]"};
  return {
      {"order_kimi", Kimi(KimiVariant::kLinear), short_labels(OneRow(7)), parts},
      {"order_kimi_lengths",
       Kimi(KimiVariant::kLinear),
       OneRow(7).Real({{-1}}),
       {"'seq_lens' row 0", "-1"}},
      {"order_glm5_next", Glm5Next(Primary::kCut), short_labels(OneRow(7)), parts},
      {"order_glm5_next_lengths",
       Glm5Next(Primary::kCut),
       OneRow(7).Real({{-1}}),
       {"'seq_lens' row 0", "-1"}},
      {"order_magi", Magi({}), Plain().Cp(std::nullopt), {"needs a mesh"}},
      {"order_block_diagonal", BlockDiagonal(Primary::kCut), short_labels(OneRow(7)), parts},
      {"order_deepseek_v4", DeepseekV4({}), short_labels(OneRow(7).Real({{7}})), parts},
      {"order_contiguous", Contiguous({}), short_labels(OneRow(7)), parts},
      // D6 before lengths.
      {"order_block_diagonal_mask",
       BlockDiagonal(Primary::kCut, kPadId),
       OneRow(7).Set(Of("attention_mask", {1, 1, 3, 3}, DType::kF32)),
       {"'attention_mask'", "floating"}},
      {"order_contiguous_mask",
       Contiguous({}, kPadId),
       OneRow(7).Set(Of("attention_mask", {1, 1, 3, 3})),
       {"'attention_mask'", "i64", "bool"}},
  };
}

std::vector<Refusal> OfKimi() {
  const Sharder kimi = Kimi(KimiVariant::kLinear, kPadId);
  std::vector<Refusal> rows = OfMappedRows("kimi", kimi, Kimi(KimiVariant::kK3));
  rows.push_back({"kimi_LengthsOfOneAxis",
                  kimi,
                  OneRow(6).Set(Of("seq_lens", {2}), {2, 4}),
                  {"'seq_lens' [2]", "one axis", "[1, n]"}});
  rows.push_back({"kimi_PaddedLengthsOfOneAxis",
                  kimi,
                  OneRow(6).Real({{6}}).Set(Of("seq_lens_padded", {1}), {6}),
                  {"'seq_lens_padded' [1]", "one axis"}});
  rows.push_back({"kimi_PositionsOfOtherRows",
                  kimi,
                  Plain().Set(Of("position_ids", {3, 6})),
                  {"'position_ids' [3, 6]", "expected 2"}});
  return rows;
}

std::vector<Refusal> OfGlm5Next() {
  const Sharder glm5 = Glm5Next(Primary::kCut, kPadId);
  std::vector<Refusal> rows = OfMappedRows("glm5_next", glm5, Glm5Next(Primary::kCut));
  rows.push_back({"glm5_next_BoundariesThatDescend",
                  glm5,
                  OneRow(6).Set(Of("cu_seqlens", {3}), {0, 4, 2}),
                  {"'cu_seqlens'", "ascend"}});
  rows.push_back({"glm5_next_FloatingBoundaries",
                  glm5,
                  OneRow(6).Set(Of("cu_seqlens", {3}, DType::kF32)),
                  {"'cu_seqlens'", "send integers"}});
  rows.push_back({"glm5_next_PositionsOfOtherRows",
                  glm5,
                  Plain().Set(Of("position_ids", {3, 6})),
                  {"'position_ids' [3, 6]", "[1, 6]"}});
  rows.push_back({"glm5_next_PositionsOfFourAxesOfOtherRows",
                  glm5,
                  Plain().Set(Of("position_ids", {1, 6, 2, 2})),
                  {"'position_ids' [1, 6, 2, 2]", "expected 2"}});
  rows.push_back({"glm5_next_AMapOfThreeAxes",
                  glm5,  // it gets an axis in front (step 3a), and is of other rows then
                  Plain().Set(Of("_packed_seq_ids", {2, 6, 1})),
                  {"'_packed_seq_ids' [1, 2, 6, 1]", "expected 2"}});
  rows.push_back({"glm5_next_ALossMaskOfOneAxis",
                  glm5,  // the other streams get a row
                  OneRow(6)
                      .Set(Of("input_ids", {6}))
                      .Set(Of("labels", {6}))
                      .Set(Of("position_ids", {6}))
                      .Set(Of("loss_mask", {6})),
                  {"'loss_mask' [6]", "[1, 6, ...]"}});
  return rows;
}

// Contract 4.18, in the order of its steps.
std::vector<Refusal> OfQwen38() {
  const Sharder qwen = Qwen38({}, kPadId);
  const auto boundaries = [](std::vector<int64_t> values) {
    const int64_t count = static_cast<int64_t>(values.size());
    return OneRow(8).Set(Of("cu_seqlens", {count}, DType::kI32), std::move(values));
  };
  const auto lengths = [](std::vector<int64_t> values) {
    return OneRow(8).Real({std::move(values)});
  };
  const auto mask = [](const char* name, std::vector<int64_t> values, DType dtype = DType::kI64) {
    return PackedBatch(2, 3).Set(Of(name, {2, 3}, dtype), std::move(values));
  };
  std::vector<Refusal> rows = {
      {"qwen3_8_ATensorParallelMesh",
       Qwen38({.tp_size = 2}, kPadId),
       Plain(),
       {"tp_size 2", "qwen3_8", "leave it out"},
       Code::kUnimplemented},
      {"qwen3_8_LengthsWithoutIds",
       qwen,
       lengths({8}).Remove("input_ids"),
       {"'seq_lens'", "no 'input_ids'"}},
      {"qwen3_8_NoDocument",
       qwen,
       lengths({-1000}),
       {"'seq_lens' has no document", "leave it out"}},
      {"qwen3_8_AnEmptyDocument",
       qwen,
       lengths({4, 0}),
       {"'seq_lens'", "entry 1 is 0", "4 of S = 8"}},
      {"qwen3_8_ANegativeDocument", qwen, lengths({4, -1}), {"'seq_lens'", "entry 1 is -1"}},
      {"qwen3_8_DocumentsPastTheRow",
       qwen,
       lengths({4, 5}),
       {"'seq_lens'", "entry 1 is 5", "4 of S = 8"}},
      {"qwen3_8_ADocumentOfInt64",
       qwen,
       lengths({4, std::numeric_limits<int64_t>::max()}),
       {"'seq_lens'", "entry 1 is 9223372036854775807"}},
      {"qwen3_8_FloatingLengths",
       qwen,
       OneRow(8).Set(Of("seq_lens", {1, 1}, DType::kF32)),
       {"'seq_lens'", "integers"}},
      {"qwen3_8_FloatingBoundaries",
       qwen,
       OneRow(8).Set(Of("cu_seqlens", {2}, DType::kF32)),
       {"'cu_seqlens'", "integers"}},
      {"qwen3_8_ScalarBoundaries",
       qwen,
       OneRow(8).SetScalar("cu_seqlens", int64_t{8}),
       {"'cu_seqlens'", "tensor"}},
      {"qwen3_8_TooManyBoundariesForTheRanks",
       qwen,
       boundaries(std::vector<int64_t>(1025, 0)).Cp(4096),
       {"'cu_seqlens'", "1025 entries", "4096 ranks", "4194304"}},
      {"qwen3_8_ThdWithoutBoundaries",
       qwen,
       Thd(Plain()),
       {"qkv_format", "'cu_seqlens'"},
       Code::kUnimplemented},
      {"qwen3_8_NoIds",
       qwen,
       Plain().Remove("input_ids"),
       {"'input_ids'", "raw ids"},
       Code::kUnimplemented},
      {"qwen3_8_Embeddings",
       qwen,
       Plain().Set(Of("inputs_embeds", {2, 6, 4}, DType::kF32)),
       {"'inputs_embeds'"},
       Code::kUnimplemented},
      {"qwen3_8_IdsOfI16",
       qwen,
       Plain().Set(Of("input_ids", {2, 6}, DType::kI16)),
       {"'input_ids' i16[2, 6]", "i32 or i64"}},
      {"qwen3_8_IdsOfThreeAxes",
       qwen,
       Plain().Set(Of("input_ids", {2, 6, 1})),
       {"'input_ids' i64[2, 6, 1]", "[B, S]"}},
      {"qwen3_8_NoColumns", qwen, PackedBatch(2, 0), {"'input_ids'", "S = 0"}},
      {"qwen3_8_AMultipleOfOne",
       Qwen38({.pad_multiple = 1}, kPadId),
       Plain(),
       {"pad_multiple 1", "2 at least"}},
      {"qwen3_8_ANegativeMultiple",
       Qwen38({.pad_multiple = -4}, kPadId),
       Plain(),
       {"pad_multiple -4"}},
      {"qwen3_8_AHugeMultiple",
       Qwen38({.pad_multiple = kHuge}, kPadId),
       Plain(),
       {"64 bits", "4611686018427387904"}},
      {"qwen3_8_TwoPackedRows",
       qwen,
       Packed().Remove("seq_lens_padded").Real({{4}, {4}}),
       {"'input_ids' [2, 8]", "2 rows", "come in one"},
       Code::kInvalidArgument},
      {"qwen3_8_OneBoundary", qwen, boundaries({0}), {"'cu_seqlens' of 1", "S = 8"}},
      {"qwen3_8_NoBoundary", qwen, boundaries({}), {"'cu_seqlens' of 0", "S = 8"}},
      {"qwen3_8_BoundariesThatDoNotBeginAtNothing", qwen, boundaries({1, 8}), {"'cu_seqlens'"}},
      {"qwen3_8_BoundariesThatEndEarly", qwen, boundaries({0, 7}), {"'cu_seqlens'", "S = 8"}},
      {"qwen3_8_BoundariesThatEndLate", qwen, boundaries({0, 9}), {"'cu_seqlens'", "S = 8"}},
      {"qwen3_8_BoundariesThatRepeat", qwen, boundaries({0, 4, 4, 8}), {"'cu_seqlens'", "ascend"}},
      {"qwen3_8_BoundariesThatDescend", qwen, boundaries({0, 6, 4, 8}), {"'cu_seqlens'"}},
      {"qwen3_8_BoundariesWithAnUnusedPlace", qwen, boundaries({0, 8, -1000}), {"'cu_seqlens'"}},
      {"qwen3_8_APackedBatchWithAMask",
       qwen,
       boundaries({0, 8}).Set(Of("attention_mask", {1, 8}), std::vector<int64_t>(8, 1)),
       {"packed", "'attention_mask'", "one of the two"}},
      {"qwen3_8_APackedBatchWithAPaddingMask",
       qwen,
       boundaries({0, 8}).Set(Of("padding_mask", {1, 8}, DType::kBool), std::vector<int64_t>(8, 0)),
       {"packed", "'padding_mask'"}},
      {"qwen3_8_AMaskOfFourAxes",
       qwen,
       PackedBatch(1, 1).Set(Of("attention_mask", {1, 1, 1, 1}), {1}),
       {"'attention_mask' [1, 1, 1, 1]", "'input_ids' [1, 1]"},
       Code::kUnimplemented},
      {"qwen3_8_AMaskOfAnotherLength",
       qwen,
       PackedBatch(1, 2).Set(Of("padding_mask", {1, 1}, DType::kBool), {0}),
       {"'padding_mask' [1, 1]"},
       Code::kUnimplemented},
      {"qwen3_8_AScalarMask",
       qwen,
       Plain().SetScalar("attention_mask", int64_t{1}),
       {"'attention_mask'", "scalar"},
       Code::kUnimplemented},
      {"qwen3_8_AMaskOfDocumentIds",
       qwen,
       mask("attention_mask", {1, 1, 2, 1, 1, 1}),
       {"'attention_mask' row 0", "2 in column 2", "only 0 and 1"}},
      {"qwen3_8_ANegativeMask",
       qwen,
       mask("attention_mask", {1, 1, 1, 1, -1, 0}),
       {"'attention_mask' row 1", "-1 in column 1"}},
      {"qwen3_8_PaddingOnTheLeft",
       qwen,
       mask("attention_mask", {1, 1, 1, 0, 1, 1}),
       {"'attention_mask' row 1", "padding at column 0", "token at 1"},
       Code::kUnimplemented},
      {"qwen3_8_PaddingInTheMiddle",
       qwen,
       mask("padding_mask", {0, 1, 0, 0, 0, 0}, DType::kBool),
       {"'padding_mask' row 0", "padding at column 1", "token at 2"},
       Code::kUnimplemented},
      {"qwen3_8_MasksThatDisagree",
       qwen,
       mask("attention_mask", {1, 1, 0, 1, 1, 1})
           .Set(Of("padding_mask", {2, 3}, DType::kBool), {0, 0, 1, 0, 0, 1}),
       {"3 tokens in row 1", "'padding_mask' 2", "must agree"}},
      {"qwen3_8_NeitherLabelsNorLossMask",
       qwen,
       Plain().Remove("labels"),
       {"'labels'", "'loss_mask'"}},
      {"qwen3_8_NoPadId", Qwen38({}), Plain(), {"'input_ids'", "6 -> 8", "padding_token_id"}},
  };
  for (const char* name :
       {"cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_padded", "packed_seq_ids", "_packed_seq_ids",
        "indices", "max_seqlen", "max_seqlen_q", "max_seqlen_kv"}) {
    const Parts parts = {std::string("'") + name + "'", "'cu_seqlens' alone"};
    rows.push_back({std::string("qwen3_8_With_") + name, qwen, Plain().Set(Of(name, {2})), parts,
                    Code::kUnimplemented});
    rows.push_back({std::string("qwen3_8_WithAScalar_") + name, qwen,
                    boundaries({0, 8}).SetScalar(name, int64_t{1}), parts, Code::kUnimplemented});
  }
  for (Refusal& row : OfShapes("qwen3_8", qwen, Plain(), {"labels", "loss_mask"})) {
    rows.push_back(std::move(row));
  }
  // Elements of one half, of infinity and of no number, bit by bit.
  for (const auto& [what, dtype, bits] : std::vector<std::tuple<const char*, DType, int64_t>>{
           {"AHalf", DType::kF16, 0x3800},
           {"AHalfOfBf16", DType::kBF16, 0x3f00},
           {"AHalfOfF64", DType::kF64, 0x3fe0000000000000},
           {"Infinity", DType::kF32, 0x7f800000},
           {"NotANumber", DType::kF32, 0x7fc00000}}) {
    rows.push_back({std::string("qwen3_8_AMaskThatHolds") + what,
                    qwen,
                    PackedBatch(1, 1).Set(Of("attention_mask", {1, 1}, dtype), {bits}),
                    {"'attention_mask' row 0", "column 0", "only 0 and 1"}});
  }
  return rows;
}

// Contract 4.13.
std::vector<Refusal> OfBlockDiagonal() {
  const Sharder block = BlockDiagonal(Primary::kCut, kPadId);
  const auto visual = [](std::vector<int64_t> mask) {
    return OneRow(4).Set(Of("visual_pos_masks", {1, 4}, DType::kBool), std::move(mask));
  };
  std::vector<Refusal> rows = {
      {"block_diagonal_BothPrimaries",
       block,
       OneRow(6).Set(Of("inputs_embeds", {1, 6, 4}, DType::kF32)),
       {"exactly one of", "both"}},
      {"block_diagonal_NoPrimary", block, OneRow(6).Remove("input_ids"), {"neither"}},
      {"block_diagonal_TwoRows",
       block,
       Plain(),
       {"'input_ids' [2, 6]", "2 rows", "one packed row", "cp_size 2"}},
      {"block_diagonal_NoRows", block, PackedBatch(0, 6), {"'input_ids' [0, 6]", "0 rows"}},
      {"block_diagonal_NoPadId",
       BlockDiagonal(Primary::kCut),
       OneRow(6),
       {"'input_ids'", "6 columns", "cp_size 2", "padding_token_id"}},
      {"block_diagonal_AFourDimensionalFloatingMask",
       block,  // D6
       OneRow(6).Set(Of("attention_mask", {1, 1, 6, 6}, DType::kF32)),
       {"'attention_mask' f32[1, 1, 6, 6]", "no document id", "send bool"}},
      {"block_diagonal_ADiagonalOfAnotherLength",
       block,
       OneRow(6).Set(Of("attention_mask", {1, 1, 6, 5})),
       {"'attention_mask' [1, 1, 6, 5]", "min(Q, K) = 6"}},
      {"block_diagonal_AMaskWithoutHeads",
       block,
       OneRow(6).Set(Of("attention_mask", {1, 0, 6, 6})),
       {"'attention_mask' [1, 0, 6, 6]", "heads >= 1"}},
      {"block_diagonal_AMaskOfAnotherLength",
       block,
       OneRow(6).Set(Of("attention_mask", {1, 5})),
       {"'attention_mask' [1, 5]", "expected 6"}},
      {"block_diagonal_OneAxisOfPositions",
       block,
       OneRow(6).Set(Of("position_ids", {6})),
       {"'position_ids' [6]", "[1, 6]"}},
      {"block_diagonal_UnsignedLabels",
       block,
       OneRow(6).Set(Of("labels", {1, 6}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
      {"block_diagonal_VisualRowsThatAreNotAsManyAsTheTokens",
       block,
       visual({0, 1, 1, 0}).Set(Of("_deepstack_visual_embeds.0", {3, 8}, DType::kF32)),
       {"'_deepstack_visual_embeds.0' [3, 8]", "2 visual tokens", "'visual_pos_masks'"}},
      {"block_diagonal_VisualRowsWithoutAxes",
       block,
       visual({0, 1, 0, 0}).Set(Of("_deepstack_visual_embeds.1", {}, DType::kF32)),
       {"'_deepstack_visual_embeds.1' []", "1 visual tokens"}},
      {"block_diagonal_AFloatingVisualMask",
       block,
       OneRow(4)
           .Set(Of("visual_pos_masks", {1, 4}, DType::kF32))
           .Set(Of("_deepstack_visual_embeds.0", {2, 8}, DType::kF32)),
       {"'visual_pos_masks' [1, 4]", "send bool [1, S]"}},
      {"block_diagonal_AVisualMaskOfThreeAxes",
       block,
       OneRow(4)
           .Set(Of("visual_pos_masks", {1, 4, 2}, DType::kBool), std::vector<int64_t>(8, 1))
           .Set(Of("_deepstack_visual_embeds.0", {4, 8}, DType::kF32)),
       {"'visual_pos_masks'", "[1, 4, 2]"}},
      {"block_diagonal_AColumnCountBeyondInt64",
       block,
       OneRow(std::numeric_limits<int64_t>::max()),
       {"9223372036854775807", "64 bits"}},
  };
  for (Refusal& row : OfShapes("block_diagonal", block, OneRow(6),
                               {"labels", "loss_mask", "_packed_seq_ids", "visual_pos_masks"})) {
    rows.push_back(std::move(row));
  }
  return rows;
}

// Contract 7.
std::vector<Refusal> OfMagi() {
  const Sharder hf = Magi({}, kPadId);
  const Sharder custom = Magi({.variant = MagiVariant::kCustom}, kPadId);
  const Sharder vlm = Magi({.domain = MagiDomain::kVlm}, kPadId);
  std::vector<Refusal> rows = {
      {"magi_TwoRows", hf, Plain(), {"[1, S]", "[2, 6]"}},
      {"magi_NoIds", hf, OneRow(6).Remove("input_ids"), {"[1, S]", "not there"}},
      {"magi_IdsOfThreeAxes",
       hf,
       OneRow(6).Set(Of("input_ids", {1, 6, 1})),
       {"[1, S]", "[1, 6, 1]"}},
      {"magi_NoMesh", hf, OneRow(6).Cp(std::nullopt), {"needs a mesh", "cp_size"}},
      {"magi_APrefixTree",
       hf,
       OneRow(6).SetScalar("prefix_tree", std::string("x")),
       {"'prefix_tree'", "CUSTOM"},
       Code::kUnimplemented},
      {"magi_APrefixTreeOfTensors",
       hf,
       OneRow(6).Set(Of("prefix_tree", {3})),
       {"'prefix_tree'", "CUSTOM"},
       Code::kUnimplemented},
      {"magi_NoColumns", hf, OneRow(0), {"0 tokens"}},
      {"magi_FewerTokensThanRanks", hf, OneRow(3).Cp(4), {"3 tokens", "cp_size 4"}},
      {"magi_TokensBeyondInt32", hf, OneRow(int64_t{1} << 31), {"2147483648 tokens"}},
      {"magi_NoChunk", Magi({.chunk_size = 0}, kPadId), OneRow(6), {"chunk_size 0", "1 at least"}},
      {"magi_ANegativeChunk", Magi({.chunk_size = -1}, kPadId), OneRow(6), {"chunk_size -1"}},
      {"magi_NoChunksForARank",
       Magi({.min_chunks_per_rank = 0}, kPadId),
       OneRow(6),
       {"min_chunks_per_rank 0"}},
      {"magi_TooManyChunks",
       Magi({.chunk_size = 1}, kPadId),
       OneRow(int64_t{1} << 23),
       {"8388608 chunks", "raise chunk_size"}},
      {"magi_UnsignedLabels",
       hf,
       OneRow(33).Set(Of("labels", {1, 33}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
      {"magi_LabelsOfAnotherLength",
       hf,
       OneRow(6).Set(Of("labels", {1, 7})),
       {"'labels' [1, 7]", "expected 6"}},
      {"magi_vlm_TwoRows", vlm, Plain().Cp(1), {"[1, S]", "[2, 6]"}},
      {"magi_vlm_TwoRanks", vlm, OneRow(6), {"VLM", "cp_size 1", "2"}, Code::kUnimplemented},
      {"magi_packed_NoLengths", custom, Thd(Plain()), {"no 'seq_lens'", "cp_size 2"}},
      {"magi_packed_NoLabels", custom, Thd(Packed()).Remove("labels"), {"no 'labels'", "magi"}},
      {"magi_packed_NoIds", custom, Thd(Packed()).Remove("input_ids"), {"no 'input_ids'"}},
      {"magi_packed_AShortFirstRow",
       custom,
       Thd(Lengths({{4}, {8}}, {{4}, {8}})),
       {"'seq_lens_padded' row 0", "sum to 4", "S = 8"}},
      {"magi_packed_AShortLastRow",
       custom,
       Thd(Packed()).Remove("seq_lens_padded").Real({{8}, {4}}),
       {"sum to 12", "16 tokens", "pad the last"}},
      {"magi_packed_ThreeAxesOfPositions",
       custom,
       Thd(Packed()).Set(Of("position_ids", {3, 2, 8})),
       {"'position_ids'", "three axes"}},
      {"magi_packed_IdsOfThreeAxes",
       custom,
       Thd(Packed()).Set(Of("input_ids", {2, 8, 2}, DType::kF32)),
       {"'input_ids'", "2 elements", "16 tokens"}},
      {"magi_packed_LabelsOfThreeAxes",
       custom,
       Thd(Packed()).Set(Of("labels", {2, 8, 3})),
       {"'labels'", "3 elements", "16 tokens"}},
      {"magi_packed_NoRows", custom, Thd(PackedBatch(0, 8).Set(Of("seq_lens", {0, 1}))), {"B = 0"}},
      {"magi_packed_UnsignedLabels",
       custom,
       Thd(OneRow(33).Real({{33}})).Set(Of("labels", {1, 33}, DType::kU8)),
       {"'labels'", "u8", "-100"}},
      {"magi_converted_NoLabels",
       custom,
       Thd(Packed()).Cp(1).Remove("labels"),
       {"no 'labels'", "magi"}},
  };
  for (Refusal& row : OfLengthTables("magi", custom, Thd(Packed()))) rows.push_back(std::move(row));
  return rows;
}

std::vector<Refusal> AllRefusals() {
  std::vector<Refusal> all;
  for (auto rows : {OfAllTraits, OfGlmDsa, OfDocumentHeadTail, OfMimo, OfDeepseekV4, OfDeepseekV41,
                    OfGemma4, OfKimi, OfOrder, OfGlm5Next, OfQwen38, OfBlockDiagonal, OfMagi}) {
    for (Refusal& refusal : rows()) all.push_back(std::move(refusal));
  }
  return all;
}

class LayoutRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(LayoutRefusals, NameTheStreamTheRowTheNumbersAndTheWayOut) {
  const Refusal& refusal = GetParam();
  const absl::StatusOr<ShardPlan> plan = refusal.batch.PlanBy(refusal.sharder);
  ASSERT_FALSE(plan.ok()) << ToString(*plan);
  EXPECT_EQ(plan.status().code(), refusal.code) << plan.status();
  for (const std::string& part : refusal.parts) {
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, LayoutRefusals, testing::ValuesIn(AllRefusals()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard
