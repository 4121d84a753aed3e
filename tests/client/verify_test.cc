// Shards that were cut otherwise, and what is said of them: ranks, layouts, dtypes, shapes, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/verify/report.h"
#include "tests/client/verify_fixture.h"

namespace cpshard::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(VerifyTest, RightShardsAreEqualAndEveryEdgeIsChecked) {
  Write(Shards(kRoundRobin, 2));
  const Findings findings = Verified(kRoundRobin);
  EXPECT_FALSE(findings.different());
  EXPECT_THAT(Unequal(findings), IsEmpty());
  EXPECT_EQ(findings.streams.size(), 4u);
  EXPECT_EQ(findings.documents_from, "position_ids");
  EXPECT_EQ(findings.edges.rule, Labels::Rule::kNext);
  EXPECT_EQ(findings.edges.agreeing, 24);
  EXPECT_EQ(findings.edges.supervised, 24);
  // Columns 0, 3 and 12 of rank 0 (15 is padding), 4 and 11 of rank 1, in two rows.
  EXPECT_EQ(findings.edges.shard_edges.checked, 10);
  EXPECT_EQ(findings.edges.shard_edges.wrong, 0);
  EXPECT_EQ(findings.edges.document_ends.checked, 4);  // columns 5 and 13
  EXPECT_EQ(findings.edges.document_ends.wrong, 0);
  EXPECT_THAT(ToText(findings), HasSubstr("verdict: EQUAL"));
}

TEST_F(VerifyTest, SwappedRanksAreNamedAndTheTokenThatWasFound) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  std::swap(shards[0], shards[1]);
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_TRUE(findings.different());
  for (const char* name : {"input_ids", "labels", "padding_mask"}) {
    EXPECT_EQ(CauseOf(findings, name), "ranks_permuted: ranks 0 and 1 are swapped");
  }
  const FirstDifference& first = *Of(findings, "input_ids").first;
  EXPECT_EQ(first.rank, 0);
  EXPECT_THAT(first.index, ElementsAre(0, 0));
  EXPECT_EQ(FirstOf(findings, "input_ids"),
            "10, 14: that is token 4 of row 0, which belongs to rank 1 slot 0, and the next 3 "
            "slots go on from there");
  const StreamFinding& ids = Of(findings, "input_ids");
  ASSERT_EQ(ids.differing.size(), 2u);
  EXPECT_EQ(ids.differing[1].differing, 16);
  EXPECT_EQ(ids.differing[1].elements, 16);
}

TEST_F(VerifyTest, TheSameColumnsInAnotherLayoutAreRecognised) {
  Write(Shards(kContiguous, 2));
  EXPECT_THAT(CauseOf(Verified(kRoundRobin), "labels"),
              HasSubstr("another_partition: the same columns in another layout, contiguous"));
  Write(Shards(kRoundRobin, 2));
  EXPECT_THAT(CauseOf(Verified(kContiguous), "labels"), HasSubstr("round robin: rank r"));
}

TEST_F(VerifyTest, StripedShardsAreRecognised) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t column = i % 8 * 2 + rank;
      Set(Stream(shards[rank], "labels"), i, column < kColumns ? LabelOf(i / 8, column) : kIgnored);
    }
  }
  Write(shards);
  EXPECT_THAT(CauseOf(Verified(kRoundRobin), "labels"), HasSubstr("striped"));
}

TEST_F(VerifyTest, EqualButForDTypeOrShapeIsSaid) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  for (Batch& shard : shards) {
    const ValueView labels = ViewValues(Stream(shard, "labels"));
    const std::vector<int64_t> values = labels.ToVector();
    Stream(shard, "labels") =
        MakeTensor("labels", DType::kI32, {2, 8}, [&](int64_t i) { return values[i]; });
    Stream(shard, "input_ids").spec.dims = {16};
  }
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_TRUE(findings.different());
  EXPECT_EQ(CauseOf(findings, "labels"), "dtype: equal but for the dtype");
  EXPECT_EQ(Of(findings, "labels").theirs->dtype, DType::kI32);
  EXPECT_EQ(CauseOf(findings, "input_ids"), "shape: equal but for the shape");
  EXPECT_EQ(findings.edges.shard_edges.wrong, 0);  // i32 labels are probed all the same
  EXPECT_EQ(findings.edges.shard_edges.checked, 10);
  EXPECT_THAT(ToText(findings), HasSubstr("i32[2, 8] where ours is i64[2, 8]"));
}

