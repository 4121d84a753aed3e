// What every layout pads documents and rows to, by hand from contract 2.1 and 4, and that its plans
// pad to just that.
#include "core/plan/pad_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/plan/layouts.h"
#include "core/plan/resolution.h"
#include "core/plan/targets.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BatchSpec Mesh(std::optional<int64_t> cp_size) {
  BatchSpec spec;
  spec.cp_size = cp_size;
  return spec;
}

absl::StatusOr<PadCosts> Costs(const Sharder& sharder, std::optional<int64_t> cp_size,
                               const std::vector<int64_t>& lengths) {
  const absl::StatusOr<int64_t> tokens = SumOfLengths(lengths);
  if (!tokens.ok()) return tokens.status();
  absl::StatusOr<PadRule> rule = sharder.PadRuleOf(Mesh(cp_size), *tokens);
  if (!rule.ok()) return rule.status();
  return PadCostsOf(*std::move(rule), lengths);
}

struct Rule {
  std::string name;
  Sharder sharder;
  std::optional<int64_t> cp_size;
  int64_t document, row;  // multiples
  std::string document_term, row_term;
};

std::vector<Rule> Rules() {
  return {
      {"identity", Identity(), 4, 1, 1, "", ""},
      {"contiguous", Contiguous({.pad_multiple = 6}), 4, 1, 24, "",
       "cp_size * max(pad_multiple, 2) = 24"},
      {"contiguous below 2", Contiguous({.pad_multiple = -3}), 1, 1, 2, "",
       "cp_size * max(pad_multiple, 2) = 2"},
      {"round_robin", RoundRobin({}), 4, 1, 8, "", "2 * cp_size = 8"},
      {"round_robin at 1", RoundRobin({}), 1, 1, 2, "", "2 * cp_size = 2"},
      {"thd", Thd({}), 4, 8, 8, "2 * cp_size = 8", "2 * cp_size = 8"},
      {"thd at 1", Thd({}), 1, 1, 1, "", ""},
      {"thd without a mesh", Thd({}), {}, 1, 1, "", ""},
      {"mimo", Mimo({}), 2, 4, 4, "2 * cp_size = 4", "2 * cp_size = 4"},
      {"glm_dsa", GlmDsa({}), 4, 1, 4, "", "cp_size = 4"},
      {"deepseek_v4", DeepseekV4({.pad_multiple = 8}), 4, 8, 32, "max(pad_multiple, 2) = 8",
       "cp_size * max(pad_multiple, 2) = 32"},
      {"deepseek_v4 at 1", DeepseekV4({.pad_multiple = 8}), 1, 1, 1, "", ""},
      {"deepseek_v41", DeepseekV41({.pad_multiple = 3, .packed_alignment = 5}), 2, 5, 6,
       "packed_alignment = 5", "cp_size * max(pad_multiple, 2) = 6"},
      {"deepseek_v41 without a mesh",
       DeepseekV41({.pad_multiple = 3, .packed_alignment = 5}),
       {},
       5,
       1,
       "packed_alignment = 5",
       ""},
      {"gemma4", Gemma4(), 4, 1, 8, "", "cp_size * max(pad_multiple, 2) = 8"},
      {"kimi", Kimi(KimiVariant::kLinear), 4, 1, 4, "", "cp_size = 4"},
      {"glm5_next", Glm5Next(Primary::kCut), 4, 1, 4, "", "cp_size = 4"},
      {"qwen3_8", Qwen38({}), 2, 1, 8, "", "cp_size * max(pad_multiple, 2) = 8"},
      {"block_diagonal", BlockDiagonal(Primary::kCut), 4, 1, 8, "", "2 * cp_size = 8"},
      {"block_diagonal at 1", BlockDiagonal(Primary::kCut), 1, 1, 1, "", ""},
      {"magi of short chunks", Magi({.chunk_size = 10, .min_chunks_per_rank = 1}), 2, 1, 20, "",
       "cp_size * chunks of 10 = 20"},
      // 29 tokens in 2 * 4 chunks: 4 each.
      {"magi of long chunks", Magi({.chunk_size = 512, .min_chunks_per_rank = 4}), 2, 1, 8, "",
       "cp_size * chunks of 4 = 8"},
      {"magi that is not cut", Magi({.variant = MagiVariant::kCustom}), 1, 1, 1, "", ""},
      {"document_head_tail", DocumentHeadTail(), 4, 1, 1, "", ""},
      {"targets", WithTargets(Contiguous({}), {}), 4, 1, 8, "",
       "cp_size * max(pad_multiple, 2) = 8"},
  };
}

