#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/exec/shard.h"
#include "core/plan/layouts.h"
#include "tests/bench/bench.h"
#include "tests/bench/packed.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kLong = 1 << 20;
constexpr int64_t kShort = 1 << 10;
constexpr int kRepeat = 2000;
constexpr double kAsFast = 0.8;  // of the anchor, for what should cost the same

// Leaves what is left of WriteShards when no byte moves: the lowering from maps to moves.
class NoExecutor : public Executor {
 public:
  absl::Status Run(absl::Span<const Task> tasks) override {
    Keep(tasks);
    return absl::OkStatus();
  }
  absl::string_view name() const override { return "none"; }
};

// A batch of the right shape; its bytes are never read.
Batch HollowBatch(const BatchSpec& spec) {
  Batch batch;
  for (const TensorSpec& tensor : spec.tensors) {
    batch.tensors.push_back({tensor, Buffer(nullptr, nullptr, NumBytes(tensor))});
  }
  return batch;
}

struct Anchor {
  std::string name = {};
  const std::vector<double>* seconds = nullptr;
};

void AddRow(const std::string& group, const std::string& name, const std::vector<double>& seconds,
            const Anchor& anchor, std::vector<Goal> goals, Table& table) {
  Row row{group, name, StatsOf(Scaled(1e6, seconds)), "us"};
  if (anchor.seconds != nullptr) {
    row.anchor = anchor.name;
    row.of_anchor = StatsOf(Quotients(*anchor.seconds, seconds));
  }
  row.goals = std::move(goals);
  table.Add(std::move(row));
}

void AddLayout(const std::string& layout, const Sharder& sharder, bool position_ids, int rounds,
               Table& table) {
  const BatchSpec shorter = TokenBatch(1, kShort, position_ids);
  const BatchSpec longer = TokenBatch(1, kLong, position_ids);
  const ShardPlan plan = sharder.Plan(longer, {}).value();
  const Batch batch = HollowBatch(longer);
  std::vector<int64_t> ranks(kRanks);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::byte wanted;
  const std::vector<std::byte*> dests(plan.streams.size() * kRanks, &wanted);
  NoExecutor executor;
  BufferPool pool;

  const auto seconds =
      Interleave({{"short", [&] { Keep(sharder.Plan(shorter, {})); }},
                  {"long", [&] { Keep(sharder.Plan(longer, {})); }},
                  {"lower", [&] { Keep(WriteShards(plan, batch, ranks, dests, executor, pool)); }}},
                 rounds, kRepeat);
  const std::string group =
      absl::StrCat(layout, position_ids ? "" : ", no position_ids", ", cp ", kRanks);
  const std::string shortest = absl::StrCat("plan, S = ", kShort);
  AddRow(group, shortest, seconds[0], {}, {}, table);
  AddRow(group, absl::StrCat("plan, S = ", kLong), seconds[1], {shortest, &seconds[0]},
         {ValueAtMost(10), OfAnchorAtLeast(kAsFast)}, table);
  AddRow(group, absl::StrCat("lowering to moves, S = ", kLong), seconds[2], {}, {}, table);
}

// A plan of packed documents, and the batch that it is of.
struct PackedCase {
  PackedCase(int64_t tokens, int64_t documents, int64_t cp_size)
      : packed(tokens, documents, cp_size),
        values(packed.values()),
        batch(HollowBatch(packed.spec())),
        plan(sharder.Plan(packed.spec(), values).value()),
        ranks(cp_size) {
    std::iota(ranks.begin(), ranks.end(), 0);
  }

  void Plan() const { Keep(sharder.Plan(packed.spec(), values)); }

  void Lower() {
    std::byte wanted[1];  // a literal is read, but nothing is written
    const std::vector<std::byte*> dests(plan.streams.size() * ranks.size(), wanted);
    Keep(WriteShards(plan, batch, ranks, dests, executor, pool));
  }

  const Sharder sharder = Thd({});
  const PackedBatch packed;
  const PlanValues values;
  const Batch batch;
  const ShardPlan plan;
  std::vector<int64_t> ranks;
  NoExecutor executor;
  BufferPool pool;
};

// What planning costs: documents and ranks, not tokens.
void AddPacked(int rounds, Table& table) {
  constexpr int64_t kFew = 2000, kMany = 10000;
  constexpr int kPackedRepeat = 50;
  const PackedCase fewer_tokens(kLong / 4, kFew, 8), few(kLong, kFew, 8),
      fewer_ranks(kLong, kFew, 4), many(kLong, kMany, 8);
  PackedCase lower_few(kLong, kFew, 8), lower_fewer_ranks(kLong, kFew, 4),
      lower_many(kLong, kMany, 8);
  struct Line {
    Subject subject;
    std::vector<Goal> goals;
    bool of_plan;  // else of the lowering
  };
  const std::vector<Line> lines = {
      {{"plan, 2,000 documents, 262,144 tokens, cp 8", [&] { fewer_tokens.Plan(); }}, {}, true},
      {{"plan, 2,000 documents, 1,048,576 tokens, cp 8", [&] { few.Plan(); }},
       {ValueAtMost(1000), OfAnchorAtLeast(kAsFast)},
       true},
      {{"plan, 2,000 documents, 1,048,576 tokens, cp 4", [&] { fewer_ranks.Plan(); }},
       {OfAnchorAtLeast(kAsFast)},
       true},
      {{"plan, 10,000 documents, 1,048,576 tokens, cp 8", [&] { many.Plan(); }},
       {ValueAtMost(5000), OfAnchorAtLeast(kAsFast / 5)},
       true},
      {{"lowering, 2,000 documents, 1,048,576 tokens, cp 8", [&] { lower_few.Lower(); }},
       {},
       false},
      {{"lowering, 2,000 documents, 1,048,576 tokens, cp 4", [&] { lower_fewer_ranks.Lower(); }},
       {},
       false},
      {{"lowering, 10,000 documents, 1,048,576 tokens, cp 8", [&] { lower_many.Lower(); }},
       {},
       false},
  };
  std::vector<Subject> subjects;
  for (const Line& line : lines) subjects.push_back(line.subject);
  const auto seconds = Interleave(subjects, rounds, kPackedRepeat);
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t anchor = lines[i].of_plan ? 0 : 4;
    const Anchor of = i == anchor ? Anchor() : Anchor{subjects[anchor].name, &seconds[anchor]};
    AddRow("thd", subjects[i].name, seconds[i], of, lines[i].goals, table);
  }
}

}  // namespace

BatchSpec TokenBatch(int64_t rows, int64_t columns, bool position_ids) {
  BatchSpec spec;
  spec.cp_size = kRanks;
  const std::vector<int64_t> dims{rows, columns};
  spec.tensors = {{"input_ids", DType::kI64, dims}, {"labels", DType::kI64, dims}};
  if (position_ids) spec.tensors.push_back({"position_ids", DType::kI64, dims});
  spec.tensors.push_back({"padding_mask", DType::kBool, dims});
  return spec;
}

void AddPlanRows(int rounds, Table& table) {
  const SharedOptions shared{.padding_token_id = 0};
  for (const bool position_ids : {true, false}) {
    AddLayout("contiguous", Contiguous({}, shared), position_ids, rounds, table);
    AddLayout("round_robin", RoundRobin({}, shared), position_ids, rounds, table);
  }
  AddPacked(rounds, table);
}

}  // namespace cpshard::bench
