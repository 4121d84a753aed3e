// THD: whole plans written by hand (contract 4.7, 5, 6), and what stands just inside its borders.
// What is refused is in thd_refusals_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/partition.h"
#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ShardPlan PlanOfPacked(const PackedBatch& batch, ThdOptions options = {},
                       SharedOptions shared = {}) {
  absl::StatusOr<ShardPlan> plan = batch.PlanBy(Thd(options, std::move(shared)));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ShardPlan();
}

// A stream [B, S, ...] as `dims`, cut on `axis`.
StreamPlan Cut(const std::string& name, DType dtype, std::vector<int64_t> dims, int axis = 0) {
  StreamPlan stream{name, dtype, std::move(dims), axis, /*batch_axis=*/-1};
  stream.value.from = ViewOf{name};
  return stream;
}

StreamPlan Made(const std::string& name, DType dtype, int64_t tokens, std::vector<Segment> segments,
                bool over_padded_columns = false) {
  StreamPlan stream{name, dtype, {tokens}, 0, /*batch_axis=*/-1};
  stream.value.from = Generated{{std::move(segments)}, over_padded_columns};
  return stream;
}

StreamPlan Mask(int64_t tokens, std::vector<Segment> segments) {
  return Made("padding_mask", DType::kBool, tokens, std::move(segments));
}

StreamPlan Indices(DType dtype, int64_t tokens) {
  return Made("_thd_local_indices", dtype, tokens, {{0, 1, tokens}}, true);
}

StreamPlan Lit(const std::string& name, std::vector<int64_t> dims, std::vector<int64_t> values) {
  StreamPlan stream{name, DType::kI32, std::move(dims), 0, /*batch_axis=*/-1};
  stream.extent = Extent::kWhole;
  stream.value.from = Literal{std::move(values)};
  return stream;
}

StreamPlan Whole(const TensorSpec& tensor) {
  StreamPlan stream{tensor.name, tensor.dtype, tensor.dims};
  stream.extent = Extent::kWhole;
  stream.value.from = ViewOf{tensor.name};
  return stream;
}

IndexMap MapOf(const std::vector<cpshard::Run>& runs) {
  IndexMap map;
  for (const cpshard::Run& run : runs) map.Append(run);
  return map;
}

// Columns begin ... begin+length-1 of a stream of `tokens`; no partition yet.
LayoutPlan Window(int64_t tokens, int64_t begin, int64_t length, RowShape rows) {
  LayoutPlan layout;
  layout.rows = 1;
  layout.source_len = tokens;
  layout.padded_len = length;
  layout.placement = {MapOf({{begin, length}})};
  layout.flattened_from = rows;
  return layout;
}

// Of one window, as reported.
LayoutPlan Reported(int64_t tokens, RowShape rows, Report::Indices indices) {
  LayoutPlan layout = Window(tokens, 0, tokens, rows);
  layout.report.padded_seq_len = tokens;
  layout.report.input_row_shape = rows;
  layout.report.indices = indices;
  return layout;
}

std::vector<ScalarPlan> RankScalars() {
  return {{"qkv_format", {std::string("thd")}},
          {"cp_size", {int64_t{2}}},
          {"cp_rank", {int64_t{0}, int64_t{1}}}};
}

// The order of new entries is nobody's promise.
void ExpectPlan(ShardPlan plan, ShardPlan expected) {
  for (ShardPlan* one : {&plan, &expected}) {
    std::ranges::sort(one->streams, {}, &StreamPlan::name);
    std::ranges::sort(one->scalars, {}, &ScalarPlan::name);
  }
  EXPECT_EQ(plan, expected) << ToString(plan) << "\n" << ToString(expected);
}

// Case H1: two documents of four, the first with a pad at its end.
PackedBatch TwoDocuments() {
  PackedBatch batch(1, 8);
  batch.Real({{3, 4}}).Padded({{4, 4}});
  return batch;
}

