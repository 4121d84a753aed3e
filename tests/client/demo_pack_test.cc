#include <gtest/gtest.h>

#include "client/cli/demo/pack.h"

namespace cpshard::demo {
namespace {

std::vector<int64_t> Values(const PackedBatch& packed, const char* name) {
  return ViewValues(*packed.batch.FindTensor(name)).ToVector();
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

// --- with lengths --------------------------------------------------------------------------------

std::vector<std::string> Names(const std::vector<Tensor>& tensors) {
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors) names.push_back(tensor.spec.name);
  return names;
}

std::vector<int64_t> Expected(const PackedBatch& packed, const std::string& name) {
  for (const Tensor& tensor : packed.expected) {
    if (tensor.spec.name == name) return ViewValues(tensor).ToVector();
  }
  ADD_FAILURE() << name;
  return {};
}

constexpr int64_t kN = -100, kU = -1000;

TEST(PackWithLengths, EveryDocumentIsPaddedAndTheLastOneOfARowToItsEnd) {
  BufferPool pool;
  const auto batches = Pack({{"a", "abc"}, {"b", "de"}}, {1, 12, 16, 4}, pool);
  EXPECT_EQ(Values(batches[0], "input_ids"),
            (std::vector<int64_t>{'a', 'b', 'c', kX, 'd', 'e', kX, kX, kX, kX, kX, kX}));
  EXPECT_EQ(Values(batches[0], "labels"),
            (std::vector<int64_t>{'b', 'c', kN, kN, 'e', kN, kN, kN, kN, kN, kN, kN}));
  EXPECT_EQ(Values(batches[0], "position_ids"),
            (std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Values(batches[0], "seq_lens"), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Values(batches[0], "seq_lens_padded"), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(Values(batches[1], "seq_lens"), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Values(batches[1], "seq_lens_padded"), (std::vector<int64_t>{4, 12}));
}

TEST(PackWithLengths, WhatComesBackIsWhatWasSentAndWhatTheLengthsSay) {
  BufferPool pool;
  const auto batches = Pack({{"a", "abc"}, {"b", "de"}}, {1, 12, 12, 4}, pool);
  EXPECT_EQ(Names(batches[0].batch.tensors),
            (std::vector<std::string>{"input_ids", "labels", "position_ids", "seq_lens",
                                      "seq_lens_padded"}));
  EXPECT_EQ(batches[0].batch.scalars,
            (std::vector<ScalarEntry>{{"qkv_format", std::string("thd")}}));
  EXPECT_EQ(Expected(batches[0], "input_ids"), Values(batches[0], "input_ids"));
  EXPECT_EQ(Expected(batches[0], "padding_mask"),
            (std::vector<int64_t>{0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(Expected(batches[0], "_thd_local_indices"),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Expected(batches[0], "cu_seqlens"), (std::vector<int64_t>{0, 4, 12}));
  EXPECT_EQ(Expected(batches[0], "max_seqlen"), (std::vector<int64_t>{8}));
}

TEST(PackWithLengths, WithoutThemEverythingSentComesBackAndNothingElse) {
  BufferPool pool;
  const auto batches = Pack({{"a", "abc"}}, {1, 4, 4}, pool);
  EXPECT_EQ(Names(batches[0].expected), Names(batches[0].batch.tensors));
  EXPECT_EQ(Names(batches[0].expected),
            (std::vector<std::string>{"input_ids", "labels", "position_ids", "padding_mask"}));
  EXPECT_TRUE(batches[0].batch.scalars.empty());
}

TEST(PackWithLengths, ARowWithoutTextIsAnEmptyDocument) {
  BufferPool pool;
  const auto batches = Pack({{"a", "abcde"}, {"b", "fg"}, {"c", "h"}}, {2, 16, 16, 4}, pool);
  EXPECT_EQ(Values(batches[0], "seq_lens"), (std::vector<int64_t>{5, 2, 1, 0, kU, kU}));
  EXPECT_EQ(Values(batches[0], "seq_lens_padded"), (std::vector<int64_t>{8, 4, 4, 16, kU, kU}));
  EXPECT_EQ(batches[0].real_tokens, 8);
}

// Documents of all lengths around the multiple and the row.
std::vector<Document> ManyDocuments() {
  std::vector<Document> documents;
  unsigned char next = 0;
  for (int64_t length : {1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 40, 3, 200, 128, 24, 1, 1, 57}) {
    std::string text;
    while (static_cast<int64_t>(text.size()) < length) {
      text.push_back(static_cast<char>(next));
      next = static_cast<unsigned char>(next * 5 + 3);
    }
    documents.push_back({std::to_string(length), text});
  }
  return documents;
}

struct PackedPiece {
  int64_t begin, real, padded;  // slots of the flattened batch
};

std::vector<PackedPiece> Pieces(const PackedBatch& packed) {
  const std::vector<int64_t> real = Values(packed, "seq_lens");
  const std::vector<int64_t> padded = Values(packed, "seq_lens_padded");
  std::vector<PackedPiece> pieces;
  int64_t begin = 0;
  for (size_t i = 0; i < real.size(); ++i) {
    EXPECT_EQ(real[i] == kU, padded[i] == kU);
    if (real[i] == kU) continue;
    pieces.push_back({begin, real[i], padded[i]});
    begin += padded[i];
  }
  return pieces;
}

class PackOfManyDocuments : public ::testing::Test {
 protected:
  static constexpr int64_t kMultiple = 8, kLength = 64, kRows = 3;
  BufferPool pool_;
  const std::vector<Document> documents_ = ManyDocuments();
  const std::vector<PackedBatch> batches_ =
      Pack(documents_, {kRows, kLength, 2 * kLength, kMultiple}, pool_);
};

TEST_F(PackOfManyDocuments, PaddedLengthsAreMultiplesAndFillEveryRow) {
  for (const PackedBatch& packed : batches_) {
    const int64_t length = packed.batch.FindTensor("input_ids")->spec.dims[1];
    const std::vector<int64_t> padded = Values(packed, "seq_lens_padded");
    const size_t width = padded.size() / kRows;
    ASSERT_EQ(packed.batch.FindTensor("seq_lens_padded")->spec.dims,
              (std::vector<int64_t>{kRows, static_cast<int64_t>(width)}));
    for (int64_t row = 0; row < kRows; ++row) {
      int64_t sum = 0;
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        if (padded[i] == kU) continue;
        EXPECT_EQ(padded[i] % kMultiple, 0);
        sum += padded[i];
      }
      EXPECT_EQ(sum, length);
    }
    for (const PackedPiece& piece : Pieces(packed)) EXPECT_LE(piece.real, piece.padded);
  }
}

TEST_F(PackOfManyDocuments, TheRealTokensAreTheBytesOfTheDocumentsInOrder) {
  std::string text, packed_text;
  for (const Document& document : documents_) text += document.text;
  for (size_t i = 0; i + 1 < batches_.size(); ++i) {  // the last one is the one before again
    const std::vector<int64_t> ids = Values(batches_[i], "input_ids");
    int64_t real = 0;
    for (const PackedPiece& piece : Pieces(batches_[i])) {
      for (int64_t k = 0; k < piece.real; ++k) {
        packed_text.push_back(static_cast<char>(ids[piece.begin + k]));
      }
      real += piece.real;
    }
    EXPECT_EQ(batches_[i].real_tokens, real);
  }
  EXPECT_TRUE(packed_text == text);
  EXPECT_EQ(batches_.back().real_tokens, (batches_.end() - 2)->real_tokens);
}

TEST_F(PackOfManyDocuments, ALabelIsTheNextTokenOfTheSamePiece) {
  for (const PackedBatch& packed : batches_) {
    const std::vector<int64_t> ids = Values(packed, "input_ids"), labels = Values(packed, "labels");
    for (const PackedPiece& piece : Pieces(packed)) {
      for (int64_t k = 0; k < piece.padded; ++k) {
        const int64_t slot = piece.begin + k;
        EXPECT_EQ(labels[slot], k + 1 < piece.real ? ids[slot + 1] : kN);
      }
    }
  }
}

TEST_F(PackOfManyDocuments, PositionsGoOnOverThePaddingAndTheMaskTellsIt) {
  for (const PackedBatch& packed : batches_) {
    const std::vector<int64_t> ids = Values(packed, "input_ids");
    const std::vector<int64_t> positions = Values(packed, "position_ids");
    const std::vector<int64_t> mask = Expected(packed, "padding_mask");
    for (const PackedPiece& piece : Pieces(packed)) {
      for (int64_t k = 0; k < piece.padded; ++k) {
        EXPECT_EQ(positions[piece.begin + k], k);
        EXPECT_EQ(mask[piece.begin + k], k >= piece.real);
        EXPECT_EQ(ids[piece.begin + k] == kPadToken, k >= piece.real);
      }
    }
  }
}

}  // namespace
}  // namespace cpshard::demo
