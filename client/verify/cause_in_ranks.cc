#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/verify/cause.h"
#include "client/verify/elements.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

// Our rank that the part of ranks[k] is, if it is one: its own where that fits, else one that it
// has changed places with. A part that several ranks have alike proves nothing by itself.
std::optional<int64_t> OriginOf(size_t k, const std::vector<int64_t>& ranks,
                                const StreamParts& parts, const std::vector<Tensor>& all) {
  if (SameTensor(parts.ours[k], parts.theirs[k])) return ranks[k];
  for (size_t other = 0; other < ranks.size(); ++other) {
    if (SameTensor(parts.ours[other], parts.theirs[k]) &&
        SameTensor(parts.ours[k], parts.theirs[other])) {
      return ranks[other];
    }
  }
  std::optional<int64_t> only;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!SameTensor(all[rank], parts.theirs[k])) continue;
    if (only) return std::nullopt;
    only = static_cast<int64_t>(rank);
  }
  return only;
}

// ... of all ranks asked for. A mask says little: if two of its parts were one of ours, that could
// be by chance.
std::optional<std::vector<int64_t>> OriginsOf(const std::vector<int64_t>& ranks,
                                              const StreamParts& parts,
                                              const std::vector<Tensor>& all) {
  std::vector<int64_t> origins;
  for (size_t k = 0; k < ranks.size(); ++k) {
    const std::optional<int64_t> origin = OriginOf(k, ranks, parts, all);
    if (!origin) return std::nullopt;
    origins.push_back(*origin);
  }
  const std::set<int64_t> distinct(origins.begin(), origins.end());
  const bool mask = parts.stream->dtype == DType::kBool;
  if (mask && distinct.size() < origins.size()) return std::nullopt;
  return origins;
}

std::string OriginsText(const std::vector<int64_t>& ranks, const std::vector<int64_t>& origins) {
  constexpr size_t kMost = 4;
  std::vector<std::string> moved;
  std::vector<size_t> at;
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (origins[k] == ranks[k]) continue;
    at.push_back(k);
    moved.push_back(absl::StrCat("their rank ", ranks[k], " is our rank ", origins[k]));
  }
  if (at.size() == 2 && origins[at[0]] == ranks[at[1]] && origins[at[1]] == ranks[at[0]]) {
    return absl::StrCat("ranks ", ranks[at[0]], " and ", ranks[at[1]], " are swapped");
  }
  const bool one = std::all_of(origins.begin(), origins.end(),
                               [&](int64_t origin) { return origin == origins[0]; });
  if (one && ranks.size() > 1) return absl::StrCat("every rank has our rank ", origins[0], "'s");
  if (moved.size() > kMost) {
    const size_t more = moved.size() - kMost;
    moved.resize(kMost);
    moved.push_back(absl::StrCat("and ", more, " more"));
  }
  return absl::StrCat("the ranks are in another order: ", absl::StrJoin(moved, ", "));
}

absl::StatusOr<std::optional<Cause>> PermutedRanks(const Reference& reference,
                                                   const StreamParts& parts) {
  if (!reference.MayCutAllRanks()) return std::nullopt;
  std::vector<int64_t> ranks(reference.plan().num_ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Tensor> all, reference.Cut(*parts.stream, ranks));
  const auto origins = OriginsOf(reference.ranks(), parts, all);
  if (!origins) return std::nullopt;
  return Cause{"ranks_permuted", OriginsText(reference.ranks(), *origins)};
}

using Partition = std::vector<IndexMap>;

// Every cp_size-th column.
Partition Striped(int64_t columns, int64_t cp_size) {
  Partition ranks(cp_size);
  for (int64_t column = 0; column < columns; ++column) {
    ranks[column % cp_size].Append({column, 1});
  }
  return ranks;
}

// As round robin, but every rank's later chunk first.
absl::StatusOr<Partition> TailFirst(int64_t columns, int64_t cp_size) {
  CPSHARD_RETURN_IF_ERROR(RoundRobinPartition(columns, cp_size).status());
  const int64_t chunk = columns / (2 * cp_size);
  Partition ranks(cp_size);
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    ranks[rank].Append({(2 * cp_size - 1 - rank) * chunk, chunk});
    ranks[rank].Append({rank * chunk, chunk});
  }
  return ranks;
}

