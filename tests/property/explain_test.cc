// A token's way to its slot and back, over every layout: no token is lost on it, and what stands in
// the slot is the token.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/oracle/tensors.h"
#include "core/plan/explain.h"
#include "tests/property/checks.h"
#include "tests/property/layout_cases.h"
#include "tests/property/samples.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

std::string ToString(const TokenPlace& place) {
  std::string text = place.source
                         ? absl::StrCat("row ", place.source->row, " token ", place.source->token)
                         : "padding";
  if (place.padded) {
    absl::StrAppend(&text, ", chunk ", place.padded->chunk, " row ", place.padded->row, " column ",
                    place.padded->column);
  }
  for (const RankSlot& slot : place.held) {
    absl::StrAppend(&text, ", rank ", slot.rank, " slot ", slot.slot);
  }
  return text;
}

// Calls visit(slot, row) for every slot of every rank in every row.
template <typename Visit>
void VisitSlots(const LayoutTrace& trace, Visit visit) {
  for (int64_t rank : trace.ranks()) {
    for (int64_t slot = 0; slot < trace.NumSlots(rank); ++slot) {
      for (int64_t row = 0; row < trace.rows(); ++row) visit(RankSlot{rank, slot}, row);
    }
  }
}

bool Holds(const TokenPlace& place, RankSlot slot) {
  return std::find(place.held.begin(), place.held.end(), slot) != place.held.end();
}

// slot -> token -> slot, and token -> slot -> token.
std::string IdentityFault(const LayoutTrace& trace) {
  std::string fault;
  int64_t real_slots = 0, held_tokens = 0;
  VisitSlots(trace, [&](RankSlot slot, int64_t row) {
    const TokenPlace place = trace.OfSlot(slot, row).value();
    const bool back = Holds(place, slot) && trace.OfColumn(*place.padded).value() == place &&
                      (!place.source || trace.OfToken(*place.source).value() == place);
    if (!back) fault = absl::StrCat("no way back from ", ToString(place));
    real_slots += place.source ? 1 : 0;
  });
  for (int64_t row = 0; row < trace.source().rows; ++row) {
    for (int64_t token = 0; token < trace.source().columns; ++token) {
      const SourceToken source{row, token};
      const TokenPlace place = trace.OfToken(source).value();
      if (place.source != source) return absl::StrCat("another token: ", ToString(place));
      for (const RankSlot& slot : place.held) {
        ++held_tokens;
        if (trace.OfSlot(slot, place.padded->row).value() == place) continue;
        fault = absl::StrCat("no way back from ", ToString(place));
      }
      if (place.padded && place.held.empty()) fault = absl::StrCat("nobody: ", ToString(place));
    }
  }
  if (real_slots == held_tokens) return fault;
  return absl::StrCat(real_slots, " slots hold tokens, ", held_tokens, " tokens are held");
}

// The label in a slot is the one that was sent for the token whose slot it is said to be. `seen`
// counts what could be compared.
std::string LabelFault(const Sample& sample, const Shards& shards, const LayoutTrace& trace,
                       int64_t* seen) {
  const auto sent = sample.streams.find("labels");
  const int64_t columns = trace.source().columns;
  if (sent == sample.streams.end() || sent->second.dtype != "i64" ||
      sent->second.dims != std::vector<int64_t>{trace.source().rows, columns}) {
    return "";
  }
  const std::vector<int64_t> want = oracle::Integers(sent->second);
  for (const RankShard& shard : shards) {
    const Tensor* labels = shard.batch.FindTensor("labels");
    if (labels == nullptr || labels->spec.dtype != DType::kI64) return "";
    const int64_t rank = shard.layout.cp_rank;
    const int64_t slots = trace.NumSlots(rank);
    if (NumElements(labels->spec) != slots * trace.rows()) return "";  // held whole
    const std::vector<int64_t> got = oracle::Integers(FromProduct(*labels));
    for (int64_t slot = 0; slot < slots; ++slot) {
      for (int64_t row = 0; row < trace.rows(); ++row) {
        const TokenPlace place = trace.OfSlot({rank, slot}, row).value();
        if (!place.source) continue;
        ++*seen;
        if (got[row * slots + slot] == want[place.source->row * columns + place.source->token]) {
          continue;
        }
        return absl::StrCat("label ", got[row * slots + slot], " at ", ToString(place));
      }
    }
  }
  return "";
}

