#include "core/plan/balance.h"

#include <algorithm>
#include <numeric>

namespace cpshard {
namespace {

using Spans = std::vector<DocumentSpan>;

// What the queries of a rank work through, and whether one of them is a real token.
struct Load {
  double causal = 0, full = 0;
  bool real = false;
};

struct Loads {
  std::vector<Load> ranks;
  Load useful;               // of all ranks, real queries and keys alone
  int64_t real_columns = 0;  // of all rows
};

// Rows times columns, or int64's largest.
int64_t Saturated(int64_t rows, int64_t columns) {
  int64_t product;
  return __builtin_mul_overflow(rows, columns, &product) ? INT64_MAX : product;
}

// The first document that ends behind `column`. Runs of a rank mostly go on in the document of the
// run before, `hint`, or in the next one.
size_t FirstThatEndsBehind(const Spans& documents, int64_t column, size_t hint) {
  const auto ends = [column](const DocumentSpan& span) {
    return span.begin + span.length <= column;
  };
  for (size_t i = hint; i < std::min(hint + 2, documents.size()); ++i) {
    if (!ends(documents[i]) && (i == 0 || ends(documents[i - 1]))) return i;
  }
  return std::partition_point(documents.begin(), documents.end(), ends) - documents.begin();
}

// Adds the queries of the columns [begin, end) of `rows` rows with the same documents.
void AddQueries(const Spans& documents, int64_t begin, int64_t end, double rows, size_t& hint,
                Load& load) {
  size_t i = FirstThatEndsBehind(documents, begin, hint);
  for (; i < documents.size() && documents[i].begin < end; ++i) {
    const DocumentSpan& span = documents[i];
    hint = i;
    const int64_t first = std::max(begin - span.begin, int64_t{0});
    const int64_t last = std::min(end - span.begin, span.length);
    if (first >= last) continue;  // an empty one
    const double queries = rows * static_cast<double>(last - first);
    load.causal += queries * (static_cast<double>(first) + static_cast<double>(last) + 1) / 2;
    load.full += queries * static_cast<double>(span.length);
    load.real = load.real || first < span.real;
  }
}

void AddUseful(const Spans& documents, int64_t rows, int64_t ranks, Loads& loads) {
  for (const DocumentSpan& span : documents) {
    const double real = static_cast<double>(span.real);
    const double queries = static_cast<double>(rows) * static_cast<double>(ranks) * real;
    loads.useful.causal += queries * (real + 1) / 2;
    loads.useful.full += queries * real;
    loads.real_columns += Saturated(rows, span.real);
  }
}

// Whether every rank holds all columns; else each column is held once.
bool IsWhole(const LayoutPlan& layout) {
  return layout.partition.size() > 1 && layout.padded_len > 0 &&
         layout.LocalLen(0) == layout.padded_len && layout.LocalLen(1) == layout.padded_len;
}

// Where all rows have the same documents.
void AddAlike(const LayoutPlan& layout, const Spans& documents, std::vector<Load>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    size_t hint = 0;
    for (const Run& run : layout.partition[rank].runs()) {
      AddQueries(documents, run.source, run.source + run.length, static_cast<double>(layout.rows),
                 hint, ranks[rank]);
    }
  }
}

// Where each has its own. Runs are walked by their columns and no further than the documents of a
// row go, so that short rows for many ranks cost no more than their tokens.
void AddRows(const LayoutPlan& layout, const RowsDocuments& documents, std::vector<Load>& ranks) {
  struct Held {
    int64_t begin = 0, end = 0;
    size_t rank = 0;
  };
  std::vector<Held> held;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Run& run : layout.partition[rank].runs()) {
      held.push_back({run.source, run.source + run.length, rank});
    }
  }
  std::sort(held.begin(), held.end(),
            [](const Held& a, const Held& b) { return a.begin < b.begin; });
  for (const Spans& row : documents) {
    const int64_t end = row.empty() ? 0 : row.back().begin + row.back().length;
    size_t hint = 0;
    for (const Held& run : held) {
      if (run.begin >= end) break;
      AddQueries(row, run.begin, run.end, 1, hint, ranks[run.rank]);
    }
  }
}