// Head and tail of every document: only where all rows are packed alike.
absl::StatusOr<Partition> PerDocument(const std::vector<std::vector<DocumentSpan>>& rows,
                                      int64_t columns, int64_t cp_size) {
  std::vector<int64_t> boundaries;
  for (const DocumentSpan& span : rows.front()) {
    if (rows.size() > 1 || (!boundaries.empty() && span.begin < boundaries.back())) break;
    boundaries.push_back(span.begin);
  }
  boundaries.push_back(columns);
  return TePartition(boundaries, columns, cp_size);
}

struct Rule {
  std::string name;
  std::vector<Partition> partitions;  // one per chunk
};

// Rules that other sharders follow, as far as the columns divide by them.
std::vector<Rule> RulesFor(const Reference& reference) {
  const ShardPlan& plan = reference.plan();
  std::vector<Rule> rules;
  const auto add = [&](std::string name, auto make) {
    Rule rule{std::move(name), {}};
    for (size_t c = 0; c < plan.chunks.size(); ++c) {
      absl::StatusOr<Partition> partition = make(c, plan.chunks[c].padded_len, plan.num_ranks());
      if (!partition.ok()) return;
      rule.partitions.push_back(*std::move(partition));
    }
    rules.push_back(std::move(rule));
  };
  add("contiguous: rank r has the r-th slice of the columns",
      [](size_t, int64_t columns, int64_t ranks) { return ContiguousPartition(columns, ranks); });
  add("round robin: rank r has chunks r and 2 * cp_size - 1 - r of the row",
      [](size_t, int64_t columns, int64_t ranks) { return RoundRobinPartition(columns, ranks); });
  add("round robin over every document: chunks r and 2 * cp_size - 1 - r of each",
      [&](size_t c, int64_t columns, int64_t ranks) {
        return PerDocument(reference.documents().chunks[c], columns, ranks);
      });
  add("round robin with the tail chunk first",
      [](size_t, int64_t columns, int64_t ranks) { return TailFirst(columns, ranks); });
  add("striped: rank r has columns r, r + cp_size, ...",
      [](size_t, int64_t columns, int64_t ranks) -> absl::StatusOr<Partition> {
        return Striped(columns, ranks);
      });
  return rules;
}

// Whether each rank would have as many slots.
bool SameLengths(const Rule& rule, const ShardPlan& plan) {
  for (size_t c = 0; c < rule.partitions.size(); ++c) {
    for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
      if (rule.partitions[c][rank].size() != plan.chunks[c].LocalLen(rank)) return false;
    }
  }
  return true;
}

absl::StatusOr<std::optional<Cause>> AnotherPartition(const Reference& reference,
                                                      const StreamParts& parts) {
  const ShardPlan& plan = reference.plan();
  if (plan.num_ranks() < 2 || parts.stream->layout != kTokens) return std::nullopt;
  for (const Rule& rule : RulesFor(reference)) {
    if (!SameLengths(rule, plan)) continue;
    CPSHARD_ASSIGN_OR_RETURN(const std::vector<Tensor> cut,
                             reference.CutBy(*parts.stream, rule.partitions, reference.ranks()));
    if (std::equal(cut.begin(), cut.end(), parts.theirs.begin(), SameTensor)) {
      return Cause{"another_partition",
                   absl::StrCat("the same columns in another layout, ", rule.name)};
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<Cause>> CausesInRanks(const Reference& reference,
                                                 const StreamParts& parts) {
  std::vector<Cause> causes;
  if (parts.stream->extent != Extent::kLocal) return causes;
  for (const auto& find : {PermutedRanks, AnotherPartition}) {
    CPSHARD_ASSIGN_OR_RETURN(const std::optional<Cause> cause, find(reference, parts));
    if (cause) causes.push_back(*cause);
  }
  return causes;
}

}  // namespace cpshard::verify