TEST(Thd, TwoDocumentsForTwoRanksAsAWholeValue) {
  ShardPlan expected;
  expected.cp_size = 2;
  expected.chunks = {Reported(8, {1, 8}, Report::Indices::kI32)};
  expected.chunks[0].partition = {MapOf({{0, 1}, {3, 2}, {7, 1}}), MapOf({{1, 2}, {5, 2}})};
  expected.chunks[0].documents = {{{0, 3, 4}, {4, 4, 4}}};
  expected.streams = {Cut("input_ids", DType::kI64, {8}),
                      Cut("labels", DType::kI64, {8}),
                      Cut("position_ids", DType::kI64, {8}),
                      Mask(8, {{0, 0, 3}, {1, 0, 1}, {0, 0, 4}}),
                      Indices(DType::kI32, 8),
                      Lit("cu_seqlens", {3}, {0, 4, 8}),  // the padded ones (T28)
                      Lit("max_seqlen", {}, {4})};
  expected.scalars = RankScalars();
  ExpectPlan(PlanOfPacked(TwoDocuments()), expected);
}

// Case H4: the lengths stay the real ones, and both kinds are emitted.
TEST(Thd, ForOneRankTheBatchIsConvertedAsAWholeValue) {
  ShardPlan expected;
  expected.cp_size = 1;
  expected.chunks = {Reported(8, {1, 8}, Report::Indices::kI64)};
  expected.chunks[0].partition = {IndexMap::Identity(8)};
  expected.chunks[0].documents = {{{0, 3, 4}, {4, 4, 4}}};
  expected.streams = {Cut("input_ids", DType::kI64, {8}),
                      Cut("labels", DType::kI64, {8}),
                      Cut("position_ids", DType::kI64, {8}),
                      Mask(8, {{0, 0, 3}, {1, 0, 1}, {0, 0, 4}}),
                      Indices(DType::kI64, 8),
                      Lit("cu_seqlens", {3}, {0, 3, 7}),
                      Lit("cu_seqlens_padded", {3}, {0, 4, 8}),
                      Lit("max_seqlen", {}, {4})};
  ExpectPlan(PlanOfPacked(TwoDocuments().Cp(1)), expected);
  expected.cp_size.reset();
  ExpectPlan(PlanOfPacked(TwoDocuments().Cp(std::nullopt)), expected);
}

// Case H2: the trailing pad is absorbed, attention_mask dropped, media handed to every rank.
TEST(Thd, AnAbsorbedTailForTwoRanksAsAWholeValue) {
  const TensorSpec pixels{"pixel_values", DType::kF32, {2}};
  PackedBatch batch(1, 8);
  batch.Real({{4, 2}}).Padded({{4, 4}}).Set(pixels);
  batch.Set({"attention_mask", DType::kF32, {1, 8}});
  ShardPlan expected;
  expected.cp_size = 2;
  expected.chunks = {Reported(8, {1, 8}, Report::Indices::kI32)};
  expected.chunks[0].partition = {MapOf({{0, 1}, {3, 2}, {7, 1}}), MapOf({{1, 2}, {5, 2}})};
  expected.chunks[0].documents = {{{0, 4, 4}, {4, 2, 4}}};
  expected.streams = {Cut("input_ids", DType::kI64, {8}),    Cut("labels", DType::kI64, {8}),
                      Cut("position_ids", DType::kI64, {8}), Whole(pixels),
                      Mask(8, {{0, 0, 6}, {1, 0, 2}}),       Indices(DType::kI32, 8),
                      Lit("cu_seqlens", {3}, {0, 4, 8}),     Lit("max_seqlen", {}, {4})};
  expected.scalars = RankScalars();
  ExpectPlan(PlanOfPacked(batch), expected);
}

