// The dispatch of contract 7.4. Vectors named as in tests/golden/magi_vectors.json are those of the
// solver itself; the others are worked out by hand.
#include "core/plan/magi_dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Chunks = std::vector<std::vector<int64_t>>;

MagiDispatch DispatchOf(const std::vector<int64_t>& documents, int64_t cp_size,
                        int64_t chunk_size = 512, int64_t min_chunks_per_rank = 8) {
  const int64_t total = std::accumulate(documents.begin(), documents.end(), int64_t{0});
  absl::StatusOr<MagiDispatch> dispatch =
      DispatchCausal(documents, total, cp_size, chunk_size, min_chunks_per_rank);
  EXPECT_TRUE(dispatch.ok()) << dispatch.status();
  return dispatch.ok() ? *std::move(dispatch) : MagiDispatch();
}

// Workloads ---------------------------------------------------------------------------------------

// Step 4: the query at offset o of its document has o + 1 keys.
TEST(CausalAreas, CountTheKeysOfEveryQueryOfTheChunk) {
  EXPECT_THAT(CausalAreas({4}, 2, 2), ElementsAre(1 + 2, 3 + 4));
  EXPECT_THAT(CausalAreas({4}, 4, 1), ElementsAre(10));
  EXPECT_THAT(CausalAreas({4}, 1, 4), ElementsAre(1, 2, 3, 4));
}

TEST(CausalAreas, BeginAnewWithEveryDocumentWhereverItBegins) {
  EXPECT_THAT(CausalAreas({3, 5}, 2, 4), ElementsAre(1 + 2, 3 + 1, 2 + 3, 4 + 5));
  EXPECT_THAT(CausalAreas({1, 1, 1, 1}, 2, 2), ElementsAre(2, 2));
}

TEST(CausalAreas, AreNothingBehindTheLastDocument) {
  EXPECT_THAT(CausalAreas({3}, 2, 4), ElementsAre(3, 3, 0, 0));
  EXPECT_THAT(CausalAreas({}, 2, 2), ElementsAre(0, 0));
}

TEST(CausalAreas, AnEmptyDocumentMakesNoDifference) {
  EXPECT_EQ(CausalAreas({0, 3, 0, 0, 5, 0}, 2, 4), CausalAreas({3, 5}, 2, 4));
}

TEST(CausalAreas, AreThoseOfTheSolver) {
  EXPECT_THAT(CausalAreas({4096}, 512, 8),  // causal4096_c512_cp2
              ElementsAre(131328, 393472, 655616, 917760, 1179904, 1442048, 1704192, 1966336));
  EXPECT_THAT(CausalAreas({1536, 512, 1024, 700, 324}, 512, 8),  // varlenD_c512_cp2
              ElementsAre(131328, 393472, 655616, 131328, 131328, 393472, 131328, 166672));
  EXPECT_THAT(CausalAreas({2000, 900, 600, 100}, 512, 8),  // varlenE_pad_c512_cp4
              ElementsAre(131328, 393472, 655616, 821760, 155904, 263248, 168992, 1480));
}

// The deal ----------------------------------------------------------------------------------------

// Step 5: of equal chunks the last is dealt first; step 6: of equal loads the first rank takes it.
TEST(DealChunks, EqualOnesAreDealtFromTheLastToTheFirst) {
  EXPECT_THAT(DealChunks({5, 5, 5, 5}, 2), ElementsAre(ElementsAre(1, 3), ElementsAre(0, 2)));
  EXPECT_THAT(DealChunks({0, 0, 0}, 3),
              ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
}

// 9 to rank 0, 5 to rank 1, 3 to rank 1 which has less; rank 1 is full then, and 2 is rank 0's.
TEST(DealChunks, TheLargestGoesToTheRankThatHasLeast) {
  EXPECT_THAT(DealChunks({9, 5, 3, 2}, 2), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
}

// 100 to rank 0; then rank 1 has least every time, until it is full.
TEST(DealChunks, ARankThatIsFullGetsNoMoreHoweverLittleItHas) {
  EXPECT_THAT(DealChunks({100, 1, 1, 1, 1, 1}, 2),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5)));
}

