// Rows as one flat stream, and its padding mask: contract 5.2, 5.4, 5.6.
#include "core/plan/flat_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plan/packed.h"

namespace cpshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FlatRows Flat(const BatchSpec& spec, int64_t num_chunks = 1) {
  const absl::StatusOr<FlatRows> flat = FlatRowsOf(spec, num_chunks);
  EXPECT_TRUE(flat.ok()) << flat.status();
  return flat.ok() ? *flat : FlatRows();
}

std::vector<bool> Mask(const std::vector<Segment>& segments) {
  std::vector<bool> mask;
  for (const Segment& segment : segments) {
    EXPECT_EQ(segment.step, 0);
    EXPECT_GT(segment.length, 0);
    mask.insert(mask.end(), segment.length, segment.start != 0);
  }
  return mask;
}

TEST(FlatStreams, TokensAreRowsTimesColumnsSharedEquallyByTheChunks) {
  const BatchSpec spec = TokenBatch(6, 4);
  EXPECT_EQ(Flat(spec).tokens, 24);
  for (int64_t none : {1, 0, -3}) EXPECT_EQ(Flat(spec, none).num_chunks, 1) << none;
  const FlatRows flat = Flat(spec, 3);
  EXPECT_EQ(flat.rows_per_chunk(), 2);
  EXPECT_EQ(flat.chunk_tokens(), 8);
}

TEST(FlatStreams, TokensBeyondInt64AreRefusedWithBothNumbers) {
  const absl::Status status =
      FlatRowsOf(TokenBatch(int64_t{1} << 40, int64_t{1} << 40), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("1099511627776"), HasSubstr("B * S")));
}

TEST(FlatStreams, AChunkIsAWindowOfItsRows) {
  const LayoutPlan layout = ChunkWindow(Flat(TokenBatch(6, 4), 3), 1, ConvertedChunk());
  EXPECT_EQ(layout.rows, 1);
  EXPECT_EQ(layout.source_len, 24);
  EXPECT_EQ(layout.padded_len, 8);
  ASSERT_EQ(layout.placement.size(), 1u);
  EXPECT_EQ(layout.placement[0].ToString(), "8+8");
  EXPECT_EQ(layout.flattened_from, (RowShape{2, 4}));
  EXPECT_THAT(layout.partition, IsEmpty());
  EXPECT_EQ(layout.report, Report());
}

// contract 5.4, token by token: the segment by upper-bound search in the ends of the slots, clamped
// to the last one; padding behind its real tokens and behind the last slot.
std::vector<bool> MaskTokenByToken(const std::vector<Document>& documents, int64_t tokens) {
  std::vector<int64_t> starts = {0};
  for (const Document& document : documents) starts.push_back(starts.back() + document.padded);
  std::vector<bool> mask;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto end = std::upper_bound(starts.begin() + 1, starts.end(), t);
    const size_t segment = std::min<size_t>(end - starts.begin() - 1, documents.size() - 1);
    mask.push_back(t - starts[segment] >= documents[segment].real || t >= starts.back());
  }
  return mask;
}

TEST(FlatStreams, ThePaddingMaskIsThatOfTheContractOnAllSmallDocuments) {
  std::vector<Document> kinds;
  for (int64_t padded = 0; padded <= 3; ++padded) {
    for (int64_t real = 0; real <= padded; ++real) kinds.push_back({real, padded});
  }
  const int64_t count = kinds.size();
  for (int64_t i = 0; i < count * count * count; ++i) {
    PackedRows rows;
    rows.documents = {kinds[i % count], kinds[i / count % count], kinds[i / count / count]};
    rows.row_ends = {3};
    int64_t filled = 0;
    for (const Document& document : rows.documents) filled += document.padded;
    for (int64_t tail = 0; tail <= 2; ++tail) {
      ASSERT_EQ(Mask(PaddingByLengths(rows, filled + tail)),
                MaskTokenByToken(rows.documents, filled + tail))
          << i << " " << tail;
    }
  }
}

TEST(FlatStreams, ThePaddingMaskHasOneSegmentForAsMuchAsItCan) {
  PackedRows rows;
  rows.documents = {{3, 4}, {0, 0}, {0, 2}, {2, 2}, {1, 1}};
  rows.row_ends = {5};
  EXPECT_THAT(PaddingByLengths(rows, 12),
              ElementsAre(Segment{0, 0, 3}, Segment{1, 0, 3}, Segment{0, 0, 3}, Segment{1, 0, 3}));
}

