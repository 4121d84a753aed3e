// Properties of every layout (contract section 15), over all small batches: cp 1-8 and no mesh,
// lengths 0-24 and some up to 64, 0-3 rows, with streams drawn anew for each; what depends on
// dtypes and shapes also over every way to send every single stream at a few of those points.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "tests/property/checks.h"
#include "tests/property/documents.h"
#include "tests/property/layout_cases.h"
#include "tests/property/samples.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

using Visit = std::function<void(Sample, const Point&)>;

void VisitDrawnSamples(const LayoutCase& layout, const Visit& visit) {
  for (int64_t cp_size = 0; cp_size <= 8; ++cp_size) {
    for (int64_t length = 0; length <= 64; length += length < 24 ? 1 : 5) {
      for (int64_t rows = 0; rows <= 3; ++rows) {
        Point point{.length = length, .rows = rows};
        if (cp_size > 0) point.cp_size = cp_size;
        point = layout.NearestPoint(point);
        Rng rng((cp_size * 65 + length) * 4 + rows);
        visit(layout.Draw(point, rng), point);
      }
    }
  }
}

void VisitSingleVariants(const LayoutCase& layout, const Visit& visit) {
  const Variants& variants = layout.StreamsToVary();
  for (size_t stream = 0; stream < variants.size(); ++stream) {
    for (size_t choice = 0; choice < variants[stream].size(); ++choice) {
      for (const int64_t cp_size : {1, 2, 3}) {
        for (const int64_t length : {0, 1, 7, 12, 31}) {
          for (const int64_t rows : {1, 2}) {
            const Point point =
                layout.NearestPoint({.cp_size = cp_size, .length = length, .rows = rows});
            Rng rng(stream * 100 + choice);
            visit(layout.PlainSampleWith(stream, choice, point, rng), point);
          }
        }
      }
    }
  }
}

void VisitAllSamples(const LayoutCase& layout, const Visit& visit) {
  VisitDrawnSamples(layout, visit);
  VisitSingleVariants(layout, visit);
}

class EveryLayout : public testing::TestWithParam<LayoutCase> {
 protected:
  using Walk = void (*)(const LayoutCase&, const Visit&);
  using SampleFault = std::function<std::string(const Sample&, const Point&)>;
  using ShardsFault = std::function<std::string(const Sample&, const Point&, const Shards&)>;

  // Calls `fault` for every sample, fitted to the layout, until some have gone wrong.
  void Check(Walk walk, const SampleFault& fault) {
    int faults = 0;
    walk(GetParam(), [&](Sample sample, const Point& point) {
      if (faults >= 3) return;
      GetParam().Fit(sample);
      const std::string text = fault(sample, point);
      if (text.empty()) return;
      ++faults;
      ADD_FAILURE() << text << "\n  " << Describe(sample, point);
    });
  }

  // The same for the samples that the layout accepts: at least every other one.
  void CheckShards(Walk walk, const ShardsFault& fault) {
    int64_t seen = 0;
    int64_t accepted = 0;
    Check(walk, [&](const Sample& sample, const Point& point) -> std::string {
      ++seen;
      const auto result = ShardSample(GetParam(), sample, point);
      if (!result.ok()) return "";
      ++accepted;
      return fault(sample, point, result->shards);
    });
    EXPECT_GE(accepted * 2, seen);
  }
};

TEST_P(EveryLayout, HoldsEveryPaddedColumnOnce) {
  CheckShards(VisitDrawnSamples, [&](const Sample&, const Point&, const Shards& shards) {
    return CoverageFault(GetParam(), shards);
  });
}

TEST_P(EveryLayout, GivesAllRanksTheSameShapesAndTheSameLayout) {
  CheckShards(VisitDrawnSamples, [&](const Sample&, const Point& point, const Shards& shards) {
    if (static_cast<int64_t>(shards.size()) != point.num_ranks()) return std::string("ranks");
    return AgreementFault(GetParam(), shards);
  });
}