TEST_F(VerifyTest, AFaultBehindAnotherDTypeIsStillFound) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  const std::vector<int64_t> values = ViewValues(Stream(shards[1], "labels")).ToVector();
  Stream(shards[1], "labels") = MakeTensor(
      "labels", DType::kI32, {2, 8}, [&](int64_t i) { return i == 1 ? IdOf(0, 6) : values[i]; });
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_THAT(FirstOf(findings, "labels"), HasSubstr("crosses the end of document 0"));
  EXPECT_EQ(Of(findings, "labels").theirs->dtype, DType::kI32);
}

TEST_F(VerifyTest, NumbersThatOurDTypeDoesNotHoldAreNotRounded) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  Stream(shards[0], "labels") = MakeTensor("labels", DType::kF32, {2, 8}, [](int64_t) {
    return 0x3fc00000;  // 1.5
  });
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_THAT(CauseOf(findings, "labels"), HasSubstr("dtype: rank 0"));
  EXPECT_THAT(ToText(findings), HasSubstr("f32[2, 8] where ours is i64[2, 8]"));
  EXPECT_THAT(findings.edges.not_probed, HasSubstr("f32"));
}

TEST_F(VerifyTest, AStreamThatWasNotCutIsSaidToBeWhole) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  for (Batch& shard : shards) {
    Stream(shard, "input_ids") = MakeTensor("input_ids", DType::kI64, {2, 14},
                                            [](int64_t i) { return IdOf(i / 14, i % 14); });
    Stream(shard, "labels") = MakeTensor("labels", DType::kI64, {2, 16}, [](int64_t i) {
      return i % 16 < kColumns ? LabelOf(i / 16, i % 16) : kIgnored;
    });
  }
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_THAT(CauseOf(findings, "input_ids"),
              HasSubstr("not_cut: rank 0 (2 ranks have this shape): "
                        "the stream as the batch has it"));
  EXPECT_THAT(CauseOf(findings, "labels"), HasSubstr("the whole padded stream, not cut"));
  EXPECT_THAT(findings.edges.not_probed, HasSubstr("i64[2, 16]"));
}

TEST_F(VerifyTest, AShardWithoutItsPaddingIsEqualAsFarAsItGoes) {
  std::vector<Batch> shards = Shards(kContiguous, 2);
  Stream(shards[1], "input_ids") = MakeTensor("input_ids", DType::kI64, {2, 6},
                                              [](int64_t i) { return IdOf(i / 6, 8 + i % 6); });
  Stream(shards[0], "input_ids") =
      MakeTensor("input_ids", DType::kI64, {2, 7}, [](int64_t i) { return IdOf(i / 7, i % 7); });
  Write(shards);
  EXPECT_THAT(CauseOf(Verified(kContiguous), "input_ids"),
              HasSubstr("equal in their 7 slots; ours has 1 more, with tokens among them"));
  Request rank1{.cp_size = 2, .ranks = {1}};
  EXPECT_THAT(CauseOf(*Ask(kContiguous, rank1), "input_ids"),
              HasSubstr("equal in their 6 slots; ours has 2 more, all padding"));
}

TEST_F(VerifyTest, StreamsThatOneSideAloneHasAreListed) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  std::erase_if(shards[1].tensors, [](const Tensor& t) { return t.spec.name == "position_ids"; });
  for (Batch& shard : shards) {
    shard.tensors.push_back(MakeTensor("rewards", DType::kF32, {2}, [](int64_t) { return 0; }));
  }
  batch_.scalars.push_back({"step", int64_t{5}});
  Write(shards);
  Findings findings = Verified(kRoundRobin);
  EXPECT_TRUE(findings.different());
  EXPECT_EQ(Of(findings, "position_ids").verdict, Verdict::kMissing);
  EXPECT_THAT(Of(findings, "position_ids").absent, ElementsAre(1));
  ASSERT_EQ(findings.extra.size(), 1u);
  EXPECT_EQ(findings.extra[0].name, "rewards");
  EXPECT_THAT(findings.scalars, ElementsAre("step"));

  Request labels{.cp_size = 2, .streams = {"labels"}};
  findings = *Ask(kRoundRobin, labels);
  EXPECT_FALSE(findings.different());
  EXPECT_EQ(findings.streams.size(), 1u);
}

