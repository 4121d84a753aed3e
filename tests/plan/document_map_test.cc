// Document maps, contract 4.12 step 1 and 4.16 step 3. Values by hand.
#include "core/plan/document_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/plan/generated.h"
#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Values = std::vector<std::vector<int64_t>>;

absl::StatusOr<DocumentMap> Made(const PackedBatch& batch, bool boundaries = false) {
  const BatchSpec& spec = batch.spec();
  const TokenRows rows = RowsOf(*spec.FindTensor("input_ids")).value();
  const RowStreams streams(spec, rows, TailPadded(rows, rows.length));
  return MakeDocumentMap(spec, batch.Values(MapNeeds(spec, boundaries)), streams, rows, boundaries);
}

DocumentMap MapOf(const PackedBatch& batch, bool boundaries = false) {
  absl::StatusOr<DocumentMap> map = Made(batch, boundaries);
  EXPECT_TRUE(map.ok()) << map.status();
  return map.ok() ? *std::move(map) : DocumentMap();
}

void ExpectRefused(const PackedBatch& batch, const std::vector<std::string>& parts,
                   bool boundaries = false) {
  const absl::StatusOr<DocumentMap> map = Made(batch, boundaries);
  ASSERT_FALSE(map.ok()) << parts[0];
  EXPECT_EQ(map.status().code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(map.status().message()), HasSubstr(part));
  }
}

PackedBatch Boundaries(int64_t length, std::vector<int64_t> boundaries, int64_t rows = 1) {
  const int64_t count = static_cast<int64_t>(boundaries.size());
  PackedBatch batch(rows, length);
  batch.Set({"cu_seqlens", DType::kI32, {count}}, std::move(boundaries));
  return batch;
}

TEST(DocumentMap, IsMadeOfTheFirstSourceThatTheBatchHas) {
  PackedBatch batch(1, 4);
  const auto source = [&] { return MapSourceOf(batch.spec(), /*boundaries=*/true); };
  EXPECT_EQ(source(), MapSource::kPaddingMask);
  batch.Set({"cu_seqlens", DType::kI32, {2}});
  EXPECT_EQ(source(), MapSource::kBoundaries);
  EXPECT_EQ(MapSourceOf(batch.spec(), /*boundaries=*/false), MapSource::kPaddingMask);
  batch.Real({{4}});
  EXPECT_EQ(source(), MapSource::kLengths);
  batch.Set({"attention_mask", DType::kI64, {1, 1, 4, 4}});
  EXPECT_EQ(source(), MapSource::kLengths);  // two axes alone are ids
  batch.Set({"attention_mask", DType::kI64, {1, 4}});
  EXPECT_EQ(source(), MapSource::kAttentionMask);
  batch.Set({"_packed_seq_ids", DType::kI64, {1, 4}});
  EXPECT_EQ(source(), MapSource::kPackedIds);
}

TEST(DocumentMap, NeedsTheValuesOfLengthsAndBoundariesAlone) {
  PackedBatch batch(1, 4);
  const auto needs = [&] { return MapNeeds(batch.spec(), /*boundaries=*/true); };
  EXPECT_THAT(needs(), IsEmpty());
  batch.Set({"cu_seqlens", DType::kI32, {2}});
  EXPECT_THAT(needs(), ElementsAre("cu_seqlens"));
  EXPECT_THAT(MapNeeds(batch.spec(), /*boundaries=*/false), IsEmpty());
  batch.Padded({{4}});
  EXPECT_THAT(needs(), ElementsAre("seq_lens_padded"));
  batch.Real({{4}});
  EXPECT_THAT(needs(), ElementsAre("seq_lens", "seq_lens_padded"));
  batch.Set({"_packed_seq_ids", DType::kI64, {1, 4}});
  EXPECT_THAT(needs(), IsEmpty());
}