// Case H3: two rows are one stream. Narrow dtypes become int64, embeddings keep theirs (D7).
TEST(Thd, TwoRowsAreOneStream) {
  PackedBatch batch(2, 4);
  batch.Real({{4}, {4}}).Padded({{4}, {4}});
  batch.Set({"input_ids", DType::kBF16, {2, 4, 16}}).Set({"labels", DType::kI32, {2, 4}});
  batch.Set({"position_ids", DType::kI32, {2, 4}});
  ShardPlan expected;
  expected.cp_size = 2;
  expected.chunks = {Reported(8, {2, 4}, Report::Indices::kI32)};
  expected.chunks[0].partition = {MapOf({{0, 1}, {3, 2}, {7, 1}}), MapOf({{1, 2}, {5, 2}})};
  expected.chunks[0].documents = {{{0, 4, 4}, {4, 4, 4}}};
  expected.streams = {Cut("input_ids", DType::kBF16, {8, 16}),
                      Cut("labels", DType::kI64, {8}),
                      Cut("position_ids", DType::kI64, {8}),
                      Mask(8, {{0, 0, 8}}),
                      Indices(DType::kI32, 8),
                      Lit("cu_seqlens", {3}, {0, 4, 8}),
                      Lit("max_seqlen", {}, {4})};
  expected.scalars = RankScalars();
  ExpectPlan(PlanOfPacked(batch), expected);
}

// Case H6, with more documents in the second chunk: shorter lists are filled up with -1000, and
// where one chunk has padded lengths the others put their own in.
TEST(Thd, ChunksForOneRankAsAWholeValue) {
  PackedBatch batch(3, 4);
  batch.Real({{3}, {1, 1}, {4}}).Padded({{4}, {2, 2}, {4}}).SetScalar("foo", std::string("bar"));
  batch.Set({"pixel_values", DType::kF32, {3, 7}}).Set({"max_seqlen", DType::kI32, {3}});
  ShardPlan expected;
  expected.cp_size = 1;
  for (int64_t begin : {0, 4, 8}) {
    expected.chunks.push_back(Window(12, begin, 4, {1, 4}));
    expected.chunks.back().partition = {IndexMap::Identity(4)};
  }
  expected.chunks[0].documents = {{{0, 3, 4}}};
  expected.chunks[1].documents = {{{0, 1, 2}, {2, 1, 2}}};
  expected.chunks[2].documents = {{{0, 4, 4}}};
  expected.streams = {
      Cut("input_ids", DType::kI64, {12}), Cut("labels", DType::kI64, {12}),
      Cut("position_ids", DType::kI64, {12}),
      Mask(12, {{0, 0, 3}, {1, 0, 1}, {0, 0, 1}, {1, 0, 1}, {0, 0, 1}, {1, 0, 1}, {0, 0, 4}}),
      // The first chunk absorbs its pad, so its only lengths are 0, 4.
      Lit("cu_seqlens", {3, 3}, {0, 4, -1000, 0, 1, 2, 0, 4, -1000}),
      Lit("cu_seqlens_padded", {3, 3}, {0, 4, -1000, 0, 2, 4, 0, 4, -1000}),
      Lit("max_seqlen", {3}, {4, 1, 4})};  // of the real lengths
  expected.scalars = {{"foo", {std::string("bar")}}};
  ExpectPlan(PlanOfPacked(batch.Cp(1), {.num_chunks = 3}), expected);
}

// D16: at cp_size 2 media stay, unsplit.
TEST(Thd, ChunksForTwoRanksAsAWholeValue) {
  const TensorSpec pixels{"pixel_values", DType::kF32, {7}};
  PackedBatch batch(4, 4);
  batch.Real({{4}, {3}, {4}, {4}}).Padded({{4}, {4}, {4}, {4}}).Set(pixels);
  ShardPlan expected;
  expected.cp_size = 2;
  for (int64_t begin : {0, 8}) {
    expected.chunks.push_back(Window(16, begin, 8, {2, 4}));
    expected.chunks.back().partition = {MapOf({{0, 1}, {3, 2}, {7, 1}}), MapOf({{1, 2}, {5, 2}})};
  }
  expected.chunks[0].documents = {{{0, 4, 4}, {4, 3, 4}}};
  expected.chunks[1].documents = {{{0, 4, 4}, {4, 4, 4}}};
  expected.streams = {Cut("input_ids", DType::kI64, {16}),
                      Cut("labels", DType::kI64, {16}),
                      Cut("position_ids", DType::kI64, {16}),
                      Whole(pixels),
                      Mask(16, {{0, 0, 7}, {1, 0, 1}, {0, 0, 8}}),
                      Lit("cu_seqlens", {2, 3}, {0, 4, 8, 0, 4, 8}),
                      Lit("max_seqlen", {2}, {4, 4})};
  expected.scalars = RankScalars();
  ExpectPlan(PlanOfPacked(batch, {.num_chunks = 2}), expected);
}