TEST(DealChunks, ChunksWithoutWorkGoWhereThereIsRoom) {
  EXPECT_THAT(DealChunks({4, 3, 0, 0}, 2), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(DealChunks, OneRankGetsThemAllInOrder) {
  EXPECT_THAT(DealChunks({1, 7, 3}, 1), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(DealChunks({}, 2), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(DealChunks, IsTheDealOfTheSolver) {
  EXPECT_EQ(DealChunks(CausalAreas({4096}, 512, 8), 2),  // causal4096_c512_cp2
            (Chunks{{0, 3, 4, 7}, {1, 2, 5, 6}}));
  EXPECT_EQ(DealChunks(std::vector<int64_t>(8, 2097152), 4),  // full4096_c512_cp4
            (Chunks{{3, 7}, {2, 6}, {1, 5}, {0, 4}}));
  EXPECT_EQ(DealChunks(CausalAreas({1536, 512, 1024, 700, 324}, 512, 8), 2),  // varlenD_c512_cp2
            (Chunks{{0, 2, 4, 7}, {1, 3, 5, 6}}));
  EXPECT_EQ(DealChunks(CausalAreas({2000, 900, 600, 100}, 512, 8), 4),  // varlenE_pad_c512_cp4
            (Chunks{{3, 7}, {0, 2}, {1, 4}, {5, 6}}));
  // causal_S1000_c64_cp3: the last two chunks are padding.
  EXPECT_EQ(DealChunks(CausalAreas({1000}, 64, 18), 3),
            (Chunks{{0, 1, 6, 7, 14, 15}, {3, 4, 9, 10, 13, 16}, {2, 5, 8, 11, 12, 17}}));
}

// The dispatch ------------------------------------------------------------------------------------

// Six tokens, two ranks of three chunks of one: areas 1 2 3 1 2 3. In order 5 2 4 1 3 0: rank 0
// takes 5, rank 1 takes 2, then 4 and 1 in turn, then 3 and 0.
TEST(MagiDispatch, OfTwoSmallDocumentsAsAWholeValue) {
  const MagiDispatch dispatch = DispatchOf({3, 3}, 2, 512, 3);
  EXPECT_EQ(dispatch.chunk_size, 1);
  EXPECT_EQ(dispatch.pad_size, 0);
  EXPECT_EQ(dispatch.chunks_of_rank, (Chunks{{3, 4, 5}, {0, 1, 2}}));
  ASSERT_EQ(dispatch.partition.size(), 2u);
  EXPECT_EQ(dispatch.partition[0].ToString(), "3+3");
  EXPECT_EQ(dispatch.partition[1].ToString(), "0+3");
}

// Seven tokens in chunks of two, padded to four chunks: areas 3 7 11 7, so the order is 2 3 1 0.
TEST(MagiDispatch, PadsToWholeChunksForEveryRank) {
  const MagiDispatch dispatch = DispatchOf({7}, 2, 2, 2);
  EXPECT_EQ(dispatch.chunk_size, 2);
  EXPECT_EQ(dispatch.pad_size, 1);
  EXPECT_EQ(dispatch.chunks_of_rank, (Chunks{{0, 2}, {1, 3}}));
  EXPECT_EQ(dispatch.partition[0].ToString(), "0+2 4+2");
  EXPECT_EQ(dispatch.partition[1].ToString(), "2+2 6+2");
}

TEST(MagiDispatch, IsThatOfTheSolver) {
  EXPECT_EQ(DispatchOf({4096}, 4).chunks_of_rank,  // causal4096_c128_cp4
            (Chunks{{0, 7, 8, 15, 16, 23, 24, 31},
                    {1, 6, 9, 14, 17, 22, 25, 30},
                    {2, 5, 10, 13, 18, 21, 26, 29},
                    {3, 4, 11, 12, 19, 20, 27, 28}}));
  EXPECT_EQ(DispatchOf({1536, 512, 1024, 700, 324}, 2).chunks_of_rank,  // varlenD_c256_cp2
            (Chunks{{2, 3, 5, 6, 7, 12, 13, 15}, {0, 1, 4, 8, 9, 10, 11, 14}}));
}

// Step 1: k = min(ceil(T / (chunks * cp)), chunk_size).
TEST(MagiDispatch, ChunksAreAsManyAsAskedForButNotLongerThanAskedFor) {
  EXPECT_EQ(DispatchOf({4096}, 2).chunk_size, 256);
  EXPECT_EQ(DispatchOf({4097}, 2).chunk_size, 257);
  EXPECT_EQ(DispatchOf({4096}, 2, 64).chunk_size, 64);
  EXPECT_EQ(DispatchOf({8193}, 2).chunk_size, 512);
  EXPECT_EQ(DispatchOf({4096}, 2, 512, 1).chunk_size, 512);
  EXPECT_EQ(DispatchOf({3}, 2).chunk_size, 1);
  EXPECT_EQ(DispatchOf({3}, 2, 512, int64_t{1} << 62).chunk_size, 1);
  EXPECT_EQ(DispatchOf({3}, 1, int64_t{1} << 62, 1).chunk_size, 3);
}

// Step 3: what is padded is all one chunk.
TEST(MagiDispatch, OneRankHoldsEverythingAsItIs) {
  const MagiDispatch dispatch = DispatchOf({25, 30}, 1, 8);
  EXPECT_EQ(dispatch.chunk_size, 7);
  EXPECT_EQ(dispatch.pad_size, 1);
  EXPECT_EQ(dispatch.chunks_of_rank, (Chunks{{0}}));
  EXPECT_EQ(dispatch.partition, std::vector<IndexMap>{IndexMap::Identity(56)});
}

TEST(MagiDispatch, GivesEveryRankAsManySlotsAndEveryColumnOnce) {
  for (int64_t total = 1; total < 70; ++total) {
    for (int64_t cp_size = 1; cp_size <= std::min<int64_t>(total, 5); ++cp_size) {
      for (int64_t chunk_size : {1, 3, 512}) {
        const std::vector<int64_t> documents = {total / 3, 0, total - total / 3};
        const absl::StatusOr<MagiDispatch> dispatch =
            DispatchCausal(documents, total, cp_size, chunk_size, 2);
        if (!dispatch.ok()) continue;  // fewer chunks than ranks
        const int64_t padded = total + dispatch->pad_size;
        std::vector<bool> held(padded);
        for (const IndexMap& local : dispatch->partition) {
          EXPECT_EQ(local.size() * cp_size, padded);
          for (const int64_t column : local.Expand()) {
            EXPECT_FALSE(held[column]);
            held[column] = true;
          }
        }
      }
    }
  }
}

struct Refusal {
  std::vector<int64_t> documents;
  int64_t total, cp_size, chunk_size, min_chunks_per_rank;
  std::vector<std::string> parts;
};

TEST(MagiDispatch, RefusesWhatItCannotDealOutWithTheNumbers) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::vector<Refusal> refusals = {
      {{8}, 8, 2, 0, 8, {"chunk_size 0", "min_chunks_per_rank 8", "1 at least"}},
      {{8}, 8, 2, -1, 8, {"chunk_size -1"}},
      {{8}, 8, 2, 512, 0, {"min_chunks_per_rank 0"}},
      {{8}, 8, 2, 512, INT64_MIN, {"min_chunks_per_rank -9223372036854775808"}},
      {{}, 0, 2, 512, 8, {"0 tokens", "2147483647"}},
      {{int64_t{1} << 31}, int64_t{1} << 31, 2, 512, 8, {"2147483648 tokens", "2147483647"}},
      {{4, -1, 5}, 8, 2, 512, 8, {"document 1", "length -1", "4 of 8"}},
      {{4, kHuge}, 8, 2, 512, 8, {"document 1", "4611686018427387904", "4 of 8"}},
      {{4, 3}, 8, 2, 512, 8, {"sum to 7", "the 8 tokens", "pad the last"}},
      {{4, 5}, 8, 2, 512, 8, {"document 1", "length 5", "4 of 8"}},
      {{3}, 3, 4, 512, 8, {"3 tokens", "3 chunks of 1", "cp_size 4", "more tokens"}},
      {{5}, 5, 4, 512, 1, {"5 tokens", "3 chunks of 2", "cp_size 4"}},
      {{int64_t{1} << 23}, int64_t{1} << 23, 2, 1, 8, {"8388608 chunks", "raise chunk_size"}},
  };
  for (const Refusal& refusal : refusals) {
    const absl::StatusOr<MagiDispatch> dispatch =
        DispatchCausal(refusal.documents, refusal.total, refusal.cp_size, refusal.chunk_size,
                       refusal.min_chunks_per_rank);
    ASSERT_FALSE(dispatch.ok()) << refusal.parts[0];
    EXPECT_EQ(dispatch.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : refusal.parts) {
      EXPECT_THAT(std::string(dispatch.status().message()), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace cpshard