TEST_P(EveryLayout, GivesEveryRankWhatTheOracleSaysAndRefusesWhatItRefuses) {
  if (!GetParam().restated) GTEST_SKIP() << "the oracle does not know this layout";
  Check(VisitAllSamples, [&](const Sample& sample, const Point& point) -> std::string {
    const std::vector<oracle::Shard> want = GetParam().Expected(sample, point);
    const auto got = ShardSample(GetParam(), sample, point);
    if (!got.ok()) return want.empty() ? "" : absl::StrCat("refused: ", got.status().ToString());
    if (want.empty()) return "accepted what the oracle refuses";
    for (int64_t rank = 0; rank < point.num_ranks(); ++rank) {
      const std::string fault = ShardFault(got->shards[rank], want[rank]);
      if (!fault.empty()) return absl::StrCat("rank ", rank, ": ", fault);
    }
    return "";
  });
}

TEST_P(EveryLayout, GathersEveryStreamBackBitForBit) {
  CheckShards(VisitAllSamples, [&](const Sample& sample, const Point& point, const Shards& shards) {
    const std::string fault = RoundTripFault(GetParam(), sample, point, shards);
    return fault.empty() ? GatherFault(GetParam(), sample, point, shards) : fault;
  });
}

TEST_P(EveryLayout, KeepsTheNumberOfLabelsThatCount) {
  CheckShards(VisitDrawnSamples, [](const Sample& sample, const Point&, const Shards& shards) {
    return LabelCountFault(sample, shards);
  });
}

TEST_P(EveryLayout, GivesARankAskedForAloneTheSameShardAgain) {
  CheckShards(VisitDrawnSamples,
              [&](const Sample& sample, const Point& point, const Shards& shards) -> std::string {
                Shards again;
                for (int64_t rank = 0; rank < point.num_ranks(); ++rank) {
                  const auto alone = ShardSample(GetParam(), sample, point, {rank});
                  if (!alone.ok()) return alone.status().ToString();
                  again.push_back(alone->shards.front());
                }
                return DifferenceFault(shards, again);
              });
}

TEST_P(EveryLayout, LeavesTheBatchAsItWas) {
  const auto executor = MakeCpuExecutor();
  BufferPool pool;
  Check(VisitDrawnSamples, [&](const Sample& sample, const Point& point) -> std::string {
    const Batch batch = ToProduct(sample);
    const auto result = ShardBatch(GetParam().SharderFor(sample, point), batch, point.cp_size, {},
                                   Limits{}, *executor, pool);
    for (const Tensor& tensor : batch.tensors) {
      if (FromProduct(tensor) != sample.streams.at(tensor.spec.name)) return tensor.spec.name;
    }
    return "";
  });
}

TEST_P(EveryLayout, WritesTheSameBytesPastTheCache) {
  const auto streaming =
      MakeCpuExecutor({.stream_total_bytes = 0, .stream_run_bytes = 1, .stream_read_bytes = 0});
  BufferPool pool;
  CheckShards(VisitDrawnSamples,
              [&](const Sample& sample, const Point& point, const Shards& shards) -> std::string {
                const auto again =
                    ShardBatch(GetParam().SharderFor(sample, point), ToProduct(sample),
                               point.cp_size, {}, Limits{}, *streaming, pool);
                if (!again.ok()) return again.status().ToString();
                return DifferenceFault(shards, again->shards);
              });
}