TEST(Thd, AtOneRankEveryDTypeIsKept) {
  PackedBatch batch = TwoDocuments().Cp(1);
  batch.Set({"input_ids", DType::kI32, {1, 8}}).Set({"labels", DType::kI16, {1, 8}});
  batch.Set({"position_ids", DType::kU8, {1, 8}});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_EQ(StreamOf(plan, "input_ids"), Cut("input_ids", DType::kI32, {8}));
  EXPECT_EQ(StreamOf(plan, "labels"), Cut("labels", DType::kI16, {8}));
  EXPECT_EQ(StreamOf(plan, "position_ids"), Cut("position_ids", DType::kU8, {8}));
}

// contract 5.2: trailing axes become one, and one of size 1 is dropped.
TEST(Thd, TrailingAxesBecomeOne) {
  const auto dims = [](std::vector<int64_t> sent) {
    PackedBatch batch = TwoDocuments().Cp(1);
    batch.Set({"input_ids", DType::kF32, sent}).Set({"labels", DType::kI64, sent});
    const ShardPlan plan = PlanOfPacked(batch);
    EXPECT_EQ(StreamOf(plan, "labels").dims, StreamOf(plan, "input_ids").dims);
    return StreamOf(plan, "input_ids").dims;
  };
  EXPECT_THAT(dims({1, 8, 1}), ElementsAre(8));
  EXPECT_THAT(dims({1, 8, 3}), ElementsAre(8, 3));
  EXPECT_THAT(dims({1, 8, 3, 5}), ElementsAre(8, 15));
}

// Case G14.
TEST(Thd, ThreeAxesOfPositionsKeepTheirFirst) {
  for (int64_t axes : {1, 3, 4}) {
    PackedBatch batch(2, 2);
    batch.Cp(1).Real({{2}, {2}}).Set({"position_ids", DType::kI64, {axes, 2, 2}});
    EXPECT_EQ(StreamOf(PlanOfPacked(batch), "position_ids"),
              Cut("position_ids", DType::kI64, {axes, 1, 4}, 2));
  }
}

// D8: "none emitted at cp <= 1".
TEST(Thd, PositionsThatWereNotSentAreNotMade) {
  EXPECT_FALSE(
      HasStream(PlanOfPacked(TwoDocuments().Cp(1).Remove("position_ids")), "position_ids"));
}

// Case G16: what the conversion does not make itself survives, stale or not; its own is replaced.
TEST(Thd, AtOneRankOtherEntriesSurvive) {
  PackedBatch batch(1, 2);
  batch.Cp(1).Real({{2}}).Padded({{2}}).SetScalar("qkv_format", std::string("thd"));
  const std::vector<TensorSpec> kept = {{"pixel_values", DType::kF32, {1}},
                                        {"attention_mask", DType::kI64, {9, 9}},
                                        {"cu_seqlens_padded", DType::kI64, {2}}};
  for (const TensorSpec& tensor : kept) batch.Set(tensor);
  batch.Set({"padding_mask", DType::kF32, {5}}).Set({"cu_seqlens", DType::kI64, {7}});
  const ShardPlan plan = PlanOfPacked(batch);
  for (const TensorSpec& tensor : kept) EXPECT_EQ(StreamOf(plan, tensor.name), Whole(tensor));
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(2, {{0, 0, 2}}));
  EXPECT_EQ(StreamOf(plan, "cu_seqlens"), Lit("cu_seqlens", {2}, {0, 2}));
  EXPECT_FALSE(HasStream(plan, "seq_lens"));
  EXPECT_FALSE(HasStream(plan, "seq_lens_padded"));
  EXPECT_EQ(ScalarsOf(plan, 0), (std::vector<ScalarEntry>{{"qkv_format", std::string("thd")}}));
}

