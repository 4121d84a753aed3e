// What is counted before the cut is what the ranks' own shards hold, slot by slot: labels and masks
// are read from the shards, places from the maps of the plan, and nothing is summed by runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "core/oracle/tensors.h"
#include "core/plan/inspect.h"
#include "tests/property/checks.h"
#include "tests/property/layout_cases.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

using Integers = std::vector<int64_t>;

// One column of a row.
struct Place {
  int64_t chunk = 0, row = 0, column = 0;
  auto operator<=>(const Place&) const = default;
};

struct Column {
  bool real = false, supervised = false;
};

// A stream, 1 where an element is set, found by slot of a rank or by token of the batch.
struct Flags {
  Integers values;
  bool by_slot = false;
};

class Naive {
 public:
  Naive(const ShardPlan& plan, const Documents& documents, const Sample& sample,
        const Shards& shards)
      : plan_(plan), documents_(documents), sample_(sample) {
    for (const RankShard& shard : shards) {
      std::vector<Column> slots;
      for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
        for (int64_t row = 0; row < plan.chunks[chunk].rows; ++row) {
          AddRow(shard, static_cast<int64_t>(chunk), row, slots);
        }
      }
      ranks.push_back(Count(slots));
    }
  }

  // Of the columns of a row.
  TokenCounts Of(int64_t chunk, int64_t row, int64_t begin, int64_t length) const {
    std::vector<Column> columns;
    for (int64_t column = begin; column < begin + length; ++column) {
      columns.push_back(columns_.at({chunk, row, column}));
    }
    return Count(columns);
  }

  TokenCounts All() const {
    std::vector<Column> columns;
    for (const auto& [place, column] : columns_) columns.push_back(column);
    return Count(columns);
  }

  std::vector<TokenCounts> ranks;

 private:
  TokenCounts Count(const std::vector<Column>& columns) const {
    TokenCounts counts{0, 0, int64_t{0}};
    for (const Column& column : columns) {
      ++(column.real ? counts.real : counts.pad);
      *counts.supervised += column.supervised ? 1 : 0;
    }
    return counts;
  }

  void AddRow(const RankShard& shard, int64_t chunk, int64_t row, std::vector<Column>& slots) {
    const LayoutPlan& layout = plan_.chunks[chunk];
    const Integers held = layout.partition[shard.layout.cp_rank].Expand();
    const Integers sources = layout.PlacementOf(row).Expand();
    const int64_t first = (chunk * layout.rows + row) * static_cast<int64_t>(held.size());
    const std::optional<Flags> labels = LabelsOf(shard), padding = PaddingOf(shard);
    for (size_t slot = 0; slot < held.size(); ++slot) {
      const int64_t column = held[slot], source = sources[column];
      const auto is = [&](const std::optional<Flags>& flags) {
        if (!flags || (source == kFill && !flags->by_slot)) return false;
        const int64_t token = row * layout.source_len + source;
        const int64_t index = flags->by_slot ? first + static_cast<int64_t>(slot) : token;
        return flags->values[index % flags->values.size()] != 0;  // [1, S] is that of every row
      };
      const bool real = source != kFill && IsOfDocument(chunk, row, column) && !is(padding);
      slots.push_back({real, is(labels)});
      columns_[{chunk, row, column}] = slots.back();
    }
  }

  bool IsOfDocument(int64_t chunk, int64_t row, int64_t column) const {
    if (documents_.from.empty()) return true;
    for (const DocumentSpan& span : documents_.Of(chunk, row)) {
      if (column >= span.begin && column < span.begin + span.real) return true;
    }
    return false;
  }

  // The flags that the shard has of `name`; nullopt: no such stream.
  static std::optional<Flags> Given(const RankShard& shard, const std::string& name,
                                    const std::function<Integers(const oracle::Tensor&)>& read) {
    const Tensor* tensor = shard.batch.FindTensor(name);
    if (tensor == nullptr) return std::nullopt;
    const StreamCut& cut = shard.cuts[tensor - shard.batch.tensors.data()];
    return Flags{read(FromProduct(*tensor)), cut.extent == Extent::kLocal};
  }

  static Integers NonZero(const oracle::Tensor& tensor) {
    Integers flags = oracle::ZeroFlags(tensor);
    for (int64_t& flag : flags) flag = 1 - flag;
    return flags;
  }

  std::optional<Flags> LabelsOf(const RankShard& shard) const {
    return Given(shard, "labels", [](const oracle::Tensor& tensor) {
      Integers flags;
      for (const int64_t label : oracle::Integers(tensor)) flags.push_back(label != -100);
      return flags;
    });
  }

  std::optional<Flags> PaddingOf(const RankShard& shard) const {
    if (const auto given = Given(shard, "padding_mask", NonZero)) return given;
    if (documents_.from == "lengths") return std::nullopt;
    const auto mask = sample_.streams.find("padding_mask");
    if (mask != sample_.streams.end()) return Flags{NonZero(mask->second)};
    const auto attention = sample_.streams.find("attention_mask");
    if (attention == sample_.streams.end()) return std::nullopt;
    return Flags{oracle::ZeroFlags(attention->second)};
  }

  const ShardPlan& plan_;
  const Documents& documents_;
  const Sample& sample_;
  std::map<Place, Column> columns_;
};