// The records say what the plan says, as far as they know where tokens were.
std::string RecordsFault(const LayoutTrace& by_plan, const Shards& shards) {
  std::vector<ShardLayout> records;
  for (const RankShard& shard : shards) records.push_back(shard.layout);
  const auto by_records =
      LayoutTrace::Of(records, {.rows = by_plan.rows(), .chunks = by_plan.chunks()});
  if (!by_records.ok()) return by_records.status().ToString();
  std::string fault;
  VisitSlots(by_plan, [&](RankSlot slot, int64_t row) {
    TokenPlace want = by_plan.OfSlot(slot, row).value();
    TokenPlace got = by_records->OfSlot(slot, row).value();
    if (!by_records->knows_source()) want.source = got.source = std::nullopt;
    if (want != got) fault = absl::StrCat("by records ", ToString(got), ", is ", ToString(want));
  });
  return fault;
}

class Explained : public testing::TestWithParam<LayoutCase> {
 protected:
  // Calls `visit` for samples that the layout accepts and reports a layout of: some at least.
  template <typename Visit>
  void VisitAccepted(Visit visit) {
    int64_t accepted = 0;
    for (int64_t cp_size = 0; cp_size <= 5; ++cp_size) {
      for (const int64_t length : {0, 1, 2, 5, 12, 31}) {
        for (int64_t rows = 0; rows <= 3; ++rows) {
          Point point{.length = length, .rows = rows};
          if (cp_size > 0) point.cp_size = cp_size;
          point = GetParam().NearestPoint(point);
          Rng rng((cp_size * 32 + length) * 4 + rows);
          Sample sample = GetParam().Draw(point, rng);
          GetParam().Fit(sample);
          const Batch batch = ToProduct(sample);
          const auto plan = PlanBatch(GetParam().SharderFor(sample, point), batch, point.cp_size);
          if (!plan.ok() || plan->chunks.empty() || HasFailure()) continue;
          ++accepted;
          const auto trace = LayoutTrace::Of(*plan);
          ASSERT_TRUE(trace.ok()) << trace.status() << Describe(sample, point);
          const std::string fault = visit(sample, point, *trace);
          EXPECT_EQ(fault, "") << Describe(sample, point);
        }
      }
    }
    EXPECT_GT(accepted, 20);
  }
};

TEST_P(Explained, TokensComeBackFromTheirSlotsAndSlotsFromTheirTokens) {
  VisitAccepted(
      [](const Sample&, const Point&, const LayoutTrace& trace) { return IdentityFault(trace); });
}

TEST_P(Explained, TheSlotOfATokenHoldsItsLabel) {
  int64_t seen = 0;
  VisitAccepted([&](const Sample& sample, const Point& point, const LayoutTrace& trace) {
    const auto result = ShardSample(GetParam(), sample, point);
    if (!result.ok() || GetParam().rebuilt.contains("labels")) return std::string();
    return LabelFault(sample, result->shards, trace, &seen);
  });
  if (!GetParam().whole && !GetParam().rebuilt.contains("labels")) {
    EXPECT_GT(seen, 100);
  }
}

TEST_P(Explained, TheRecordsOfTheRanksSayWhatThePlanSays) {
  VisitAccepted([&](const Sample& sample, const Point& point, const LayoutTrace& trace) {
    const auto result = ShardSample(GetParam(), sample, point);
    return result.ok() ? RecordsFault(trace, result->shards) : std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(All, Explained, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard::property