TEST(Thd, AtTwoRanksMasksAndStaleLengthsDoNotSurvive) {
  PackedBatch batch = TwoDocuments();
  batch.Set({"attention_mask", DType::kI64, {9, 9}});
  batch.Set({"cu_seqlens_padded", DType::kI64, {2}}, {0, 5}).Set({"max_seqlen", DType::kI64, {5}});
  batch.SetScalar("qkv_format", std::string("bshd")).SetScalar("cp_rank", int64_t{7});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_FALSE(HasStream(plan, "attention_mask"));
  EXPECT_FALSE(HasStream(plan, "cu_seqlens_padded"));
  EXPECT_EQ(StreamOf(plan, "max_seqlen"), Lit("max_seqlen", {}, {4}));
  EXPECT_EQ(ScalarsOf(plan, 1), (std::vector<ScalarEntry>{{"qkv_format", std::string("thd")},
                                                          {"cp_rank", int64_t{1}},
                                                          {"cp_size", int64_t{2}}}));
}

// contract 5.3, 5.4: without real lengths padded ones are ignored, and nothing tells of documents.
TEST(Thd, WithoutLengthsThereIsAPaddingMaskAlone) {
  PackedBatch batch(1, 4);
  batch.Cp(1).Set({"input_ids", DType::kI64, {1, 4}}, {5, 6, 0, 0}).Padded({{1, 2}, {3}});
  batch.Set({"cu_seqlens", DType::kI64, {2}}).Set({"max_seqlen", DType::kI64, {}});
  const ShardPlan plan = PlanOfPacked(batch, {}, {.padding_token_id = 0});
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(4, {{0, 0, 2}, {1, 0, 2}}));
  EXPECT_FALSE(HasStream(plan, "cu_seqlens"));
  EXPECT_FALSE(HasStream(plan, "seq_lens_padded"));
  EXPECT_EQ(StreamOf(plan, "max_seqlen").extent, Extent::kWhole);  // stale, and it stays
}

TEST(Thd, ReadsLengthsAndIdsOnlyWhereThePlanNeedsThem) {
  EXPECT_THAT(Thd({}).Needs(TwoDocuments().spec()), ElementsAre("seq_lens", "seq_lens_padded"));
  PackedBatch bare(1, 8);
  EXPECT_THAT(Thd({}).Needs(bare.Cp(1).spec()), ElementsAre("input_ids"));
  EXPECT_THAT(Thd({}).Needs(bare.Cp(2).spec()), IsEmpty());  // to be refused
  bare.Cp(1).Set({"input_ids", DType::kF32, {1, 8}});
  EXPECT_THAT(Thd({}).Needs(bare.spec()), ElementsAre("input_ids"));  // they may be ids too
}

// The real and padded cumulative lengths that a plan emits; none: empty.
std::vector<int64_t> LiteralOf(const ShardPlan& plan, const std::string& name) {
  if (!HasStream(plan, name)) return {};
  return std::get<Literal>(StreamOf(plan, name).value.from).values;
}

// Just inside the borders of thd_refusals_test.cc.

TEST(ThdBorders, AtOneRankTheLastRowMayBeShort) {
  PackedBatch batch(2, 8);
  batch.Cp(1).Real({{8}, {3, 2}});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 8, 11, 13));
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(16, {{0, 0, 13}, {1, 0, 3}}));
}

TEST(ThdBorders, AtOneRankTheLastRowMayHaveNoDocument) {
  PackedBatch batch(2, 8);
  batch.Cp(1).Real({{3, 5}, {}});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 3, 8));
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(16, {{0, 0, 8}, {1, 0, 8}}));
}

TEST(ThdBorders, TheLastRowOfEveryChunkMayBeShort) {
  PackedBatch batch(4, 4);
  batch.Cp(1).Real({{4}, {}, {4}, {1}});
  const ShardPlan plan = PlanOfPacked(batch, {.num_chunks = 2});
  EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 4, -1000, 0, 4, 5));
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(16, {{0, 0, 4}, {1, 0, 4}, {0, 0, 5}, {1, 0, 3}}));
}