// An element for each token; one row may come without its axis.
bool IsOfTokens(const Sample& sample, const std::string& name, const Point& point) {
  const auto found = sample.streams.find(name);
  if (found == sample.streams.end()) return true;
  const Integers& dims = found->second.dims;
  return dims == Integers{point.rows, point.length} ||
         (point.rows == 1 && dims == Integers{point.length});
}

std::string Text(const TokenCounts& counts) {
  return absl::StrCat(counts.real, " real, ", counts.pad, " padding, ",
                      counts.supervised ? absl::StrCat(*counts.supervised) : "? ", " supervised");
}

// "" = they are the same; without labels nothing is known of supervision.
std::string Difference(absl::string_view what, const TokenCounts& got, TokenCounts want,
                       bool supervised) {
  if (!supervised) want.supervised.reset();
  if (got == want) return "";
  return absl::StrCat(what, ": counted ", Text(got), "; the shards hold ", Text(want));
}

std::string CountsFault(const ShardPlan& plan, const Inspection& inspection, const Naive& naive,
                        bool supervised) {
  const Totals& totals = inspection.totals;
  std::string fault = Difference("batch", totals.batch, naive.All(), supervised);
  for (size_t rank = 0; rank < naive.ranks.size() && fault.empty(); ++rank) {
    fault = Difference(absl::StrCat("rank ", rank), totals.ranks.at(rank), naive.ranks[rank],
                       supervised);
  }
  size_t next = 0;
  for (size_t chunk = 0; chunk < plan.chunks.size() && fault.empty(); ++chunk) {
    for (int64_t row = 0; row < plan.chunks[chunk].rows && fault.empty(); ++row) {
      if (inspection.documents.from.empty()) continue;
      for (const DocumentSpan& span : inspection.documents.Of(chunk, row)) {
        const DocumentCounts& counts = totals.documents.at(next++);
        const Place place{counts.chunk, counts.row, counts.span.begin};
        if (place != Place{static_cast<int64_t>(chunk), row, span.begin}) return "document's place";
        const TokenCounts want = naive.Of(chunk, row, span.begin, span.length);
        fault = Difference(absl::StrCat("document ", next), counts.tokens, want, supervised);
      }
    }
  }
  if (fault.empty() && next != totals.documents.size()) return "more documents than there are";
  return fault;
}

