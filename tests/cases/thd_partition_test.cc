// Which tokens a rank holds of packed documents: the divisor, the cut per document, chunks.
#include <numeric>

#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class ThdPartition : public CaseTest {};

// Of documents of these padded lengths, each cut into 2 * cp_size pieces: piece `rank` and its
// mirror image of every document, in order.
std::vector<int64_t> HeadsAndTails(const std::vector<int64_t>& lengths, int64_t cp_size,
                                   int64_t rank) {
  std::vector<int64_t> indices;
  int64_t begin = 0;
  for (int64_t length : lengths) {
    const int64_t piece = length / (2 * cp_size);
    for (int64_t number : {rank, 2 * cp_size - 1 - rank}) {
      for (int64_t i = 0; i < piece; ++i) indices.push_back(begin + number * piece + i);
    }
    begin += length;
  }
  return indices;
}

Values AsValues(const std::vector<int64_t>& integers, int64_t plus = 0) {
  Values values;
  for (int64_t integer : integers) values.push_back(static_cast<double>(integer + plus));
  return values;
}

// B001
TEST_F(ThdPartition, APackedRowIsPaddedToTwiceTheRanksNotToTheRanks) {
  ExpectRefused(Thd({}), PackedBatch(6, {{6}}, {{6}}), 2, {"6 tokens", "2 * cp_size = 4"});
  // The total would do, the boundary between the documents does not.
  ExpectRefused(Thd({}), PackedBatch(12, {{6, 6}}, {{6, 6}}), 2,
                {"seq_lens_padded", "row 0", "document 0", "length 6", "2 * cp_size = 4"});
}

// B001: every group, every odd multiple, wherever the document stands.
TEST_F(ThdPartition, NoDocumentOfAnOddMultipleOfTheRanksIsCut) {
  for (int64_t cp_size : {2, 3, 4, 8}) {
    const double divisor = static_cast<double>(2 * cp_size);
    const std::string named = "2 * cp_size = " + std::to_string(2 * cp_size);
    for (int64_t odd : {cp_size, 3 * cp_size, int64_t{1}, 2 * cp_size - 1}) {
      const double bad = static_cast<double>(odd);
      const std::string length = "length " + std::to_string(odd);
      ExpectRefused(Thd({}), PackedBatch(odd, {{bad}}, {}), cp_size,
                    {std::to_string(odd) + " tokens", named});
      // Of two that sum to a multiple, the second may be the first to be seen.
      const int64_t total = odd * 2 * cp_size + 2 * cp_size;
      const double rest = static_cast<double>(odd * 2 * cp_size) - bad;
      ExpectRefused(Thd({}), PackedBatch(total, {{divisor, bad, rest}}, {{divisor, bad, rest}}),
                    cp_size, {"seq_lens_padded", "document 1", length, named});
      ExpectRefused(Thd({}), PackedBatch(total, {{divisor, bad, rest}}, {}), cp_size,
                    {"'seq_lens'", "document 1", length, named});
      const double all = static_cast<double>(total);
      ExpectRefused(Thd({}),
                    PackedBatch(total, {{all, -1000, -1000}, {divisor, bad, rest}},
                                {{all, -1000, -1000}, {divisor, bad, rest}}),
                    cp_size, {"row 1", "document 1", length, named});
      ExpectRefused(Thd({.num_chunks = 2}),
                    PackedBatch(total, {{all, -1000, -1000}, {divisor, bad, rest}}, {}), cp_size,
                    {"row 1", "document 1", length, named});
    }
  }
}

// B001: one rank cuts nothing, so it may have any lengths.
TEST_F(ThdPartition, OneRankTakesDocumentsOfAnyLength) {
  const RankShard shard = ShardsOf(Thd({}), PackedBatch(12, {{7, 5}}, {{7, 5}}), 1)[0];
  ExpectDocuments(shard, {0, 7, 12});
  ExpectFlat(shard, "input_ids", Count(0, 12));
}

// B003
TEST_F(ThdPartition, EveryDocumentIsCutByItselfAndPutBackByItself) {
  Batch batch = PackedBatch(12, {{8, 4}}, {{8, 4}});
  batch = With(batch, Row("input_ids", Count(10, 12)));
  const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
  const std::vector<std::vector<int64_t>> indices = {{0, 1, 6, 7, 8, 11}, {2, 3, 4, 5, 9, 10}};
  const Rows ids = {{10, 11, 16, 17, 18, 21}, {12, 13, 14, 15, 19, 20}};
  for (int rank : {0, 1}) {
    EXPECT_EQ(IndicesOf(shards[rank]), indices[rank]);
    EXPECT_EQ(shards[rank].layout.local_token_global_indices->values, indices[rank]);
    ExpectFlat(shards[rank], "_thd_local_indices", AsValues(indices[rank]), DType::kI32);
    ExpectFlat(shards[rank], "input_ids", ids[rank]);
    ExpectDocuments(shards[rank], {0, 8, 12});
  }
  const Tensor stream = Gathered(shards, "input_ids");
  ExpectTensor(&stream, DType::kI64, {12}, Count(10, 12));
  const Tensor rows = Gathered(shards, "input_ids", {.trim = true});
  ExpectTensor(&rows, DType::kI64, {1, 12}, Count(10, 12));
}

