// What is said about plans: whose documents, how even, how many tokens; and pictures of them.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/draw/panel.h"
#include "client/draw/svg.h"
#include "client/draw/terminal.h"
#include "core/plan/balance.h"
#include "core/plan/documents.h"
#include "core/plan/layouts.h"
#include "core/plan/totals.h"
#include "proto/plan_layout.h"
#include "tests/bench/bench.h"
#include "tests/bench/packed.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kTokens = 1 << 20;
constexpr int64_t kDocuments = 10000;
constexpr int64_t kManyRanks = 64;

// One row of packed documents whose positions begin again with each; every 16th label is -100.
// Documents are multiples of 8 tokens (2 for a quarter of the tokens).
class PackedRow {
 public:
  explicit PackedRow(int64_t tokens)
      : lengths_(PackedBatch(tokens, kDocuments, 4 * tokens / kTokens).padded()) {
    const std::vector<int64_t> dims{1, tokens};
    spec_.cp_size = kManyRanks;
    spec_.tensors = {{"input_ids", DType::kI64, dims},
                     {"labels", DType::kI64, dims},
                     {"position_ids", DType::kI64, dims}};
    for (const int64_t length : lengths_) {
      for (int64_t i = 0; i < length; ++i) positions_.push_back(i);
    }
    for (int64_t i = 0; i < tokens; ++i) labels_.push_back(i % 16 == 0 ? -100 : i);
    copy_.resize(tokens);
  }

  const BatchSpec& spec() const { return spec_; }
  PlanValues values() const {
    return {{"labels", {DType::kI64, spec_.tensors[1].dims, Bytes(labels_)}},
            {"position_ids", {DType::kI64, spec_.tensors[2].dims, Bytes(positions_)}}};
  }

  void CopyLabels() {
    std::memcpy(copy_.data(), labels_.data(), labels_.size() * sizeof(int64_t));
    Keep(copy_);
  }

  // As `cpshard plan --len` makes it: positions alone have bytes.
  Request MakeRequest(const Options& options) const {
    Request request{options, kManyRanks, {}, spec_, {}};
    for (int64_t rank = 0; rank < kManyRanks; ++rank) request.ranks.push_back(rank);
    for (const TensorSpec& tensor : spec_.tensors) request.batch.tensors.push_back({tensor, {}});
    request.batch.tensors[2].buffer = Buffer(nullptr, const_cast<std::byte*>(Bytes(positions_)),
                                             positions_.size() * sizeof(int64_t));
    return request;
  }

 private:
  static const std::byte* Bytes(const std::vector<int64_t>& numbers) {
    return reinterpret_cast<const std::byte*>(numbers.data());
  }

  std::vector<int64_t> lengths_, positions_, labels_, copy_;
  BatchSpec spec_;
};

// Subjects in turn; the first is the anchor of the others, the goals are for the second.
void AddMilliseconds(const std::string& group, const std::vector<Subject>& subjects,
                     const std::vector<Goal>& goals, int rounds, int repeat, Table& table) {
  const auto seconds = Interleave(subjects, rounds, repeat);
  for (size_t i = 0; i < subjects.size(); ++i) {
    Row row{group, subjects[i].name, StatsOf(Scaled(1e3, seconds[i])), "ms"};
    if (i > 0) {
      row.of_anchor = StatsOf(Quotients(seconds[0], seconds[i]));
      row.anchor = subjects[0].name;
      if (i == 1) row.goals = goals;
    }
    table.Add(std::move(row));
  }
}

// Closed forms per run: as many documents and runs on a quarter of the tokens take as long.
void AddBalance(const std::string& layout, const Sharder& sharder, int rounds, Table& table) {
  struct Case {
    explicit Case(const Sharder& sharder, int64_t tokens)
        : row(tokens),
          plan(sharder.Plan(row.spec(), row.values()).value()),
          documents(DocumentsOf(plan, row.spec(), row.values())) {}
    PackedRow row;
    ShardPlan plan;
    Documents documents;
  };
  const Case quarter(sharder, kTokens / 4), whole(sharder, kTokens);
  AddMilliseconds(absl::StrCat("balance, ", layout, ", 10,000 documents, cp 64"),
                  {{"262,144 tokens", [&] { Keep(BalanceOf(quarter.plan, quarter.documents)); }},
                   {"1,048,576 tokens", [&] { Keep(BalanceOf(whole.plan, whole.documents)); }}},
                  {OfAnchorAtLeast(0.8)}, rounds, 20, table);
}

void AddCounting(const Sharder& sharder, int rounds, Table& table) {
  PackedRow row(kTokens);
  const PlanValues values = row.values();
  const ShardPlan plan = sharder.Plan(row.spec(), values).value();
  const Documents documents = DocumentsOf(plan, row.spec(), values);
  AddMilliseconds(
      "round_robin, 1M tokens, 10,000 documents, cp 64",
      {{"memcpy of 8 MB of labels", [&] { row.CopyLabels(); }},
       {"totals", [&] { Keep(TotalsOf(plan, documents, row.spec(), values)); }},
       {"documents by their positions", [&] { Keep(DocumentsOf(plan, row.spec(), values)); }}},
      {OfAnchorAtLeast(0.5)}, rounds, 4, table);
}

// What `cpshard plan --draw` does of it, from options and positions to text.
void AddPictures(const std::string& layout, int rounds, Table& table) {
  const PackedRow row(kTokens);
  const Options options =
      Options::FromJson(absl::StrCat("{\"", layout, "\": {}, \"padding_token_id\": 0}")).value();
  const Request request = row.MakeRequest(options);
  const auto plan = [&] { return PlanLayoutOf(request, {}, Limits(), PlanReply::kHere).value(); };
  const auto panels = [&] {
    return std::vector<draw::Panel>{draw::MakePanel(layout, options.ToJson(), plan()).value()};
  };
  const std::vector<Subject> subjects = {
      {"plan and all its figures", [&] { Keep(plan()); }},
      {"... and drawn in 160 columns",
       [&] {
         const draw::TerminalStyle style{.columns = 160, .depth = draw::ColourDepth::kTrue};
         Keep(draw::DrawInTerminal(panels(), style).value());
       }},
      {"... and drawn as SVG", [&] { Keep(draw::DrawSvg(panels())); }}};
  const auto seconds = Interleave(subjects, rounds, 1);
  for (size_t i = 0; i < subjects.size(); ++i) {
    Row of{absl::StrCat(layout, ", 1M tokens, 10,000 documents, cp 64"), subjects[i].name,
           StatsOf(Scaled(1e3, seconds[i])), "ms"};
    of.goals = {ValueAtMost(100)};
    table.Add(std::move(of));
  }
}

}  // namespace

void AddInspectRows(int rounds, Table& table) {
  const SharedOptions shared{.padding_token_id = 0};
  AddBalance("contiguous", Contiguous({}, shared), rounds, table);
  AddBalance("round_robin", RoundRobin({}, shared), rounds, table);
  AddCounting(RoundRobin({}, shared), rounds, table);
  AddPictures("contiguous", rounds, table);
  AddPictures("round_robin", rounds, table);
}

}  // namespace cpshard::bench