TEST(ThdBorders, AtTwoRanksAbsorptionMakesAShortLastRowWhole) {
  PackedBatch batch(2, 8);
  batch.Real({{8}, {4, 1}}).Padded({{8}, {4, 2}});  // 2 is no multiple of 4, but 4 is
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 8, 12, 16));
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(16, {{0, 0, 13}, {1, 0, 3}}));
  EXPECT_EQ(plan.chunks.at(0).partition, TePartition({0, 8, 12, 16}, 16, 2).value());
}

TEST(ThdBorders, DocumentsMayBeEmptyAnywhere) {
  PackedBatch batch(2, 8);
  batch.Real({{0, 8}, {4, 0, 4, 0}});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 0, 8, 12, 12, 16, 16));
  PackedBatch without(2, 8);
  without.Real({{8}, {4, 4}});
  LayoutPlan layout = plan.chunks.at(0);
  ASSERT_EQ(layout.documents.size(), 1u);
  EXPECT_EQ(std::erase_if(layout.documents[0], [](const auto& span) { return span.length == 0; }),
            3u);
  EXPECT_EQ(layout, PlanOfPacked(without).chunks.at(0));
}

TEST(ThdBorders, LengthsOfEveryDTypeThatHoldsTheSentinelMakeTheSamePlan) {
  PackedBatch batch = TwoDocuments();
  const ShardPlan expected = PlanOfPacked(batch);
  for (DType dtype : {DType::kI16, DType::kI32}) {
    batch.Lengths("seq_lens", {{3, 4}}, dtype).Lengths("seq_lens_padded", {{4, 4}}, dtype);
    EXPECT_EQ(PlanOfPacked(batch), expected) << DTypeName(dtype);
  }
}

TEST(ThdBorders, LengthsOfOneRowMayHaveOneAxis) {
  PackedBatch batch = TwoDocuments();
  const ShardPlan expected = PlanOfPacked(batch);
  batch.Set({"seq_lens", DType::kI64, {2}}, {3, 4});
  batch.Set({"seq_lens_padded", DType::kI64, {3}}, {4, -1000, 4});
  EXPECT_EQ(PlanOfPacked(batch), expected);
}

TEST(ThdBorders, BelowTwoChunksThereAreNone) {
  const ShardPlan expected = PlanOfPacked(TwoDocuments());
  for (int64_t num_chunks : {1, 0, -3}) {
    EXPECT_EQ(PlanOfPacked(TwoDocuments(), {.num_chunks = num_chunks}), expected) << num_chunks;
  }
}

TEST(ThdBorders, CumulativeLengthsMayReachTheEndOfInt32) {
  constexpr int64_t kMax = (int64_t{1} << 31) - 1;
  PackedBatch batch(1, kMax);
  batch.Cp(1).Real({{kMax}});
  EXPECT_THAT(LiteralOf(PlanOfPacked(batch), "cu_seqlens"), ElementsAre(0, kMax));
  // Every chunk counts from 0 on.
  PackedBatch chunks(2, kMax);
  chunks.Cp(1).Real({{kMax}, {kMax}});
  EXPECT_THAT(LiteralOf(PlanOfPacked(chunks, {.num_chunks = 2}), "max_seqlen"),
              ElementsAre(kMax, kMax));
}

TEST(ThdBorders, AStreamThatIsNeitherCutNorReadMayHaveAnyShape) {
  PackedBatch batch = TwoDocuments();
  batch.Set({"padding_mask", DType::kBool, {3}}).Set({"inputs_embeds", DType::kF32, {}});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_EQ(StreamOf(plan, "inputs_embeds").extent, Extent::kWhole);
  EXPECT_EQ(StreamOf(plan, "padding_mask").dims, (std::vector<int64_t>{8}));
}

TEST(ThdBorders, AllTokensMayBePadding) {
  PackedBatch batch(1, 8);
  batch.Real({{0}}).Padded({{8}});
  const ShardPlan plan = PlanOfPacked(batch);
  EXPECT_THAT(LiteralOf(plan, "cu_seqlens"), ElementsAre(0, 8));
  EXPECT_EQ(StreamOf(plan, "padding_mask"), Mask(8, {{1, 0, 8}}));
}

}  // namespace
}  // namespace cpshard