TEST(PadRule, OfEveryLayoutIsThatOfTheContractAndNamesItsTerm) {
  for (const Rule& want : Rules()) {
    const auto costs = Costs(want.sharder, want.cp_size, {17, 12});
    ASSERT_TRUE(costs.ok()) << want.name << ": " << costs.status();
    EXPECT_EQ(costs->rule.document_multiple, want.document) << want.name;
    EXPECT_EQ(costs->rule.document_term, want.document_term) << want.name;
    EXPECT_EQ(costs->rule.row_multiple, want.row) << want.name;
    EXPECT_EQ(costs->rule.row_term, want.row_term) << want.name;
  }
}

// A row of `columns` tokens and labels, packed with these documents if there are any.
BatchSpec Row(int64_t columns, int64_t documents, std::optional<int64_t> cp_size) {
  BatchSpec spec = Mesh(cp_size);
  for (const char* name : {"input_ids", "labels", "position_ids"}) {
    spec.tensors.push_back({name, DType::kI64, {1, columns}});
  }
  if (documents == 0) return spec;
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    spec.tensors.push_back({name, DType::kI64, {1, documents}});
  }
  spec.scalars.push_back({"qkv_format", std::string("thd")});
  return spec;
}

TEST(PadRule, RowsOfPlansArePaddedToTheMultipleOfTheRule) {
  for (const Rule& rule : Rules()) {
    for (int64_t columns : {24, 25, 29, 48}) {
      const auto plan = rule.sharder.Plan(Row(columns, 0, rule.cp_size), {});
      if (!plan.ok() || plan->chunks.empty()) continue;  // layouts of packed rows alone
      const auto costs = Costs(rule.sharder, rule.cp_size, {columns});
      ASSERT_TRUE(costs.ok()) << rule.name << ": " << costs.status();
      if (costs->rule.document_multiple > 1) continue;  // counts where rows are packed
      EXPECT_EQ(plan->chunks[0].padded_len, costs->row) << rule.name << ", " << columns;
    }
  }
}

TEST(PadRule, PackedRowsThatAreLaidOutAnewHaveTheColumnsOfTheCosts) {
  const std::vector<int64_t> lengths = {5, 1, 9, 8};
  const ValueView values(DType::kI64, {1, 4}, reinterpret_cast<const std::byte*>(lengths.data()));
  const SharedOptions shared = {.padding_token_id = 0};
  for (int64_t cp_size : {2, 3, 8}) {
    for (const Sharder& sharder :
         {DeepseekV4({.pad_multiple = 4}, shared), DeepseekV4({.pad_multiple = 1}, shared),
          DeepseekV41({.pad_multiple = 2, .packed_alignment = 4}, shared),
          DeepseekV4({}, {.padding_token_id = 0, .min_padded_len = 77})}) {
      const auto plan =
          sharder.Plan(Row(23, 4, cp_size), {{"seq_lens", values}, {"seq_lens_padded", values}});
      ASSERT_TRUE(plan.ok()) << plan.status();
      const auto costs = Costs(sharder, cp_size, lengths);
      ASSERT_TRUE(costs.ok()) << costs.status();
      EXPECT_EQ(plan->chunks.at(0).padded_len, costs->row) << cp_size;
    }
  }
}