TEST(DocumentMap, OfIdsIsTheirValuesAndPaddingIsWhatIsNotPositive) {
  PackedBatch batch(2, 4);
  for (const char* name : {"attention_mask", "_packed_seq_ids"}) {
    batch.Set({name, DType::kF32, {2, 4}});
    const DocumentMap map = MapOf(batch);
    EXPECT_THAT(map.dims, ElementsAre(2, 4));
    EXPECT_EQ(map.ids, (Expression{ViewOf{name}, DType::kI32}));
    EXPECT_EQ(map.padding, (Expression{ViewOf{name}, DType::kI32, Op::kNotPositive}));
  }
}

// Every length takes an id, an empty one too; unused places take none; the rest is padding.
TEST(DocumentMap, OfLengthsCountsTheDocumentsOfEveryRow) {
  PackedBatch batch(2, 6);
  batch.Real({{2, kUnused, 0, 3}, {6, kUnused}});
  const DocumentMap map = MapOf(batch);
  EXPECT_THAT(map.dims, ElementsAre(2, 6));
  EXPECT_EQ(WrittenOut(map.ids), (Values{{1, 1, 3, 3, 3, 0}, {1, 1, 1, 1, 1, 1}}));
  EXPECT_EQ(WrittenOut(map.padding), (Values{{0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0}}));
  EXPECT_FALSE(map.notice.has_value());
}

TEST(DocumentMap, OfLengthsIsClippedAtTheEndOfTheRow) {
  EXPECT_EQ(WrittenOut(MapOf(PackedBatch(1, 4).Real({{3, 5, 7}})).ids), (Values{{1, 1, 1, 2}}));
  EXPECT_EQ(WrittenOut(MapOf(PackedBatch(1, 2).Real({{INT64_MAX, INT64_MAX}})).ids),
            (Values{{1, 1}}));
}

TEST(DocumentMap, OfARowWithoutDocumentsIsAllPadding) {
  const DocumentMap map = MapOf(PackedBatch(2, 3).Real({{kUnused}, {kUnused}}));
  EXPECT_EQ(WrittenOut(map.ids), (Values{{0, 0, 0}, {0, 0, 0}}));
  EXPECT_EQ(WrittenOut(map.padding), (Values{{1, 1, 1}, {1, 1, 1}}));
}

// D15, T18: padded lengths count, so a document's padding is taken for its tokens.
TEST(DocumentMap, OfPaddedLengthsCountsPaddingAsRealAndSaysSo) {
  PackedBatch batch(1, 6);
  batch.Real({{2, 1}}).Padded({{4, 2}});
  const DocumentMap map = MapOf(batch);
  EXPECT_EQ(WrittenOut(map.ids), (Values{{1, 1, 1, 1, 2, 2}}));
  ASSERT_TRUE(map.notice.has_value());
  EXPECT_EQ(map.notice->code, "document_padding_counts_as_real");
  EXPECT_THAT(map.notice->text, HasSubstr("2 tokens in 4 columns"));
  EXPECT_FALSE(MapOf(PackedBatch(1, 6).Real({{4, 2}}).Padded({{4, 2}})).notice.has_value());
}

// Contract 4.16 step 3d: 1 + the boundaries after the first that are <= t; nothing from the last
// on.
TEST(DocumentMap, OfBoundariesCountsThoseThatArePassed) {
  const auto ids = [](int64_t length, std::vector<int64_t> boundaries, int64_t rows = 1) {
    return WrittenOut(MapOf(Boundaries(length, std::move(boundaries), rows), true).ids);
  };
  EXPECT_EQ(ids(6, {0, 2, 5}), (Values{{1, 1, 2, 2, 2, 0}}));
  EXPECT_EQ(ids(6, {0, 2, 2, 6}), (Values{{1, 1, 3, 3, 3, 3}}));  // an empty document takes an id
  EXPECT_EQ(ids(4, {3, 4}), (Values{{1, 1, 1, 1}}));              // the first does not count
  EXPECT_EQ(ids(4, {0, 9, 12}), (Values{{1, 1, 1, 1}}));
  EXPECT_EQ(ids(4, {0, 0}), (Values{{0, 0, 0, 0}}));
  EXPECT_EQ(ids(4, {0, 2, 4, -1000, -1000}), (Values{{1, 1, 2, 2}}));
  EXPECT_EQ(ids(3, {-5}), (Values{{1, 1, 1}}));  // fewer than two: one document
  EXPECT_EQ(ids(3, {7}), (Values{{1, 1, 1}}));
  EXPECT_EQ(ids(2, {0, 1, INT32_MAX}), (Values{{1, 2}}));
}

