// Plans of many documents, layout by layout, and magi's solver.
#include <utility>
#include <vector>

#include "core/plan/layouts.h"
#include "core/plan/magi_dispatch.h"
#include "tests/bench/bench.h"
#include "tests/bench/packed.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kTokens = 1 << 20;
constexpr int64_t kDocuments = 10000;
constexpr int kRepeat = 10;

struct Layout {
  std::string name;
  Sharder sharder;
};

std::vector<Layout> PackedLayouts() {
  const SharedOptions shared{.padding_token_id = 0};
  return {{"thd", Thd({}, shared)},
          {"glm_dsa", GlmDsa({}, shared)},
          {"mimo", Mimo({}, shared)},
          {"deepseek_v4", DeepseekV4({.pad_multiple = 4}, shared)},
          {"deepseek_v41", DeepseekV41({.pad_multiple = 4, .packed_alignment = 4}, shared)},
          {"kimi, linear", Kimi(KimiVariant::kLinear, shared)},
          {"kimi, K3", Kimi(KimiVariant::kK3, shared)},
          {"glm5_next", Glm5Next(Primary::kLeaveFull, shared)},
          {"qwen3_8", Qwen38({}, shared)},
          {"magi, custom", Magi({.variant = MagiVariant::kCustom}, shared)},
          {"document_head_tail", DocumentHeadTail(shared)}};
}

void AddMillisecondRows(const std::string& group, const std::vector<Subject>& subjects, int rounds,
                        double goal_ms, Table& table) {
  const auto seconds = Interleave(subjects, rounds, kRepeat);
  for (size_t i = 0; i < subjects.size(); ++i) {
    Row row{group, subjects[i].name, StatsOf(Scaled(1e3, seconds[i])), "ms"};
    row.goals = {ValueAtMost(goal_ms)};
    table.Add(std::move(row));
  }
}

}  // namespace

void AddPackedPlanRows(int rounds, Table& table) {
  const PackedBatch packed(kTokens, kDocuments, kRanks);
  BatchSpec spec = packed.spec();
  spec.scalars = {{"qkv_format", std::string("thd")}};
  const PlanValues values = packed.values();
  const std::vector<Layout> layouts = PackedLayouts();
  std::vector<Subject> subjects;
  for (const Layout& layout : layouts) {
    (void)layout.sharder.Plan(spec, values).value();  // it is a plan, not an error that is timed
    subjects.push_back({layout.name, [&] { Keep(layout.sharder.Plan(spec, values)); }});
  }
  AddMillisecondRows("10,000 documents, 1M tokens, cp 8", subjects, rounds, 5, table);

  constexpr int64_t kMagiRanks = 64, kChunkSize = 512, kMinChunksPerRank = 8;
  const auto solve = [&](absl::Span<const int64_t> documents) {
    Keep(DispatchCausal(documents, kTokens, kMagiRanks, kChunkSize, kMinChunksPerRank));
  };
  const std::vector<int64_t> one{kTokens};
  AddMillisecondRows("magi solver, 1M tokens, cp 64",
                     {{"one document", [&] { solve(one); }},
                      {"10,000 documents", [&] { solve(packed.padded()); }}},
                     rounds, 20, table);
}

}  // namespace cpshard::bench
