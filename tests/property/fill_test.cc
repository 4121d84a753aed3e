// Fill values at the edges of every dtype (contract 2.2, 2.3; decision D5), and the option that
// two layouts alone take (D14).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/property/checks.h"
#include "tests/property/documents.h"

namespace cpshard::property {
namespace {

constexpr Point kPoint = {.cp_size = 2, .length = 3, .rows = 1};  // one fill column at least

oracle::Tensor Tokens(const std::string& dtype, Content content = Content::kCount) {
  Rng rng(1);
  return MakeTensor(dtype, {kPoint.rows, kPoint.length}, content, rng);
}

Sample PlainSample() {
  Sample sample;
  sample.streams["input_ids"] = Tokens("i64");
  sample.streams["labels"] = Tokens("i64");
  return sample;
}

void ExpectTheOracle(const LayoutCase& layout, const Sample& sample) {
  SCOPED_TRACE(layout.name + ": " + Describe(sample, kPoint));
  const std::vector<oracle::Shard> want = layout.Expected(sample, kPoint);
  const auto got = ShardSample(layout, sample, kPoint);
  ASSERT_EQ(got.ok(), !want.empty()) << got.status();
  for (size_t rank = 0; rank < want.size(); ++rank) {
    EXPECT_EQ(ShardFault(got->shards[rank], want[rank]), "") << "rank " << rank;
  }
}

void ExpectTheOracleOnEveryLayout(const Sample& sample) {
  for (const LayoutCase& layout : LayoutCases()) {
    if (!layout.restated || layout.packed) continue;  // packed documents are not filled
    Sample fitted = sample;
    layout.Fit(fitted);
    ExpectTheOracle(layout, fitted);
  }
}

std::vector<double> EdgeValues() {
  std::vector<double> values = {0.0, -0.0, 0.1, -0.1, 0.5, 1.5, 2.75, 1e-8, 6e-8, 1e-40, 1e-50};
  for (const double edge :
       {127.0, 128.0, 255.0, 256.0, 32767.0, 32768.0, 65504.0, 65520.0, 2147483647.0, 2147483648.0,
        3.3895313892515355e38, double{std::numeric_limits<float>::max()}}) {
    for (const double near : {edge - 0.5, edge, edge + 0.5, edge + 1}) {
      values.push_back(near);
      values.push_back(-near);
    }
  }
  for (const double huge : {1e15, std::ldexp(1.0, 53) + 2, std::ldexp(1.0, 62), std::ldexp(1.0, 63),
                            3.4e38, 1e39, 1e308, std::numeric_limits<double>::infinity()}) {
    values.push_back(huge);
    values.push_back(-huge);
  }
  return values;
}

TEST(FillValues, OfExtraStreamsConvertToEveryDTypeOrAreRefused) {
  for (const DType dtype : kAllDTypes) {
    for (const double pad : EdgeValues()) {
      Sample sample = PlainSample();
      sample.streams["route"] = Tokens(std::string(DTypeName(dtype)));
      sample.extras = {{.name = "route", .pad = pad}};
      ExpectTheOracleOnEveryLayout(sample);
    }
  }
}

TEST(FillValues, ThatAreNotANumberFitBoolAlone) {
  for (const DType dtype : kAllDTypes) {
    if (IsFloating(dtype)) continue;  // which NaN stands there is nobody's business
    Sample sample = PlainSample();
    sample.streams["route"] = Tokens(std::string(DTypeName(dtype)));
    sample.extras = {{.name = "route", .pad = std::numeric_limits<double>::quiet_NaN()}};
    ExpectTheOracleOnEveryLayout(sample);
  }
}

TEST(FillValues, OfTokenIdsConvertToEveryDTypeOrAreRefused) {
  for (const DType dtype : kAllDTypes) {
    for (const int64_t edge :
         {int64_t{0}, int64_t{127}, int64_t{255}, int64_t{32767}, int64_t{65504}, int64_t{65519},
          int64_t{2147483647}, int64_t{1} << 53, INT64_MAX - 1}) {
      for (const int64_t pad_id : {edge - 1, edge, edge + 1, -edge, 1 - edge, -1 - edge}) {
        Sample sample = PlainSample();
        sample.streams["input_ids"] = Tokens(std::string(DTypeName(dtype)));
        sample.padding_token_id = pad_id;
        ExpectTheOracleOnEveryLayout(sample);
      }
    }
  }
}

TEST(FillValues, OfEveryStreamFitItsDTypeOrAreRefused) {
  for (const char* name : {"input_ids", "labels", "loss_mask", "padding_mask", "position_ids"}) {
    for (const DType dtype : kAllDTypes) {
      Sample sample = PlainSample();
      sample.streams[name] = Tokens(std::string(DTypeName(dtype)), Content::kPositions);
      ExpectTheOracleOnEveryLayout(sample);
      sample.streams.erase("labels");
      ExpectTheOracleOnEveryLayout(sample);
    }
  }
}

// Contract 2.3, where integers wrap and small floats no longer count in ones.
TEST(ContinuedPositions, GoOnFarBeyondTheExactRangeAsTheOracleSays) {
  const LayoutCase layout = {
      .name = "contiguous_3000",
      .make = [](SharedOptions shared,
                 const Point&) { return Contiguous({.pad_multiple = 3000}, std::move(shared)); },
      .restated = oracle::Options{.layout = "contiguous", .pad_multiple = 3000}};
  for (const DType dtype : kAllDTypes) {
    Sample sample = PlainSample();
    sample.streams["position_ids"] = Tokens(std::string(DTypeName(dtype)), Content::kPositions);
    ExpectTheOracle(layout, sample);
  }
}

// Decision D14.
TEST(MinPaddedLen, IsTakenByTheLayoutsThatSyncLengthsAlone) {
  for (const LayoutCase& layout : LayoutCases()) {
    const Point point = layout.NearestPoint({.cp_size = 2, .length = 8, .rows = 1});
    int seen = 0;
    for (int seed = 0; seed < 20; ++seed) {
      Rng rng(seed);
      Sample sample = layout.PlainSampleWith(0, 0, point, rng);
      layout.Fit(sample);
      const Batch batch = ToProduct(sample);
      SharedOptions options = SharedOptionsOf(sample);
      if (!PlanBatch(layout.make(options, point), batch, point.cp_size).ok()) continue;
      options.min_padded_len = 16;
      const auto plan = PlanBatch(layout.make(options, point), batch, point.cp_size);
      const auto want =
          layout.syncs_lengths ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument;
      EXPECT_EQ(plan.status().code(), want) << layout.name << ": " << plan.status();
      ++seen;
    }
    EXPECT_GT(seen, 0) << layout.name << " accepts none of its plain samples";
  }
}

}  // namespace
}  // namespace cpshard::property