TEST(DocumentMap, OfBoundariesHasOneRowWhateverTheBatchHas) {
  EXPECT_THAT(MapOf(Boundaries(4, {0, 4}, 3), true).dims, ElementsAre(1, 4));
}

TEST(DocumentMap, WithoutAnyDescriptionEveryTokenThatIsNoPaddingIsOfOneDocument) {
  PackedBatch batch(2, 3);
  EXPECT_EQ(WrittenOut(MapOf(batch).ids), (Values{{1, 1, 1}}));
  EXPECT_EQ(WrittenOut(MapOf(batch).padding), (Values{{0, 0, 0}}));
  batch.Set({"padding_mask", DType::kBool, {2, 3}});
  EXPECT_EQ(MapOf(batch).ids, (Expression{ViewOf{"padding_mask"}, std::nullopt, Op::kIsZero}));
  EXPECT_EQ(MapOf(batch).padding, (Expression{ViewOf{"padding_mask"}, std::nullopt, Op::kNotZero}));
}

TEST(DocumentMap, OfNoColumnsIsEmpty) {
  EXPECT_EQ(WrittenOut(MapOf(PackedBatch(1, 0).Real({{3}})).ids), (Values{{}}));
  EXPECT_EQ(WrittenOut(MapOf(Boundaries(0, {0, 3}), true).ids), (Values{{}}));
}

TEST(DocumentMap, RefusesWhatDoesNotDescribeTheRows) {
  ExpectRefused(PackedBatch(2, 4).Set({"_packed_seq_ids", DType::kI64, {1, 4}}),
                {"'_packed_seq_ids' [1, 4]", "expected 2"});
  ExpectRefused(PackedBatch(2, 4).Set({"_packed_seq_ids", DType::kI64, {4}}),
                {"'_packed_seq_ids' [4]", "[2, 4, ...]"});
  ExpectRefused(PackedBatch(2, 4).Set({"attention_mask", DType::kI64, {2, 5}}),
                {"'attention_mask' [2, 5]", "expected 4"});
  ExpectRefused(PackedBatch(2, 4).Set({"padding_mask", DType::kBool, {2, 3}}),
                {"'padding_mask' [2, 3]", "expected 4"});
  ExpectRefused(PackedBatch(2, 4).Real({{4}, {-3}}), {"'seq_lens' row 1", "entry 0 is -3"});
  ExpectRefused(PackedBatch(1, 4).Real({{3}}).Padded({{2}}), {"row 0", "document 0", "3", "2"});
  ExpectRefused(PackedBatch(1, 4).SetScalar("seq_lens", int64_t{4}), {"'seq_lens' is a scalar"});
  ExpectRefused(Boundaries(4, {0, 3, 2}), {"'cu_seqlens'", "ascend"}, true);
  ExpectRefused(PackedBatch(1, 4).Set({"cu_seqlens", DType::kF32, {2}}),
                {"'cu_seqlens'", "send integers"}, true);
  ExpectRefused(Boundaries(4, std::vector<int64_t>(1025, 0)).Cp(4096),
                {"'cu_seqlens'", "1025 boundaries", "4096 ranks", "4194304"}, true);
}

}  // namespace
}  // namespace cpshard
