#include "client/cli/plan_print.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/plan/index_map.h"

namespace cpshard {
namespace {

constexpr int64_t kLongTable = 16;  // rows; of a longer one the first and the last are shown
constexpr int64_t kHead = 12, kTail = 2;
constexpr size_t kShownRuns = 4;

double Percent(double part, double whole) { return whole == 0 ? 0 : 100 * part / whole; }

std::string CountOr(const std::optional<int64_t>& count, absl::string_view absent) {
  return count ? absl::StrCat(*count) : std::string(absent);
}

// Right-aligned columns under a heading, the last one on the left.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) : lines_{std::move(heading)} {}

  void Add(std::vector<std::string> line) { lines_.push_back(std::move(line)); }

  // Line i of `size` by add(i); what lies in the middle of a long one is left out.
  void AddSome(int64_t size, const std::function<void(int64_t)>& add) {
    for (int64_t i = 0; i < size; ++i) {
      if (size > kLongTable && i == kHead) {
        Add({"..."});
        i = size - kTail;
      }
      add(i);
    }
  }

  std::string Text() const {
    std::vector<size_t> widths(lines_.front().size());
    for (const auto& line : lines_) {
      for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
    }
    std::string text;
    for (const auto& line : lines_) {
      for (size_t i = 0; i < line.size(); ++i) {
        const bool last = i + 1 == widths.size();
        absl::StrAppend(&text, i == 0 ? "" : "  ",
                        last ? line[i] : absl::StrFormat("%*s", widths[i], line[i]));
      }
      absl::StrAppend(&text, "\n");
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> lines_;
};

std::string Columns(const ShardLayout& layout) {
  IndexMap map;
  for (const Run& run : layout.runs) map.Append(run);
  std::string text;
  for (size_t i = 0; i < std::min(map.runs().size(), kShownRuns); ++i) {
    const Run& run = map.runs()[i];
    absl::StrAppend(&text, i == 0 ? "" : " ", run.source);
    if (run.length > 1) absl::StrAppend(&text, "..", run.source + run.length - 1);
  }
  if (map.runs().size() > kShownRuns) {
    absl::StrAppend(&text, " and ", map.runs().size() - kShownRuns, " more runs");
  }
  return text;
}

int64_t Slots(const ShardLayout& layout) {
  int64_t slots = 0;
  for (const Run& run : layout.runs) slots += run.length;
  return slots;
}

// The causal area that counts: within documents where they are told.
std::optional<double> CausalArea(const RankLoad& load) {
  return load.causal_documents ? load.causal_documents : load.causal_rows;
}

// A rank's share of the work: 1 is the mean.
std::string OverMean(const std::optional<double>& area, double mean) {
  if (!area) return "-";
  return absl::StrFormat("%.3f", mean == 0 ? 1.0 : *area / mean);
}

std::string RankTable(const PlanSummary& summary) {
  double mean = 0;
  for (const RankLoad& load : summary.loads) mean += CausalArea(load).value_or(0);
  if (!summary.loads.empty()) mean /= static_cast<double>(summary.loads.size());
  Table table({"rank", "slots", "real", "pad", "supervised", "causal work", "columns"});
  table.AddSome(static_cast<int64_t>(summary.layouts.size()), [&](int64_t i) {
    const ShardLayout& layout = summary.layouts[i];
    std::vector<std::string> line = {absl::StrCat(layout.cp_rank), absl::StrCat(Slots(layout))};
    if (static_cast<size_t>(layout.cp_rank) < summary.loads.size()) {
      const RankLoad& load = summary.loads[layout.cp_rank];
      for (std::string text :
           {absl::StrCat(load.tokens.real), absl::StrCat(load.tokens.pad),
            CountOr(load.tokens.supervised, "-"), OverMean(CausalArea(load), mean)}) {
        line.push_back(std::move(text));
      }
    } else {
      line.insert(line.end(), 4, "-");
    }
    line.push_back(Columns(layout));
    table.Add(std::move(line));
  });
  return table.Text();
}

std::string LengthText(const PlanSummary& summary) {
  if (summary.layouts.empty() || !summary.layouts.front().padded_seq_len) return "";
  const ShardLayout& layout = summary.layouts.front();
  const int64_t padded = *layout.padded_seq_len;
  return absl::StrFormat("length %d -> %d, padding %d of %d columns (%.2f %%)\n",
                         layout.original_seq_len.value_or(padded), padded, summary.pad_columns,
                         summary.padded_columns,
                         Percent(static_cast<double>(summary.pad_columns),
                                 static_cast<double>(summary.padded_columns)));
}

std::string TokensText(const BatchTotals& totals) {
  const double all = static_cast<double>(totals.tokens.real + totals.tokens.pad);
  std::string text =
      absl::StrFormat("tokens     %d real, %d padding (%.2f %%)\n", totals.tokens.real,
                      totals.tokens.pad, Percent(static_cast<double>(totals.tokens.pad), all));
  if (totals.num_label_tokens) {
    absl::StrAppend(&text, "labels     ", *totals.num_label_tokens, " supervised; ",
                    CountOr(totals.num_tokens_excl_tail_pad, "-"),
                    " tokens without tail padding (sums of the whole CP group)\n");
  }
  absl::StrAppend(&text, "documents  ",
                  totals.documents_from.empty()
                      ? std::string("nothing tells them: every row is taken as one")
                      : absl::StrCat(totals.documents, ", told by ", totals.documents_from),
                  "\n");
  return text;
}

void AddArea(absl::string_view mask, absl::string_view within,
             const std::optional<AreaTotals>& area, Table& table) {
  if (!area) return;
  table.Add({std::string(mask), absl::StrFormat("%.3f", area->imbalance),
             absl::StrFormat("%.2f %%", Percent(area->useful, area->scheduled)),
             std::string(within)});
}

std::string BalanceText(const BatchTotals& totals) {
  if (!totals.balance) return "";
  const BalanceTotals& balance = *totals.balance;
  Table table({"attention", "I_attn", "useful", "within"});
  AddArea("causal", "documents", balance.causal_documents, table);
  AddArea("full", "documents", balance.full_documents, table);
  AddArea("causal", "whole rows", balance.causal_rows, table);
  AddArea("full", "whole rows", balance.full_rows, table);
  return absl::StrCat(
      "\n", table.Text(),
      absl::StrFormat(
          "I_attn, and I_tok of slots %.3f: the largest rank over the mean, 1 is even\n",
          balance.slot_imbalance));
}

// "ranks 1, 2, 3 and 5 more" of those that `matches`.
std::string RanksText(const std::vector<RankLoad>& loads,
                      const std::function<bool(const TokenCounts&)>& matches) {
  constexpr int64_t kListed = 8;
  std::string text;
  int64_t count = 0;
  for (size_t rank = 0; rank < loads.size(); ++rank) {
    const TokenCounts& tokens = loads[rank].tokens;
    if (tokens.real + tokens.pad == 0 || !matches(tokens)) continue;
    if (count++ < kListed) absl::StrAppend(&text, count == 1 ? "" : ", ", rank);
  }
  if (count == 0) return "";
  const std::string more = count > kListed ? absl::StrCat(" and ", count - kListed, " more") : "";
  return absl::StrCat(count == 1 ? "rank " : "ranks ", text, more);
}

std::string IdleText(const std::vector<RankLoad>& loads) {
  std::string text;
  const std::string pads = RanksText(loads, [](const TokenCounts& t) { return t.real == 0; });
  const std::string unsupervised =
      RanksText(loads, [](const TokenCounts& t) { return t.supervised == int64_t{0}; });
  if (!pads.empty()) absl::StrAppend(&text, "nothing but padding: ", pads, "\n");
  if (!unsupervised.empty()) absl::StrAppend(&text, "nothing supervised: ", unsupervised, "\n");
  return text;
}

std::string StreamsText(const std::vector<StreamSummary>& streams) {
  std::string text;
  for (const StreamSummary& stream : streams) {
    absl::StrAppendFormat(&text, "stream %-24s %-5s %-20s %s\n", stream.spec.name,
                          DTypeName(stream.spec.dtype), DimsString(stream.spec.dims),
                          ExtentName(stream.cut.extent));
  }
  return text;
}

std::string ChoiceText(const std::optional<Choice>& choice) {
  return choice ? absl::StrCat("resolved to layout ", choice->layout, ": ", choice->reason, "\n")
                : "";
}

// "padded to a multiple of 2 * cp_size = 8"
std::string MultipleText(int64_t multiple, absl::string_view term) {
  return multiple == 1 ? "not padded" : absl::StrCat("padded to a multiple of ", term);
}

}  // namespace

std::string PlanText(const PlanSummary& summary) {
  std::string text = absl::StrCat(ChoiceText(summary.choice), LengthText(summary));
  if (summary.row_need) {
    absl::StrAppend(&text, "row need ", *summary.row_need,
                    " columns (the maximum over a job's groups is min_padded_len)\n");
  }
  if (summary.totals) absl::StrAppend(&text, TokensText(*summary.totals));
  absl::StrAppend(&text, "\n", RankTable(summary), IdleText(summary.loads));
  if (summary.totals) absl::StrAppend(&text, BalanceText(*summary.totals));
  absl::StrAppend(&text, "\n", StreamsText(summary.streams));
  for (const Notice& notice : summary.notices) {
    absl::StrAppend(&text, "notice: ", notice.code, ": ", notice.text, "\n");
  }
  return text;
}

std::string PadText(const PlanSummary& summary, const std::vector<int64_t>& lengths) {
  const PadCosts& costs = *summary.pad_costs;
  const PadRule& rule = costs.rule;
  Table table({"document", "length", "padded", "pad"});
  int64_t sum = 0, padded = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    sum += lengths[i];
    padded += costs.padded[i];
  }
  const auto line = [](std::string name, int64_t length, int64_t padded) {
    return std::vector<std::string>{std::move(name), absl::StrCat(length), absl::StrCat(padded),
                                    absl::StrCat(padded - length)};
  };
  table.AddSome(static_cast<int64_t>(lengths.size()),
                [&](int64_t i) { table.Add(line(absl::StrCat(i), lengths[i], costs.padded[i])); });
  table.Add(line("all", sum, padded));
  table.Add(line("row", padded, costs.row));
  std::string text = absl::StrCat(ChoiceText(summary.choice), table.Text());
  absl::StrAppend(&text, "documents  ", MultipleText(rule.document_multiple, rule.document_term),
                  "\nrow        ", MultipleText(rule.row_multiple, rule.row_term));
  if (rule.row_minimum > 0) absl::StrAppend(&text, ", and no shorter than ", rule.row_minimum);
  absl::StrAppendFormat(
      &text, "\npadding    %d of %d columns (%.2f %%)\n", costs.row - sum, costs.row,
      Percent(static_cast<double>(costs.row - sum), static_cast<double>(costs.row)));
  return text;
}

}  // namespace cpshard