// The two numbers of the labels as they came.
std::string LabelsFault(const Totals& totals, const Sample& sample, bool supervised) {
  if (!supervised) return totals.num_label_tokens ? "counts labels that it cannot read" : "";
  const oracle::Tensor& labels = sample.streams.at("labels");
  const Integers values = oracle::Integers(labels);
  int64_t labelled = 0, excl_tail = 0;
  const int64_t columns = labels.dims.back();
  for (size_t row = 0; columns > 0 && row < values.size() / columns; ++row) {
    int64_t end = columns;
    while (end > 0 && values[row * columns + end - 1] == -100) --end;
    excl_tail += end;
    for (int64_t s = 0; s < columns; ++s) labelled += values[row * columns + s] != -100 ? 1 : 0;
  }
  if (totals.num_label_tokens != labelled) return "num_label_tokens";
  return totals.num_tokens_excl_tail_pad == excl_tail ? "" : "num_tokens_excl_tail_pad";
}

// What is sent in a shape that is not counted by, so that the shards know more than the totals.
bool IsReadable(const Sample& sample, const Point& point) {
  return IsOfTokens(sample, "padding_mask", point) && IsOfTokens(sample, "attention_mask", point) &&
         IsOfTokens(sample, "_packed_seq_ids", point);
}

class EveryLayout : public testing::TestWithParam<LayoutCase> {
 protected:
  std::string Fault(const Sample& sample, const Point& point) {
    const auto result = ShardSample(GetParam(), sample, point);
    if (!result.ok() || !IsReadable(sample, point)) return "";
    const Batch batch = ToProduct(sample);
    const BatchSpec spec = SpecOf(batch, point.cp_size);
    const auto plan = PlanBatch(GetParam().SharderFor(sample, point), batch, point.cp_size);
    const Inspection inspection = InspectBatch(*plan, spec, batch);
    const auto labels = sample.streams.find("labels");
    const bool supervised = labels != sample.streams.end() &&
                            !oracle::IsFloat(labels->second.dtype) &&
                            IsOfTokens(sample, "labels", point);
    ++compared_;
    const std::string fault = LabelsFault(inspection.totals, sample, supervised);
    if (!fault.empty() || plan->chunks.empty()) return fault;
    const Naive naive(*plan, inspection.documents, sample, result->shards);
    return CountsFault(*plan, inspection, naive, supervised);
  }

  void Check(Sample sample, const Point& point) {
    GetParam().Fit(sample);
    if (HasFailure()) return;
    const std::string fault = Fault(sample, point);
    if (!fault.empty()) ADD_FAILURE() << fault << "\n  " << Describe(sample, point);
  }

  int64_t compared_ = 0;
};

TEST_P(EveryLayout, CountsWhatItsShardsHold) {
  for (int64_t cp_size = 0; cp_size <= 4; ++cp_size) {
    for (int64_t length = 0; length <= 28; ++length) {
      for (int64_t rows = 1; rows <= 3; ++rows) {
        Point point{.length = length, .rows = rows};
        if (cp_size > 0) point.cp_size = cp_size;
        point = GetParam().NearestPoint(point);
        Rng rng((cp_size * 29 + length) * 3 + rows);
        Check(GetParam().Draw(point, rng), point);
      }
    }
  }
  EXPECT_GT(compared_, 100);
}

TEST_P(EveryLayout, CountsEveryStreamThatItCanRead) {
  const Variants& variants = GetParam().StreamsToVary();
  for (size_t stream = 0; stream < variants.size(); ++stream) {
    for (size_t choice = 0; choice < variants[stream].size(); ++choice) {
      for (const int64_t length : {1, 12, 31}) {
        const Point point = GetParam().NearestPoint({.cp_size = 2, .length = length, .rows = 2});
        Rng rng(stream * 100 + choice);
        Check(GetParam().PlainSampleWith(stream, choice, point, rng), point);
      }
    }
  }
  EXPECT_GT(compared_, 50);
}

INSTANTIATE_TEST_SUITE_P(Totals, EveryLayout, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard::property