TEST_P(EveryLayout, SendsTheSameBytesAsViewsOnTheBatch) {
  CheckShards(VisitDrawnSamples,
              [&](const Sample& sample, const Point& point, const Shards& shards) {
                return ViewsFault(GetParam(), sample, point, shards);
              });
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayout, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

class EveryPackedLayout : public EveryLayout {};

// Contract section 15, property 9.
TEST_P(EveryPackedLayout, CallsAllButTheRealTokensPadding) {
  CheckShards(VisitAllSamples, [](const Sample& sample, const Point&, const Shards& shards) {
    return PaddingFault(sample, shards);
  });
}

std::vector<LayoutCase> PackedCases() {
  std::vector<LayoutCase> cases = LayoutCases();
  std::erase_if(cases,
                [](const LayoutCase& layout) { return !layout.packed || layout.no_padding_mask; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, EveryPackedLayout, testing::ValuesIn(PackedCases()),
                         [](const auto& info) { return info.param.name; });

// Contract section 15, property 7.
TEST(OneDocument, IsCutAsRoundRobinCutsARow) {
  for (int64_t cp_size = 2; cp_size <= 8; ++cp_size) {
    for (int64_t chunk = 1; chunk <= 5; ++chunk) {
      const Point point{.cp_size = cp_size, .length = 2 * cp_size * chunk, .rows = 1};
      Rng rng(1);
      Sample sample = PlainSampleWith(PackedStreamVariants(), 0, 0, point, rng);
      const auto rows = ShardSample(CaseNamed("round_robin"), sample, point);
      SendLengths({{.real = {point.length - 1}, .padded = {point.length}}}, 2, "i64", sample);
      const auto documents = ShardSample(CaseNamed("thd_1"), sample, point);
      ASSERT_TRUE(rows.ok() && documents.ok()) << rows.status() << documents.status();
      for (int64_t rank = 0; rank < cp_size; ++rank) {
        const RankShard& row = rows->shards[rank];
        const RankShard& document = documents->shards[rank];
        EXPECT_EQ(document.layout.runs, row.layout.runs) << Describe(sample, point);
        for (const char* name : {"input_ids", "labels", "position_ids"}) {
          oracle::Tensor flat = FromProduct(*row.batch.FindTensor(name));
          flat.dims = {flat.dims[1]};
          EXPECT_EQ(TensorFault(name, FromProduct(*document.batch.FindTensor(name)), flat), "");
        }
      }
    }
  }
}

TEST(PackedDocuments, AreConvertedTheSameWithoutAMeshAndOnAMeshOfOneRank) {
  VisitDrawnSamples(CaseNamed("thd_1"), [&](const Sample& sample, const Point& point) {
    if (point.num_ranks() > 1) return;
    const Point no_mesh{.length = point.length, .rows = point.rows};
    const Point one_rank{.cp_size = 1, .length = point.length, .rows = point.rows};
    const auto without = ShardSample(CaseNamed("thd_1"), sample, no_mesh);
    const auto with = ShardSample(CaseNamed("thd_1"), sample, one_rank);
    ASSERT_EQ(without.ok(), with.ok()) << without.status() << with.status();
    if (!with.ok()) return;
    EXPECT_EQ(DifferenceFault(without->shards, with->shards), "") << Describe(sample, point);
  });
}

// Contract 4.2 and 4.4: only the primary differs.
void CheckThatOnlyThePrimaryDiffers(const LayoutCase& cut, const LayoutCase& full) {
  int64_t compared = 0;
  VisitDrawnSamples(cut, [&](Sample sample, const Point& point) {
    cut.Fit(sample);
    for (const oracle::Extra& extra : sample.extras) {
      if (sample.streams.contains(extra.name) && extra.name.starts_with("input")) return;
    }
    const bool ids = sample.streams.contains("input_ids");
    const auto with_cut = ShardSample(cut, sample, point);
    const auto with_full = ShardSample(full, sample, point);
    if (!with_cut.ok() || !with_full.ok()) return;
    ++compared;
    ASSERT_EQ(
        DifferenceFault(with_cut->shards, with_full->shards, ids ? "input_ids" : "inputs_embeds"),
        "")
        << Describe(sample, point);
  });
  EXPECT_GT(compared, 400);
}

TEST(KeepingThePrimaryFull, LeavesTheOtherStreamsOfRoundRobinAsTheyAre) {
  CheckThatOnlyThePrimaryDiffers(CaseNamed("round_robin"), CaseNamed("round_robin_full"));
}

TEST(KeepingThePrimaryFull, LeavesTheOtherStreamsOfContiguousAsTheyAre) {
  CheckThatOnlyThePrimaryDiffers(CaseNamed("contiguous_3"), CaseNamed("contiguous_3_full"));
}

}  // namespace
}  // namespace cpshard::property
