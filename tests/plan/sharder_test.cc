// The refusals that all layouts share: decisions D13, D14, D17, D18 and the mesh.
#include "core/plan/sharder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/specs.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A layout that accepts everything that the shared checks let through.
Sharder Layout(LayoutTraits traits, SharedOptions options = {}) {
  traits.name = "probe";
  return Sharder(traits, std::move(options),
                 [](const BatchSpec& spec, const SharedOptions&, const PlanValues&) {
                   ShardPlan plan;
                   plan.cp_size = spec.cp_size;
                   return absl::StatusOr<ShardPlan>(plan);
                 });
}

BatchSpec WithScalar(BatchSpec spec, ScalarEntry scalar) {
  spec.scalars.push_back(std::move(scalar));
  return spec;
}

TEST(Sharder, NeedsNoValuesUnlessTheLayoutSaysSo) {
  EXPECT_THAT(Layout({}).Needs({}), IsEmpty());
  const Sharder needy({}, {}, nullptr, [](const BatchSpec& spec) {
    return std::vector<std::string>{"seq_lens of " + std::to_string(spec.num_ranks())};
  });
  EXPECT_THAT(needy.Needs(TokenBatch(1, 4)), ElementsAre("seq_lens of 2"));
}

TEST(Sharder, HandsTheLayoutTheSpecAndTheValues) {
  const Sharder sharder(
      {}, {}, [](const BatchSpec& spec, const SharedOptions&, const PlanValues& values) {
        ShardPlan plan;
        plan.cp_size = spec.cp_size;
        plan.notices.push_back({"seen", std::to_string(values.at("seq_lens")[1])});
        return absl::StatusOr<ShardPlan>(plan);
      });
  const std::vector<int64_t> lengths = {30, 40};
  const absl::StatusOr<ShardPlan> plan =
      sharder.Plan(TokenBatch(1, 4), {{"seq_lens", IntsOf({2}, lengths)}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->cp_size, 2);
  EXPECT_THAT(plan->notices, ElementsAre(Notice{"seen", "40"}));
}

TEST(Sharder, ALayoutWithoutExtrasRefusesEveryExtraByName) {
  ExpectRefused(Layout({}, {.extra_streams = {{"loss_weights"}}}), TokenBatch(1, 4),
                {"loss_weights", "probe"});
  ExpectRefused(Layout({}, {.extra_streams = {{"labels"}}}), TokenBatch(1, 4), {"labels"});
  PlanOf(Layout({.extras = true}, {.extra_streams = {{"loss_weights"}}}), TokenBatch(1, 4));
}

TEST(Sharder, AnExtraHasANameAndIsNamedOnce) {
  ExpectRefused(Layout({.extras = true}, {.extra_streams = {{"a"}, {"b"}, {"a"}}}),
                TokenBatch(1, 4), {"'a'", "twice"});
  ExpectRefused(Layout({.extras = true}, {.extra_streams = {{""}}}), TokenBatch(1, 4),
                {"extra_streams"});
}

TEST(Sharder, AnExtrasPadIsForLayoutsThatLetTheCallerChoose) {
  const SharedOptions options{.extra_streams = {{"weights", 1, 2.5}}};
  ExpectRefused(Layout({.extras = true}, options), TokenBatch(1, 4), {"weights", "2.5", "probe"});
  PlanOf(Layout({.extras = true, .extra_pads = true}, options), TokenBatch(1, 4));
}

TEST(Sharder, MinPaddedLenIsForLayoutsThatTakeIt) {
  ExpectRefused(Layout({}, {.min_padded_len = 4096}), TokenBatch(1, 4),
                {"min_padded_len", "4096", "probe"});
  PlanOf(Layout({.min_padded_len = true}, {.min_padded_len = 4096}), TokenBatch(1, 4));
}

TEST(Sharder, ALayoutThatNeedsAMeshRefusesToGoWithout) {
  BatchSpec spec = TokenBatch(1, 4);
  spec.cp_size.reset();
  ExpectRefused(Layout({.needs_mesh = true}), spec, {"probe", "mesh", "cp_size"});
  PlanOf(Layout({.needs_mesh = false}), spec);
  spec.cp_size = 1;  // a mesh of one rank is a mesh
  PlanOf(Layout({.needs_mesh = true}), spec);
}

TEST(Sharder, ALossMaskIsRefusedWhereTheLayoutHasNoUseForIt) {
  const BatchSpec spec = TokenBatch(1, 4, {{"loss_mask", DType::kBool, {1, 4}}});
  ExpectRefused(Layout({.loss_mask = false}), spec, {"loss_mask", "probe"});
  PlanOf(Layout({.loss_mask = true}), spec);
}

TEST(Sharder, ALayoutThatCannotKeepDocumentsApartRefusesEveryDocumentStream) {
  for (const char* name :
       {"seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded", "_packed_seq_ids"}) {
    const BatchSpec spec = TokenBatch(1, 4, {{name, DType::kI32, {1, 1}}});
    ExpectRefused(Layout({.packed_metadata = false}), spec, {name, "probe", "thd"});
    PlanOf(Layout({.packed_metadata = true}), spec);
  }
}

TEST(Sharder, OnlyTheFormatThdSpeaksOfDocuments) {
  const Sharder sharder = Layout({.packed_metadata = false});
  ExpectRefused(sharder, WithScalar(TokenBatch(1, 4), {"qkv_format", std::string("thd")}),
                {"qkv_format", "probe"});
  PlanOf(sharder, WithScalar(TokenBatch(1, 4), {"qkv_format", std::string("bshd")}));
  PlanOf(sharder, WithScalar(TokenBatch(1, 4), {"qkv_format", true}));
  PlanOf(sharder, WithScalar(TokenBatch(1, 4), {"format", std::string("thd")}));
}

// docs/ARCHITECTURE.md, order of refusals: options before streams that must not be there, before
// the layout.
TEST(Sharder, RefusalsComeInTheOrderOfTheArchitecture) {
  const auto refuse = [](const BatchSpec&, const SharedOptions&,
                         const PlanValues&) -> absl::StatusOr<ShardPlan> {
    return absl::InvalidArgumentError("the layout's own");
  };
  BatchSpec spec = TokenBatch(1, 4, {{"loss_mask", DType::kBool, {1, 4}}});
  spec.cp_size.reset();
  const LayoutTraits traits{.name = "probe", .needs_mesh = true, .loss_mask = false};
  ExpectRefused(Sharder(traits, {.extra_streams = {{"weights"}}}, refuse), spec, {"weights"});
  ExpectRefused(Sharder(traits, {}, refuse), spec, {"mesh"});
  spec.cp_size = 2;
  ExpectRefused(Sharder(traits, {}, refuse), spec, {"loss_mask"});
  ExpectRefused(Sharder(traits, {}, refuse), TokenBatch(1, 4), {"the layout's own"});
}

TEST(Sharder, TheLayoutsHaveTheTraitsOfTheContract) {
  const BatchSpec plain = TokenBatch(1, 4);
  BatchSpec no_mesh = plain;
  no_mesh.cp_size.reset();
  const BatchSpec packed = TokenBatch(1, 4, {{"seq_lens", DType::kI64, {1, 1}}});
  const BatchSpec masked = TokenBatch(1, 4, {{"loss_mask", DType::kI64, {1, 4}}});
  const SharedOptions extra{.padding_token_id = 0, .extra_streams = {{"labels"}}};
  const SharedOptions padded{.padding_token_id = 0, .extra_streams = {{"labels", 1, int64_t{3}}}};

  PlanOf(Identity(), no_mesh);
  PlanOf(Identity(), packed);
  PlanOf(Identity(), masked);
  ExpectRefused(Identity(extra), plain, {"labels", "identity"});

  const auto contiguous = [](SharedOptions shared) { return Contiguous({}, std::move(shared)); };
  ExpectRefused(contiguous({.padding_token_id = 0}), no_mesh, {"contiguous", "cp_size"});
  PlanOf(contiguous({.padding_token_id = 0}), packed);
  PlanOf(contiguous({.padding_token_id = 0}), masked);
  PlanOf(contiguous(padded), plain);

  const auto round_robin = [](SharedOptions shared) { return RoundRobin({}, std::move(shared)); };
  ExpectRefused(round_robin({}), no_mesh, {"round_robin", "cp_size"});
  ExpectRefused(round_robin({}), packed, {"seq_lens", "round_robin"});
  PlanOf(round_robin({}), masked);
  PlanOf(round_robin(extra), plain);
  ExpectRefused(round_robin(padded), plain, {"labels", "3", "round_robin"});

  for (const Sharder& sharder : {Identity({.min_padded_len = 8}), contiguous({.min_padded_len = 8}),
                                 round_robin({.min_padded_len = 8})}) {
    ExpectRefused(sharder, plain, {"min_padded_len", "8"});
  }
}

}  // namespace
}  // namespace cpshard
