#include <gtest/gtest.h>

#include "client/cli/demo/pack.h"

namespace cpshard::demo {
namespace {

std::vector<int64_t> Values(const PackedBatch& packed, const char* name) {
  return ReadInts(*packed.batch.FindTensor(name))->values;
}

constexpr int64_t kX = kPadToken;

std::vector<PackedBatch> Pack(const std::vector<Document>& documents, const PackOptions& options,
                              BufferPool& pool) {
  const Packing packing(documents, options);
  std::vector<PackedBatch> batches;
  for (int64_t i = 0; i < packing.num_batches(); ++i) batches.push_back(*packing.Make(i, pool));
  return batches;
}

TEST(Pack, ADocumentThatDoesNotFitBeginsTheNextRow) {
  BufferPool pool;
  const auto batches = Pack({{"a", "abc"}, {"b", "def"}}, {2, 5, 5}, pool);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(Values(batches[0], "input_ids"),
            (std::vector<int64_t>{'a', 'b', 'c', kX, kX, 'd', 'e', 'f', kX, kX}));
  EXPECT_EQ(Values(batches[0], "labels"),
            (std::vector<int64_t>{'b', 'c', -100, -100, -100, 'e', 'f', -100, -100, -100}));
  EXPECT_EQ(Values(batches[0], "position_ids"),
            (std::vector<int64_t>{0, 1, 2, 0, 0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(Values(batches[0], "padding_mask"),
            (std::vector<int64_t>{0, 0, 0, 1, 1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(batches[0].real_tokens, 6);
}

TEST(Pack, ADocumentLongerThanARowIsSplitWithoutLoss) {
  BufferPool pool;
  const auto batches = Pack({{"a", "xy"}, {"b", "abcdefgh"}}, {1, 4, 4}, pool);
  std::vector<int64_t> tokens;
  for (size_t i = 0; i + 1 < batches.size(); ++i) {  // the last one is the one before again
    for (int64_t token : Values(batches[i], "input_ids")) {
      if (token != kX) tokens.push_back(token);
    }
  }
  EXPECT_EQ(tokens, (std::vector<int64_t>{'x', 'y', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}));
}

TEST(Pack, TwoDocumentsShareARowAndTheirLabelsStayApart) {
  BufferPool pool;
  const auto batches = Pack({{"a", "ab"}, {"b", "cd"}}, {1, 5, 5}, pool);
  EXPECT_EQ(Values(batches[0], "labels"), (std::vector<int64_t>{'b', -100, 'd', -100, -100}));
  EXPECT_EQ(Values(batches[0], "position_ids"), (std::vector<int64_t>{0, 1, 0, 1, 0}));
}

TEST(Pack, TheLastBatchComesAgainInLongerRows) {
  BufferPool pool;
  const auto batches = Pack({{"a", std::string(25, 'a')}}, {2, 10, 12}, pool);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[1].batch.tensors[0].spec.dims, (std::vector<int64_t>{2, 10}));
  EXPECT_EQ(batches[2].batch.tensors[0].spec.dims, (std::vector<int64_t>{2, 12}));
  EXPECT_EQ(batches[0].real_tokens + batches[1].real_tokens, 25);
  EXPECT_EQ(batches[2].real_tokens, batches[1].real_tokens);
}

TEST(Pack, BatchesAreTheSameInAnyOrder) {
  BufferPool pool;
  const std::vector<Document> documents = {{"a", "abcdefghij"}, {"b", "klm"}};
  const Packing packing(documents, {1, 4, 4});
  ASSERT_EQ(packing.num_batches(), 5);
  const PackedBatch third = *packing.Make(2, pool);
  EXPECT_EQ(Values(third, "input_ids"), (std::vector<int64_t>{'i', 'j', kX, kX}));
  EXPECT_EQ(third.real_tokens, 2);
  EXPECT_EQ(Values(*packing.Make(0, pool), "input_ids"),
            (std::vector<int64_t>{'a', 'b', 'c', 'd'}));
}

}  // namespace
}  // namespace cpshard::demo