void AddLayout(const LayoutPlan& layout, const RowsDocuments& documents, Loads& loads) {
  if (layout.rows == 0) return;
  const bool whole = IsWhole(layout);
  std::vector<Load> ranks(whole ? 1 : layout.partition.size());
  if (documents.size() == 1) {
    AddAlike(layout, documents.front(), ranks);
  } else {
    AddRows(layout, documents, ranks);
  }
  for (size_t rank = 0; rank < loads.ranks.size(); ++rank) {
    const Load& load = ranks[whole ? 0 : rank];
    loads.ranks[rank].causal += load.causal;
    loads.ranks[rank].full += load.full;
    loads.ranks[rank].real = loads.ranks[rank].real || load.real;
  }
  const int64_t times = documents.size() == 1 ? layout.rows : 1;
  const int64_t holders = whole ? static_cast<int64_t>(layout.partition.size()) : 1;
  for (const Spans& row : documents) AddUseful(row, times, holders, loads);
}

Loads LoadsOf(const ShardPlan& plan, const Documents& documents) {
  Loads loads;
  loads.ranks.resize(plan.num_ranks());
  for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    AddLayout(plan.chunks[chunk], documents.chunks[chunk], loads);
  }
  return loads;
}

AttentionArea Area(const Loads& loads, double Load::*mask) {
  AttentionArea area;
  for (const Load& load : loads.ranks) area.ranks.push_back(load.*mask);
  area.scheduled = std::accumulate(area.ranks.begin(), area.ranks.end(), 0.0);
  area.useful = loads.useful.*mask;
  return area;
}

// The largest over the mean; 1 where all are 0.
template <typename T>
double Imbalance(const std::vector<T>& ranks) {
  const double sum = std::accumulate(ranks.begin(), ranks.end(), 0.0);
  if (sum == 0) return 1;
  const double largest = static_cast<double>(*std::max_element(ranks.begin(), ranks.end()));
  return largest * static_cast<double>(ranks.size()) / sum;
}

}  // namespace

double AttentionArea::imbalance() const { return Imbalance(ranks); }

double Balance::pad_fraction() const {
  if (padded_columns == 0) return 0;
  return static_cast<double>(pad_columns) / static_cast<double>(padded_columns);
}

AttentionArea AreaOf(const ShardPlan& plan, const Documents& documents, AttentionMask mask) {
  return Area(LoadsOf(plan, documents),
              mask == AttentionMask::kCausal ? &Load::causal : &Load::full);
}

Balance BalanceOf(const ShardPlan& plan, const Documents& documents) {
  Balance balance;
  const Loads of_rows = LoadsOf(plan, WholeRows(plan));
  const Loads loads = LoadsOf(plan, documents);
  balance.causal_rows = Area(of_rows, &Load::causal);
  balance.full_rows = Area(of_rows, &Load::full);
  if (!documents.from.empty()) {
    balance.causal_documents = Area(loads, &Load::causal);
    balance.full_documents = Area(loads, &Load::full);
  }
  for (const LayoutPlan& layout : plan.chunks) {
    balance.padded_columns += Saturated(layout.rows, layout.padded_len);
  }
  balance.pad_columns = balance.padded_columns - loads.real_columns;
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    int64_t slots = 0;
    for (const LayoutPlan& layout : plan.chunks) {
      slots += Saturated(layout.rows, layout.LocalLen(rank));
    }
    balance.slots.push_back(slots);
    if (slots > 0 && !loads.ranks[rank].real) balance.only_pads.push_back(rank);
  }
  balance.slot_imbalance = Imbalance(balance.slots);
  return balance;
}

}  // namespace cpshard
