// What layouts have to do with each other and with what they report (contract section 15,
// properties 3, 4, 7 and 8): no expected values, no oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "absl/strings/str_cat.h"
#include "core/exec/gather.h"
#include "core/oracle/tensors.h"
#include "core/plan/in_forward.h"
#include "tests/property/checks.h"
#include "tests/property/documents.h"
#include "tests/property/layout_cases.h"

namespace cpshard::property {
namespace {

using Integers = std::vector<int64_t>;
using Visit = std::function<void(const Sample&, const Point&, const Shards&)>;

// Samples that the layout accepts; their number.
int64_t VisitAccepted(const LayoutCase& layout, const Visit& visit) {
  int64_t accepted = 0;
  for (int64_t cp_size = 0; cp_size <= 5; ++cp_size) {
    for (int64_t length = 0; length <= 30; ++length) {
      for (int64_t rows = 1; rows <= 3; ++rows) {
        Point point{.length = length, .rows = rows};
        if (cp_size > 0) point.cp_size = cp_size;
        point = layout.NearestPoint(point);
        Rng rng((cp_size * 31 + length) * 3 + rows);
        Sample sample = layout.Draw(point, rng);
        layout.Fit(sample);
        const auto result = ShardSample(layout, sample, point);
        if (!result.ok() || testing::Test::HasFailure()) continue;
        ++accepted;
        visit(sample, point, result->shards);
      }
    }
  }
  return accepted;
}

// A stream of all ranks, pads included.
Integers Gathered(const Shards& shards, const std::string& name) {
  const auto got = GatherStream(shards, name, {}, TheExecutor(), ThePool());
  EXPECT_TRUE(got.ok()) << name << ": " << got.status();
  return got.ok() ? oracle::Integers(FromProduct(*got)) : Integers();
}

bool Has(const Shards& shards, const std::string& name) {
  return shards.front().batch.FindTensor(name) != nullptr;
}

oracle::Tensor StreamOf(const RankShard& shard, const std::string& name) {
  return FromProduct(*shard.batch.FindTensor(name));
}

// --- the primary cut in the forward pass ---------------------------------------------------------

// The primary as every rank has it after contract 4.6, against the one that the layout cut.
void ExpectTheSamePrimary(const LayoutCase& layout, InForwardOptions options, int64_t block) {
  int64_t compared = 0;
  VisitAccepted(layout, [&](const Sample& sample, const Point& point, const Shards& shards) {
    // Without a mesh to cut for, the forward pass does not pad (T21).
    if (point.num_ranks() == 1 && point.length % block != 0) return;
    const bool is_ids = sample.streams.contains("input_ids");
    const std::string name = is_ids ? "input_ids" : "inputs_embeds";
    for (const oracle::Extra& extra : sample.extras) {
      if (extra.name == name) return;
    }
    if (options.layout == InForwardLayout::kContiguous) {
      options.pad_value = is_ids ? sample.padding_token_id.value_or(0) : int64_t{0};
    }
    const Batch batch = ToProduct(sample);
    const auto plan = PlanInForward(batch.FindTensor(name)->spec, options, point.cp_size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto ranks = ResolveRanks({}, point.num_ranks());
    const auto cut = MakeShards(*plan, batch, *ranks, TheExecutor(), ThePool());
    ASSERT_TRUE(cut.ok()) << cut.status();
    for (int64_t rank = 0; rank < point.num_ranks(); ++rank) {
      const oracle::Tensor got = FromProduct(cut->shards[rank].batch.tensors.front());
      ASSERT_EQ(TensorFault(name, got, StreamOf(shards[rank], name)), "")
          << layout.name << ": " << Describe(sample, point);
    }
    ++compared;
  });
  EXPECT_GT(compared, 100) << layout.name;
}

TEST(ThePrimaryCutInTheForwardPass, IsThePrimaryThatContiguousCuts) {
  for (const int64_t multiple : {0, 1, 2, 3, 5}) {
    ExpectTheSamePrimary(CaseNamed(absl::StrCat("contiguous_", multiple)),
                         {.layout = InForwardLayout::kContiguous, .pad_multiple = multiple},
                         std::max<int64_t>(multiple, 2));
  }
}

TEST(ThePrimaryCutInTheForwardPass, IsThePrimaryThatRoundRobinCuts) {
  ExpectTheSamePrimary(CaseNamed("round_robin"), {.layout = InForwardLayout::kRoundRobin}, 2);
}

// --- rows laid out anew (contract 4.8, 4.9) ------------------------------------------------------

// One document as the lengths of its row state it.
struct Stated {
  int64_t id = 0, source = 0, real = 0;
};

std::vector<Stated> DocumentsOf(const Sample& sample, int64_t row, bool unused_places_count) {
  const oracle::Tensor& reals = sample.streams.at("seq_lens");
  const auto padded = sample.streams.find("seq_lens_padded");
  const Integers real = oracle::Integers(reals);
  const Integers span = padded == sample.streams.end() ? real : oracle::Integers(padded->second);
  const int64_t places = reals.dims.back();
  std::vector<Stated> documents;
  Stated next;
  for (int64_t i = row * places; i < (row + 1) * places; ++i) {
    if (real[i] != kSentinel || unused_places_count) ++next.id;
    if (real[i] == kSentinel) continue;
    next.real = real[i];
    documents.push_back(next);
    next.source += std::max(real[i], span[i]);
  }
  return documents;
}

void ExpectDocumentsAtTheirPositions(const LayoutCase& layout, bool unused_places_count) {
  int64_t compared = 0;
  VisitAccepted(layout, [&](const Sample& sample, const Point& point, const Shards& shards) {
    const auto& positions = shards.front().layout.input_token_stream_positions;
    ASSERT_TRUE(positions || point.num_ranks() == 1 || !sample.streams.contains("seq_lens"));
    if (!positions) return;
    ++compared;
    const int64_t columns = *shards.front().layout.padded_seq_len;
    const Integers position_ids = Gathered(shards, "position_ids");
    const Integers ids = Gathered(shards, "packed_seq_ids");
    int64_t kept = 0;
    for (int64_t row = 0; row < point.rows; ++row) {
      for (const Stated& document : DocumentsOf(sample, row, unused_places_count)) {
        for (int64_t i = 0; i < document.real; ++i) {
          const int64_t column = positions->values[row * point.length + document.source + i];
          ASSERT_GE(column, 0) << Describe(sample, point);
          ASSERT_EQ(position_ids[row * columns + column], i) << Describe(sample, point);
          ASSERT_EQ(ids[row * columns + column], document.id) << Describe(sample, point);
          ++kept;
        }
      }
    }
    const auto is_kept = [](int64_t position) { return position >= 0; };
    ASSERT_EQ(std::count_if(positions->values.begin(), positions->values.end(), is_kept), kept)
        << "tokens of no document are dropped: " << Describe(sample, point);
    const bool inverted = Has(shards, "attention_mask");
    const Integers mask = Gathered(shards, inverted ? "attention_mask" : "padding_mask");
    ASSERT_EQ(std::count(mask.begin(), mask.end(), inverted ? 1 : 0), kept)
        << Describe(sample, point);
  });
  EXPECT_GT(compared, 100) << layout.name;
}

TEST(RowsLaidOutAnew, CountEveryDocumentFromZeroAtThePositionsThatTheyReport) {
  for (const char* name : {"deepseek_v4_1", "deepseek_v4_3", "deepseek_v4_8"}) {
    ExpectDocumentsAtTheirPositions(CaseNamed(name), /*unused_places_count=*/false);
  }
  for (const char* name : {"deepseek_v41_1_1", "deepseek_v41_1_3", "deepseek_v41_4_8"}) {
    ExpectDocumentsAtTheirPositions(CaseNamed(name), /*unused_places_count=*/true);
  }
}

// Contract 4.8: beyond V4's own name for the divisor there is no difference.
TEST(RowsThatAreNotPacked, AreCutByDeepseekV4AsByContiguous) {
  for (const int64_t multiple : {1, 3}) {
    int64_t compared = 0;
    const LayoutCase& contiguous = CaseNamed(absl::StrCat("contiguous_", multiple));
    VisitAccepted(CaseNamed(absl::StrCat("deepseek_v4_", multiple)),
                  [&](const Sample& sample, const Point& point, const Shards& shards) {
                    if (point.num_ranks() == 1 || sample.streams.contains("seq_lens")) return;
                    const auto same = ShardSample(contiguous, sample, point);
                    ASSERT_TRUE(same.ok()) << same.status();
                    ASSERT_EQ(DifferenceFault(shards, same->shards), "") << Describe(sample, point);
                    ++compared;
                  });
    EXPECT_GT(compared, 50);
  }
}

// --- layouts that are contiguous with something added --------------------------------------------

void ExpectTheSameStreams(const Shards& got, const Shards& want,
                          const std::vector<std::string>& names) {
  for (size_t rank = 0; rank < want.size(); ++rank) {
    EXPECT_EQ(got[rank].layout.runs, want[rank].layout.runs);
    for (const std::string& name : names) {
      if (!Has(want, name)) continue;
      ASSERT_TRUE(Has(got, name)) << name;
      EXPECT_EQ(TensorFault(name, StreamOf(got[rank], name), StreamOf(want[rank], name)), "");
    }
  }
}

TEST(Gemma4, CutsWhatContiguousCutsAroundAWholePrimary) {
  int64_t compared = 0;
  VisitAccepted(CaseNamed("gemma4"),
                [&](const Sample& sample, const Point& point, const Shards& shards) {
                  SCOPED_TRACE(Describe(sample, point));
                  Sample around = sample;
                  around.streams.erase("_packed_seq_ids");
                  const auto same = ShardSample(CaseNamed("contiguous_1_full"), around, point);
                  ASSERT_TRUE(same.ok()) << same.status();
                  ExpectTheSameStreams(shards, same->shards,
                                       {"input_ids", "inputs_embeds", "labels", "position_ids",
                                        "padding_mask", "loss_mask", "route"});
                  ++compared;
                });
  EXPECT_GT(compared, 100);
}

TEST(Qwen38, CutsWhatContiguousCutsAndRecordsItWhole) {
  int64_t compared = 0;
  VisitAccepted(CaseNamed("qwen3_8_2"), [&](const Sample& sample, const Point& point,
                                            const Shards& shards) {
    SCOPED_TRACE(Describe(sample, point));
    const auto same = ShardSample(CaseNamed("contiguous_2"), sample, point);
    ASSERT_TRUE(same.ok()) << same.status();
    ExpectTheSameStreams(shards, same->shards,
                         {"input_ids", "labels", "position_ids", "loss_mask"});
    const std::string record = "_qwen3_8_flash_next_cp_context.";
    EXPECT_EQ(Gathered(shards, "input_ids"), Gathered(shards, record + "global_input_ids"));
    EXPECT_EQ(Gathered(shards, "padding_mask"), Gathered(shards, record + "global_padding_mask"));
    ++compared;
  });
  EXPECT_GT(compared, 100);
}

// The columns of contiguous, as data.
std::vector<std::vector<Run>> ContiguousRanks(const Point& point) {
  const int64_t block = 2 * point.num_ranks();
  const int64_t local = (point.length + block - 1) / block * 2;
  std::vector<std::vector<Run>> ranks(point.num_ranks());
  for (int64_t rank = 0; rank < point.num_ranks() && local > 0; ++rank) {
    ranks[rank].push_back({rank * local, local});
  }
  return ranks;
}

TEST(AnExplicitPartition, ThatIsContiguousGivesTheShardsOfContiguous) {
  const LayoutCase as_data = {.name = "explicit_contiguous",
                              .make = [](SharedOptions shared, const Point& point) {
                                return Explicit(ContiguousRanks(point), std::move(shared));
                              }};
  int64_t compared = 0;
  VisitAccepted(as_data, [&](const Sample& sample, const Point& point, Shards shards) {
    const auto same = ShardSample(CaseNamed("contiguous_1"), sample, point);
    ASSERT_TRUE(same.ok()) << same.status();
    for (RankShard& shard : shards) shard.layout.local_token_global_indices.reset();
    ASSERT_EQ(DifferenceFault(shards, same->shards), "") << Describe(sample, point);
    ++compared;
  });
  EXPECT_GT(compared, 100);
}

// --- document maps (contract 4.12, 4.13, 4.16) ---------------------------------------------------

TEST(DocumentMaps, SayWhatIsPaddingWhereNoMaskWasSent) {
  const std::pair<const char*, const char*> maps[] = {
      {"kimi_linear", "kimi_packed_context.doc_ids"},
      {"kimi_k3", "kimi_packed_doc_ids"},
      {"glm5_next", "glm5_next_packed_context.doc_ids"},
      {"glm5_next_full", "glm5_next_packed_context.doc_ids"}};
  for (const auto& [layout, map] : maps) {
    int64_t compared = 0;
    VisitAccepted(CaseNamed(layout),
                  [&](const Sample& sample, const Point& point, const Shards& shards) {
                    if (sample.streams.contains("padding_mask")) return;
                    Integers padding;
                    for (const int64_t id : Gathered(shards, map)) padding.push_back(id <= 0);
                    ASSERT_EQ(Gathered(shards, "padding_mask"), padding) << Describe(sample, point);
                    ++compared;
                  });
    EXPECT_GT(compared, 100) << layout;
  }
}

TEST(BlockDiagonal, CallsPaddingWhatHasTheIdZero) {
  int64_t compared = 0;
  VisitAccepted(CaseNamed("block_diagonal"),
                [&](const Sample& sample, const Point& point, const Shards& shards) {
                  if (!sample.streams.contains("_packed_seq_ids") || point.num_ranks() == 1) return;
                  Integers padding;
                  for (const int64_t id : Gathered(shards, "_packed_seq_ids")) {
                    padding.push_back(id == 0);
                  }
                  ASSERT_EQ(Gathered(shards, "padding_mask"), padding) << Describe(sample, point);
                  ++compared;
                });
  EXPECT_GT(compared, 50);
}

// --- streams of packed documents -----------------------------------------------------------------

TEST(DocumentHeadTail, CutsADocumentOfWholePiecesAsRoundRobinCutsARow) {
  for (int64_t cp_size = 1; cp_size <= 6; ++cp_size) {
    for (int64_t chunk = 1; chunk <= 4; ++chunk) {
      const Point point{.cp_size = cp_size, .length = 2 * cp_size * chunk, .rows = 1};
      Rng rng(1);
      Sample sample = PlainSampleWith(PackedStreamVariants(), 0, 0, point, rng);
      const auto rows = ShardSample(CaseNamed("round_robin"), sample, point);
      SendLengths({{.real = {point.length}, .padded = {point.length}}}, 1, "i64", sample);
      const auto documents = ShardSample(CaseNamed("document_head_tail"), sample, point);
      ASSERT_TRUE(rows.ok() && documents.ok()) << rows.status() << documents.status();
      for (int64_t rank = 0; rank < cp_size; ++rank) {
        EXPECT_EQ(documents->shards[rank].layout.runs, rows->shards[rank].layout.runs);
      }
    }
  }
}

TEST(DocumentHeadTail, GivesRanksAsManyTokensUpToTwo) {
  VisitAccepted(CaseNamed("document_head_tail"),
                [](const Sample& sample, const Point& point, const Shards& shards) {
                  int64_t least = point.rows * point.length;
                  int64_t most = 0;
                  for (const RankShard& shard : shards) {
                    int64_t slots = 0;
                    for (const cpshard::Run& run : shard.layout.runs) slots += run.length;
                    least = std::min(least, slots);
                    most = std::max(most, slots);
                  }
                  ASSERT_LE(most - least, 2) << Describe(sample, point);
                });
}

// Contract 4.11: consecutive slices of what THD converts at cp_size 1.
TEST(GlmDsa, CutsTheConversionOfThdIntoSlices) {
  int64_t compared = 0;
  VisitAccepted(
      CaseNamed("glm_dsa_1"), [&](const Sample& sample, const Point& point, const Shards& shards) {
        const Point alone{.cp_size = 1, .length = point.length, .rows = point.rows};
        const auto whole = ShardSample(CaseNamed("thd_1"), sample, alone);
        ASSERT_TRUE(whole.ok()) << whole.status();
        for (const char* name : {"padding_mask", "cu_seqlens", "max_seqlen"}) {
          ASSERT_EQ(Gathered(shards, name), oracle::Integers(StreamOf(whole->shards[0], name)))
              << name << "; " << Describe(sample, point);
        }
        ++compared;
      });
  EXPECT_GT(compared, 100);
}

// Contract 4.17: the streams of THD, whose indices it widens.
TEST(Mimo, GivesTheStreamsOfThdAndWhereItsTokensAre) {
  int64_t compared = 0;
  VisitAccepted(
      CaseNamed("mimo_1"), [&](const Sample& sample, const Point& point, const Shards& shards) {
        SCOPED_TRACE(Describe(sample, point));
        const auto thd = ShardSample(CaseNamed("thd_1"), sample, point);
        ASSERT_TRUE(thd.ok()) << thd.status();
        ExpectTheSameStreams(
            shards, thd->shards,
            {"input_ids", "labels", "position_ids", "padding_mask", "cu_seqlens", "max_seqlen"});
        for (size_t rank = 0; rank < shards.size(); ++rank) {
          EXPECT_EQ(oracle::Integers(StreamOf(shards[rank], "_mimo_thd_local_indices")),
                    shards[rank].layout.local_token_global_indices->values);
        }
        Integers images;
        for (const int64_t id : oracle::Integers(sample.streams.at("input_ids"))) {
          images.push_back(id == 12);
        }
        EXPECT_EQ(Gathered(shards, "_mimo_global_image_mask"), images);
        ++compared;
      });
  EXPECT_GT(compared, 100);
}

// Contract 7.4 step 3.
TEST(Magi, GivesOneRankAllColumnsInOrder) {
  for (const char* name : {"magi_hf_512_8", "magi_hf_3_1", "magi_hf_1_8"}) {
    VisitAccepted(
        CaseNamed(name), [](const Sample& sample, const Point& point, const Shards& shards) {
          if (point.num_ranks() > 1) return;
          const std::vector<cpshard::Run> all = {{0, *shards.front().layout.padded_seq_len}};
          ASSERT_EQ(shards.front().layout.runs, all) << Describe(sample, point);
        });
  }
}

}  // namespace
}  // namespace cpshard::property