// B003: any documents, in one row or several.
TEST_F(ThdPartition, ARankHoldsTheHeadAndTheTailOfEveryDocument) {
  for (int64_t cp_size : {2, 3, 4, 5}) {
    const int64_t d = 2 * cp_size;
    const std::vector<std::vector<int64_t>> packs = {
        {4 * d}, {3 * d, d}, {d, 3 * d}, {d, d, d, d}, {0, 2 * d, 0, 2 * d}, {4 * d, 0}};
    for (const std::vector<int64_t>& first : packs) {
      for (const std::vector<int64_t>& second : packs) {
        SCOPED_TRACE(testing::PrintToString(first) + testing::PrintToString(second));
        Rows lens = {AsValues(first), AsValues(second)};
        for (Values& row : lens) row.resize(4, -1000);
        std::vector<int64_t> documents = first;
        documents.insert(documents.end(), second.begin(), second.end());
        Values cu_seqlens = {0};
        for (int64_t length : documents) {
          cu_seqlens.push_back(cu_seqlens.back() + static_cast<double>(length));
        }
        const std::vector<RankShard> shards =
            ShardsOf(Thd({}), PackedBatch(4 * d, lens, lens), cp_size);
        for (int64_t rank = 0; rank < cp_size; ++rank) {
          const std::vector<int64_t> want = HeadsAndTails(documents, cp_size, rank);
          EXPECT_EQ(IndicesOf(shards[rank]), want);
          ExpectFlat(shards[rank], "input_ids", AsValues(want));
          ExpectFlat(shards[rank], "labels", AsValues(want, 1000));
          ExpectFlat(shards[rank], "position_ids", AsValues(want, 500));
          ExpectDocuments(shards[rank], cu_seqlens);
        }
        const Tensor back = Gathered(shards, "labels", {.trim = true});
        ExpectTensor(&back, DType::kI64, {2, 4 * d}, Count(1000, 8 * d));
      }
    }
  }
}

// B003: embeddings keep their dtype and travel by token.
TEST_F(ThdPartition, EmbeddingsOfEveryDTypeAreCutByDocument) {
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const Batch batch = With(PackedBatch(12, {{8, 4}}, {{8, 4}}),
                             TensorOf("input_ids", dtype, {1, 12, 2}, Count(0, 24)));
    const std::vector<RankShard> shards = ShardsOf(Thd({}), batch, 2);
    ExpectTensor(shards[0].batch.FindTensor("input_ids"), dtype, {6, 2},
                 {0, 1, 2, 3, 12, 13, 14, 15, 16, 17, 22, 23});
    const Tensor back = Gathered(shards, "input_ids", {.trim = true});
    ExpectTensor(&back, dtype, {1, 12, 2}, Count(0, 24));
  }
}

// B003: of one document it is the round robin cut.
TEST_F(ThdPartition, ASingleDocumentIsCutAsRoundRobinCutsARow) {
  for (int64_t cp_size : {2, 3, 4}) {
    const int64_t length = 6 * cp_size;
    const std::vector<RankShard> packed =
        ShardsOf(Thd({}), PackedBatch(length, {{static_cast<double>(length)}}, {}), cp_size);
    const std::vector<RankShard> row = ShardsOf(RoundRobin({}), RowBatch(length), cp_size);
    for (int64_t rank = 0; rank < cp_size; ++rank) {
      EXPECT_EQ(IndicesOf(packed[rank]), IndicesOf(row[rank]));
    }
  }
}

// B010
TEST_F(ThdPartition, RowsThatDoNotDivideIntoChunksAreRefusedAndNoneIsDropped) {
  Batch batch = PackedBatch(4, {{4}, {4}, {4}, {4}, {4}}, {});
  batch = With(batch, TensorOf("input_ids", DType::kI64, {5, 4}, Count(1, 20)));
  for (int64_t cp_size : {1, 2}) {
    ExpectRefused(Thd({.num_chunks = 2}), batch, cp_size, {"5 rows", "num_chunks 2"});
  }
}

// B010: every number of rows and chunks; where they divide, every token is somewhere.
TEST_F(ThdPartition, ChunksHoldEveryRowOrThereAreNone) {
  for (int64_t cp_size : {1, 2, 3}) {
    for (int64_t rows = 1; rows <= 7; ++rows) {
      for (int64_t num_chunks = 1; num_chunks <= 8; ++num_chunks) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(num_chunks) + " chunks");
        const double length = static_cast<double>(2 * cp_size);
        const Batch batch = PackedBatch(2 * cp_size, Rows(rows, {length}), {});
        const Sharder sharder = Thd({.num_chunks = num_chunks});
        if (rows % num_chunks != 0) {
          ExpectRefused(sharder, batch, cp_size,
                        {std::to_string(rows) + " rows", std::to_string(num_chunks)});
          continue;
        }
        std::vector<int64_t> ids;
        for (const RankShard& shard : ShardsOf(sharder, batch, cp_size)) {
          for (int64_t id : IntsOf(shard, "input_ids")) ids.push_back(id);
        }
        std::sort(ids.begin(), ids.end());
        std::vector<int64_t> all(rows * 2 * cp_size);
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(ids, all);
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