TEST_F(VerifyTest, FilesOfMoreRanksAreAnotherGroup) {
  std::vector<Batch> shards = Shards(kRoundRobin, 2);
  shards.push_back(shards[0]);
  Write(shards);
  const Findings findings = Verified(kRoundRobin);
  EXPECT_TRUE(findings.different());
  EXPECT_THAT(findings.surplus, ElementsAre(2));
  EXPECT_THAT(ToText(findings), HasSubstr("files of rank 2 too"));
}

TEST_F(VerifyTest, WhatIsNotThereIsRefusedByName) {
  EXPECT_THAT(std::string(Ask(kRoundRobin, {.cp_size = 2}).status().message()), HasSubstr(dir_));
  std::filesystem::create_directories(dir_);
  absl::Status status = Ask(kRoundRobin, {.cp_size = 2}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank0.safetensors"));

  WriteRank(1, Shards(kRoundRobin, 2)[1]);
  status = Ask(kRoundRobin, {.cp_size = 2}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no file of rank 0; there are files of rank 1"));
  EXPECT_FALSE(Ask(kRoundRobin, {.cp_size = 2, .ranks = {1}})->different());

  status = Ask(kRoundRobin, {.cp_size = 2, .ranks = {1}, .streams = {"label"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'label'; it makes input_ids, labels"));
}

TEST_F(VerifyTest, SomeRanksAloneAreKnownAsOthers) {
  const std::vector<Batch> shards = Shards(kRoundRobin, 2);
  WriteRank(1, shards[0]);
  EXPECT_EQ(CauseOf(*Ask(kRoundRobin, {.cp_size = 2, .ranks = {1}}), "input_ids"),
            "ranks_permuted: the ranks are in another order: their rank 1 is our rank 0");
}

TEST_F(VerifyTest, BytesAreComparedNotNumbers) {
  const uint32_t kNan = 0x7fc00001, kOtherNan = 0x7fc00002;
  Add(
      "weights", [&](int64_t, int64_t) { return kNan; }, DType::kF32);
  constexpr char options[] =
      R"({"contiguous": {}, "padding_token_id": 7, "extra_streams": [{"name": "weights"}]})";
  std::vector<Batch> shards = Shards(options, 2);
  Write(shards);
  EXPECT_FALSE(Verified(options).different());
  Set(Stream(shards[0], "weights"), 3, kOtherNan);
  Set(Stream(shards[1], "weights"), 6, int64_t{0x80000000});  // padding, 0.0
  Write(shards);
  const Findings findings = Verified(options);
  EXPECT_THAT(FirstOf(findings, "weights"), HasSubstr("nan (7fc00001), nan (7fc00002)"));
  EXPECT_EQ(Of(findings, "weights").differing.size(), 2u);
}

TEST_F(VerifyTest, WithoutAMeshTheOnlyRankIsCompared) {
  std::vector<Batch> shards = Shards(R"({"identity": {}})", std::nullopt);
  Write(shards);
  EXPECT_FALSE(Verified(R"({"identity": {}})", std::nullopt).different());
  Set(Stream(shards[0], "labels"), 5, IdOf(0, 6));
  Write(shards);
  EXPECT_TRUE(Verified(R"({"identity": {}})", std::nullopt).different());
}

TEST_F(VerifyTest, ABatchWithoutRowsIsComparedInTheStreamsThatHaveElements) {
  batch_.tensors.clear();
  for (const char* name : {"input_ids", "labels"}) {
    batch_.tensors.push_back(MakeTensor(name, DType::kI64, {0, 8}, [](int64_t) { return 0; }));
  }
  batch_.tensors.push_back(
      MakeTensor("position_ids", DType::kI64, {3, 1, 8}, [](int64_t i) { return i % 8; }));
  for (const char* options : {kRoundRobin, kContiguous}) {
    std::vector<Batch> shards = Shards(options, 2);
    Write(shards);
    EXPECT_FALSE(Verified(options).different());
    Set(Stream(shards[1], "position_ids"), 11, 99);
    Write(shards);
    const Findings findings = Verified(options);
    EXPECT_THAT(Unequal(findings), testing::ElementsAre("position_ids"));
    EXPECT_EQ(Of(findings, "position_ids").first->found, "99");
  }
}

// Packed rows as one flat stream: [2, 14] = 28 tokens do not divide, so rows of 16.
class VerifyThdTest : public VerifyTest {
 protected:
  VerifyThdTest() {
    batch_.tensors.clear();
    const auto add = [&](const std::string& name, const ValueOf& value) {
      batch_.tensors.push_back(
          MakeTensor(name, DType::kI64, {2, 16}, [&](int64_t i) { return value(i / 16, i % 16); }));
    };
    // Two documents of 8 columns in a row, the first with 6 real tokens.
    add("input_ids", [](int64_t row, int64_t column) {
      return column == 6 || column == 7 ? 0 : IdOf(row, column);
    });
    add("labels", [](int64_t row, int64_t column) {
      return column < 5 || (column > 7 && column < 15) ? IdOf(row, column + 1) : kIgnored;
    });
    add("position_ids", [](int64_t, int64_t column) { return column % 8; });
    for (const auto& [name, first] : {std::pair("seq_lens", 6), std::pair("seq_lens_padded", 8)}) {
      batch_.tensors.push_back(
          MakeTensor(name, DType::kI64, {2, 2}, [&](int64_t i) { return i % 2 == 0 ? first : 8; }));
    }
  }
};

TEST_F(VerifyThdTest, TokensOfAFlatStreamAreNamedInTheCallersCoordinates) {
  std::vector<Batch> shards = Shards(R"({"thd": {}})", 2);
  Write(shards);
  Findings findings = Verified(R"({"thd": {}})");
  EXPECT_FALSE(findings.different());
  EXPECT_EQ(findings.documents_from, "lengths");
  // Rank 0 has columns 0, 1, 6, 7 of every document, rank 1 has 2 ... 5; of the first document of a
  // row 6 and 7 are padding. Where rank 0's runs of neighbouring documents touch, there is no edge:
  // its edges are the stream's columns 0, 1, (6,) 9, 14, 17, (22,) 25, 30, 31; rank 1 has two a
  // document.
  EXPECT_EQ(findings.edges.shard_edges.checked, 8 + 8);
  EXPECT_EQ(findings.edges.document_ends.checked, 4);
  EXPECT_EQ(findings.edges.document_ends.wrong, 0);
  EXPECT_EQ(findings.edges.shard_edges.wrong, 0);

  // Row 1, token 5: the last real one of its document, slot 11 of rank 1.
  Set(Stream(shards[1], "labels"), 11, IdOf(1, 8));
  Write(shards);
  findings = Verified(R"({"thd": {}})");
  EXPECT_EQ(Of(findings, "labels").first->place->place.source, (SourceToken{1, 5}));
  EXPECT_EQ(findings.edges.document_ends.wrong, 1);
  EXPECT_THAT(
      FirstOf(findings, "labels"),
      HasSubstr("the id of token 8 of row 1, the first of document 3: the label crosses the "
                "end of document 2"));
}

TEST_F(VerifyThdTest, ChunksAreComparedEachByItself) {
  constexpr char options[] = R"({"thd": {"num_chunks": 2}})";
  std::vector<Batch> shards = Shards(options, 2);
  Write(shards);
  Findings findings = Verified(options);
  EXPECT_FALSE(findings.different());
  EXPECT_EQ(Of(findings, "labels").ours.dims, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(findings.edges.document_ends.checked, 4);

  Set(Stream(shards[0], "input_ids"), 8 + 1, IdOf(0, 1));  // chunk 1 has row 0's token
  Write(shards);
  findings = Verified(options);
  EXPECT_EQ(Of(findings, "input_ids").first->place->place.source, (SourceToken{1, 1}));
  EXPECT_THAT(FirstOf(findings, "input_ids"), HasSubstr("1011, 11: that is token 1 of row 0"));
}

TEST_F(VerifyThdTest, UnevenShardsAreCompared) {
  constexpr char options[] = R"({"document_head_tail": {}})";
  Write(Shards(options, 3));
  const Findings findings = Verified(options, 3);
  EXPECT_FALSE(findings.different());
  EXPECT_EQ(findings.edges.shard_edges.wrong, 0);
}

TEST_F(VerifyThdTest, BoundariesThatDifferAreNoTokens) {
  std::vector<Batch> shards = Shards(R"({"thd": {}})", 2);
  for (Batch& shard : shards) Set(Stream(shard, "cu_seqlens"), 1, 6);
  Write(shards);
  const Findings findings = Verified(R"({"thd": {}})");
  EXPECT_THAT(Unequal(findings), ElementsAre("cu_seqlens"));
  const FirstDifference& first = *Of(findings, "cu_seqlens").first;
  EXPECT_THAT(first.index, ElementsAre(1));
  EXPECT_EQ(first.place, std::nullopt);
  EXPECT_EQ(FirstOf(findings, "cu_seqlens"), "8, 6: ");
}

}  // namespace
}  // namespace cpshard::verify