TEST(PadRule, CostsAreThoseOfTheDocumentsInTheirOrderThenOfTheRow) {
  const auto thd = Costs(Thd({}), 4, {8, 4, 0, 17});
  EXPECT_THAT(thd->padded, ElementsAre(8, 8, 0, 24));
  EXPECT_EQ(thd->row, 40);
  const auto v4 = Costs(DeepseekV4({.pad_multiple = 3}), 2, {4, 1});
  EXPECT_THAT(v4->padded, ElementsAre(6, 3));
  EXPECT_EQ(v4->row, 12);  // 9 columns, in multiples of 6
  const auto none = Costs(Identity(), {}, {4, 1});
  EXPECT_THAT(none->padded, ElementsAre(4, 1));
  EXPECT_EQ(none->row, 5);
}

TEST(PadRule, AnExplicitPartitionHasTheColumnsThatItLists) {
  const Sharder sharder = Explicit({{{0, 3}}, {{3, 7}}});
  EXPECT_EQ(Costs(sharder, 2, {4, 5})->row, 10);
  const auto beyond = Costs(sharder, 2, {4, 7});
  EXPECT_THAT(std::string(beyond.status().message()), HasSubstr("10 columns"));
}

TEST(PadRule, AMinimumOfTheRowIsPaddedToo) {
  const auto costs = Costs(DeepseekV4({}, {.min_padded_len = 21}), 4, {2});
  EXPECT_EQ(costs->rule.row_minimum, 21);
  EXPECT_EQ(costs->row, 24);
  const auto refused = Costs(RoundRobin({}, {.min_padded_len = 21}), 4, {2});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("min_padded_len 21"));
}

TEST(PadRule, AModelResolvesFirst) {
  ModelFacts facts{.family = ModelFamily::kDeepseekV4};
  facts.compress_ratios = {4, 6};  // lcm(8, 6)
  const auto hook = Costs(Resolving(facts), 2, {1, 25});
  ASSERT_TRUE(hook.ok()) << hook.status();
  EXPECT_EQ(hook->rule.choice->layout, "deepseek_v4");
  EXPECT_THAT(hook->padded, ElementsAre(24, 48));
  EXPECT_EQ(hook->row, 96);
  ModelFacts te;
  te.backend_attn = "te";
  const auto thd = Costs(Resolving(te), 4, {9});
  EXPECT_EQ(thd->rule.choice->layout, "thd");
  EXPECT_EQ(thd->row, 16);
  EXPECT_EQ(Costs(Resolving({}), 4, {9})->rule.choice->layout, "round_robin");
}

TEST(PadRule, RefusesWhatItsLayoutRefusesAndNumbersThatCannotBe) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto message = [](const absl::StatusOr<PadCosts>& costs) {
    EXPECT_EQ(costs.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(costs.status().message());
  };
  EXPECT_THAT(message(Costs(RoundRobin({}), {}, {8})), HasSubstr("needs a mesh"));
  EXPECT_THAT(message(Costs(Thd({}), 2, {8, -1})), HasSubstr("document 1 has length -1"));
  EXPECT_THAT(message(Costs(Thd({}), 2, {kMost, kMost})), HasSubstr("document 1"));
  EXPECT_THAT(message(Costs(Thd({}), 2, {kMost})), HasSubstr("2 * cp_size"));
  EXPECT_THAT(message(Costs(Contiguous({.pad_multiple = kMost}), 2, {8})),
              HasSubstr(absl::StrCat(kMost)));
  EXPECT_THAT(message(Costs(DeepseekV41({.packed_alignment = 0}), 2, {8})),
              HasSubstr("packed_alignment 0"));
  EXPECT_THAT(message(Costs(Magi({}), 2, {})), HasSubstr("magi"));
}

}  // namespace
}  // namespace cpshard