// Padding by value of a batch with these ids, padding_token_id 0 unless said otherwise.
absl::StatusOr<std::vector<ConvertedChunk>> ByValue(PackedBatch& batch, std::vector<int64_t> dims,
                                                    std::vector<int64_t> ids,
                                                    int64_t num_chunks = 1,
                                                    DType dtype = DType::kI64, int64_t pad = 0) {
  batch.Set({"input_ids", dtype, std::move(dims)}, std::move(ids));
  return ConvertByValue(batch.Values({"input_ids"}), pad, Flat(batch.spec(), num_chunks));
}

TEST(FlatStreams, WithoutLengthsPaddingIsTheTailThatEqualsThePadId) {
  const auto mask = [](std::vector<int64_t> ids, DType dtype = DType::kI64, int64_t pad = 0) {
    PackedBatch batch(1, 4);
    const auto chunks = ByValue(batch, {1, 4}, std::move(ids), 1, dtype, pad);
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    if (!chunks.ok()) return std::vector<bool>();
    EXPECT_EQ(chunks->size(), 1u);
    EXPECT_THAT(chunks->at(0).lengths.real, IsEmpty());
    EXPECT_THAT(chunks->at(0).lengths.padded, IsEmpty());
    return Mask(chunks->at(0).padding);
  };
  EXPECT_THAT(mask({5, 6, 7, 8}), ElementsAre(false, false, false, false));
  EXPECT_THAT(mask({5, 6, 0, 0}), ElementsAre(false, false, true, true));
  EXPECT_THAT(mask({0, 0, 0, 0}), ElementsAre(true, true, true, true));
  EXPECT_THAT(mask({5, 6, 7, 255}, DType::kU8, 255), ElementsAre(false, false, false, true));
  EXPECT_THAT(mask({5, -1, -1, -1}, DType::kI16, -1), ElementsAre(false, true, true, true));
  // Floating ids, bit by bit: 1, 2, 0 and -0.
  EXPECT_THAT(mask({0x3f800000, 0x40000000, 0, 0x80000000}, DType::kF32, 0),
              ElementsAre(false, false, true, true));
  EXPECT_THAT(mask({0, 0x3f80, 0x4000, 0x4000}, DType::kBF16, 2),
              ElementsAre(false, false, true, true));
}

// Ids beyond what a double tells apart.
TEST(FlatStreams, ThePadIdIsComparedExactly) {
  constexpr int64_t kPad = int64_t{1} << 53;
  PackedBatch batch(1, 3);
  const auto chunks = ByValue(batch, {1, 3}, {kPad + 1, kPad - 1, kPad}, 1, DType::kI64, kPad);
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  EXPECT_THAT(Mask(chunks->at(0).padding), ElementsAre(false, false, true));
}

// Rows are flattened first: the suffix is that of the stream, not of a row.
TEST(FlatStreams, ThePaddingByValueIsATailOfTheStreamOfEveryChunk) {
  PackedBatch batch(2, 3);
  EXPECT_FALSE(ByValue(batch, {2, 3}, {5, 6, 0, 7, 8, 0}).ok());
  EXPECT_TRUE(ByValue(batch, {2, 3}, {5, 6, 0, 0, 0, 0}).ok());
  const auto chunks = ByValue(batch, {2, 3}, {5, 6, 0, 7, 0, 0}, 2);
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  EXPECT_THAT(Mask(chunks->at(0).padding), ElementsAre(false, false, true));
  EXPECT_THAT(Mask(chunks->at(1).padding), ElementsAre(false, true, true));
}

// contract 5.2: a trailing axis of size 1 is dropped.
TEST(FlatStreams, IdsWithATrailingAxisOfOneAreIds) {
  PackedBatch batch(1, 3);
  const auto chunks = ByValue(batch, {1, 3, 1}, {5, 6, 0});
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  EXPECT_THAT(Mask(chunks->at(0).padding), ElementsAre(false, false, true));
}

TEST(FlatStreams, APadIdThatIsContentTooIsRefusedByToken) {
  PackedBatch batch(1, 4);
  const absl::Status status = ByValue(batch, {1, 4}, {5, 0, 6, 0}).status();  // case G9
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("padding_token_id 0 at token 1"), HasSubstr("6 at token 2"),
                    HasSubstr("seq_lens")));
}

}  // namespace
}  // namespace cpshard
