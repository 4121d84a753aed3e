// Documents and balance of the plans of every layout, over many small batches: what is worked out
// by runs is what is counted token by token, and documents that a layout states are those of the
// streams that it makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "core/oracle/tensors.h"
#include "core/plan/balance.h"
#include "tests/property/checks.h"
#include "tests/property/layout_cases.h"
#include "tests/property/stitching.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

using Integers = std::vector<int64_t>;

// A batch that the layout accepts, with its plan and its documents.
struct Planned {
  Sample sample;
  Point point;
  ShardPlan plan;
  Documents documents;
};

void VisitPlans(const LayoutCase& layout, const std::function<void(const Planned&)>& visit) {
  for (int64_t cp_size = 0; cp_size <= 5; ++cp_size) {
    for (int64_t length = 0; length <= 30; ++length) {
      for (int64_t rows = 0; rows <= 3; ++rows) {
        Point point{.length = length, .rows = rows};
        if (cp_size > 0) point.cp_size = cp_size;
        point = layout.NearestPoint(point);
        Rng rng((cp_size * 31 + length) * 4 + rows);
        Sample sample = layout.Draw(point, rng);
        layout.Fit(sample);
        const Batch batch = ToProduct(sample);
        const auto plan = PlanBatch(layout.SharderFor(sample, point), batch, point.cp_size);
        if (!plan.ok() || testing::Test::HasFailure()) continue;
        const BatchSpec spec = SpecOf(batch, point.cp_size);
        PlanValues values;
        for (const std::string& name : DocumentsNeeds(spec)) {
          values.emplace(name, ViewValues(*batch.FindTensor(name)));
        }
        visit({sample, point, *plan, DocumentsOf(*plan, spec, values)});
      }
    }
  }
}

// --- token by token ------------------------------------------------------------------------------

// The document that a padded column is of, or nullptr: every span is looked at.
const DocumentSpan* Holder(const std::vector<DocumentSpan>& documents, int64_t column) {
  for (const DocumentSpan& span : documents) {
    if (column >= span.begin && column < span.begin + span.length) return &span;
  }
  return nullptr;
}

// What a rank's slots of a row are, one by one.
struct Count {
  double causal = 0, full = 0;
  int64_t slots = 0, real = 0;
};

Count CountSlots(const std::vector<DocumentSpan>& documents, const Integers& columns) {
  Count count;
  for (const int64_t column : columns) {
    ++count.slots;
    const DocumentSpan* span = Holder(documents, column);
    if (span == nullptr) continue;
    for (int64_t key = span->begin; key < span->begin + span->length; ++key) {
      count.full += 1;
      if (key <= column) count.causal += 1;
    }
    if (column < span->begin + span->real) ++count.real;
  }
  return count;
}

struct Naive {
  std::vector<Count> ranks;
  double useful_causal = 0, useful_full = 0;
  int64_t columns = 0, real = 0;
};

Naive CountTokens(const ShardPlan& plan, const Documents& documents) {
  Naive naive;
  naive.ranks.resize(plan.num_ranks());
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const LayoutPlan& layout = plan.chunks[c];
    for (int64_t row = 0; row < layout.rows; ++row) {
      const std::vector<DocumentSpan>& spans = documents.Of(c, row);
      naive.columns += layout.padded_len;
      for (const DocumentSpan& span : spans) naive.real += span.real;
      for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
        const Integers columns = layout.partition[rank].Expand();
        const Count count = CountSlots(spans, columns);
        Count& sum = naive.ranks[rank];
        sum.causal += count.causal;
        sum.full += count.full;
        sum.slots += count.slots;
        sum.real += count.real;
        std::vector<DocumentSpan> without_padding = spans;
        for (DocumentSpan& span : without_padding) span.length = span.real;
        const Count useful = CountSlots(without_padding, columns);
        naive.useful_causal += useful.causal;
        naive.useful_full += useful.full;
      }
    }
  }
  return naive;
}

void ExpectArea(const AttentionArea& area, const Naive& naive, double Count::*mask, double useful) {
  double scheduled = 0, largest = 0;
  ASSERT_EQ(area.ranks.size(), naive.ranks.size());
  for (size_t rank = 0; rank < area.ranks.size(); ++rank) {
    EXPECT_DOUBLE_EQ(area.ranks[rank], naive.ranks[rank].*mask) << "rank " << rank;
    scheduled += naive.ranks[rank].*mask;
    largest = std::max(largest, naive.ranks[rank].*mask);
  }
  EXPECT_DOUBLE_EQ(area.scheduled, scheduled);
  EXPECT_DOUBLE_EQ(area.useful, useful);
  const double mean = scheduled / static_cast<double>(area.ranks.size());
  EXPECT_DOUBLE_EQ(area.imbalance(), scheduled == 0 ? 1 : largest / mean);
}

void ExpectSlots(const Balance& balance, const Naive& naive) {
  std::vector<int64_t> only_pads;
  for (size_t rank = 0; rank < naive.ranks.size(); ++rank) {
    EXPECT_EQ(balance.slots[rank], naive.ranks[rank].slots) << "rank " << rank;
    const bool pads = naive.ranks[rank].slots > 0 && naive.ranks[rank].real == 0;
    if (pads) only_pads.push_back(static_cast<int64_t>(rank));
  }
  EXPECT_EQ(balance.only_pads, only_pads);
  EXPECT_EQ(balance.padded_columns, naive.columns);
  EXPECT_EQ(balance.pad_columns, naive.columns - naive.real);
}

class PlansOfEveryLayout : public testing::TestWithParam<LayoutCase> {};

TEST_P(PlansOfEveryLayout, HaveTheBalanceThatIsCountedTokenByToken) {
  int64_t seen = 0;
  VisitPlans(GetParam(), [&](const Planned& planned) {
    if (planned.plan.chunks.empty()) return;
    ++seen;
    const auto& [sample, point, plan, documents] = planned;
    SCOPED_TRACE(absl::StrCat(Describe(sample, point), "\n", ToString(plan)));
    const Balance balance = BalanceOf(plan, documents);
    const Naive naive = CountTokens(plan, documents);
    ExpectSlots(balance, naive);
    ASSERT_EQ(balance.causal_documents.has_value(), !documents.from.empty());
    ASSERT_EQ(balance.full_documents.has_value(), !documents.from.empty());
    if (balance.causal_documents) {
      ExpectArea(*balance.causal_documents, naive, &Count::causal, naive.useful_causal);
      ExpectArea(*balance.full_documents, naive, &Count::full, naive.useful_full);
    }
    // Real tokens of rows that are laid out anew lie between paddings: no span of a row says so.
    const Naive rows = CountTokens(plan, WholeRows(plan));
    ExpectArea(balance.causal_rows, rows, &Count::causal, balance.causal_rows.useful);
    ExpectArea(balance.full_rows, rows, &Count::full, balance.full_rows.useful);
  });
  EXPECT_GT(seen, 100);
}

// --- against the streams of the layout -----------------------------------------------------------

// Per padded column, of all rows or chunks one after the other: the document, from 1 on in each
// row, 0 where there is none; and whether a real token stands there.
struct Column {
  int64_t document = 0;
  bool real = false;
};

std::vector<Column> ColumnsOfRow(const LayoutPlan& layout, const std::vector<DocumentSpan>& spans) {
  std::vector<Column> columns(layout.padded_len);
  for (size_t i = 0; i < spans.size(); ++i) {
    for (int64_t x = 0; x < spans[i].length; ++x) {
      columns[spans[i].begin + x] = {static_cast<int64_t>(i) + 1, x < spans[i].real};
    }
  }
  return columns;
}

// Calls visit(column, value) for the slots of every rank of a stream [B, L], or [C, L] and [L] of
// chunks; of one held whole, [B, P], for the columns.
using VisitSlot = std::function<void(const Column&, int64_t)>;
void VisitStream(const Planned& planned, const Shards& shards, const std::string& name,
                 const VisitSlot& visit) {
  const std::vector<LayoutPlan>& chunks = planned.plan.chunks;
  for (const RankShard& shard : shards) {
    const Integers values = oracle::Integers(FromProduct(*shard.batch.FindTensor(name)));
    size_t next = 0;
    const StreamCut& cut = shard.cuts[shard.batch.FindTensor(name) - shard.batch.tensors.data()];
    for (size_t c = 0; c < chunks.size(); ++c) {
      const IndexMap local = cut.extent == Extent::kLocal
                                 ? chunks[c].partition[shard.layout.cp_rank]
                                 : IndexMap::Identity(chunks[c].padded_len);
      for (int64_t row = 0; row < chunks[c].rows; ++row) {
        const auto columns = ColumnsOfRow(chunks[c], planned.documents.Of(c, row));
        for (const int64_t column : local.Expand()) visit(columns[column], values.at(next++));
      }
    }
    EXPECT_EQ(next, values.size()) << name;
  }
}

// Not so a map [1, P] of boundaries, which stands for every row.
bool HasAllRows(const Planned& planned, const Tensor& tensor) {
  const LayoutPlan& layout = planned.plan.chunks.front();
  return layout.flattened_from || tensor.spec.dims[0] == layout.rows;
}

// The stream that says what is padding: its name, and the value that padding has.
std::optional<std::pair<std::string, int64_t>> MaskOf(const Planned& planned,
                                                      const Shards& shards) {
  const Batch& batch = shards.front().batch;
  const bool rebuilt = batch.FindTensor("packed_seq_ids") != nullptr;  // DeepSeek's
  if (rebuilt && batch.FindTensor("padding_mask") == nullptr) return {{"attention_mask", 0}};
  const bool of_the_caller = !rebuilt && planned.sample.streams.contains("padding_mask") &&
                             !planned.plan.chunks.front().flattened_from;
  const Tensor* mask = batch.FindTensor("padding_mask");
  if (of_the_caller || mask == nullptr || !HasAllRows(planned, *mask)) return std::nullopt;
  return {{"padding_mask", 1}};
}

// Whole maps of documents (contract 4.12, 4.16), or ids of rows that were laid out anew (4.8, 4.9).
std::string IdsOf(const Planned& planned, const Shards& shards) {
  for (const Tensor& tensor : shards.front().batch.tensors) {
    const bool ids = tensor.spec.name == "packed_seq_ids" ||
                     tensor.spec.name.ends_with("packed_doc_ids") ||
                     tensor.spec.name.ends_with("packed_context.doc_ids");
    if (ids && HasAllRows(planned, tensor)) return tensor.spec.name;
  }
  return "";
}

// What ranks are told of a flat stream; where boundaries came in, which of them stays is another
// matter.
const Tensor* BoundariesOf(const Planned& planned, const Shards& shards) {
  const bool flat = planned.plan.chunks.front().flattened_from.has_value();
  if (!flat || planned.sample.streams.contains("cu_seqlens_padded")) return nullptr;
  const Batch& batch = shards.front().batch;
  const Tensor* padded = batch.FindTensor("cu_seqlens_padded");
  return padded != nullptr ? padded : batch.FindTensor("cu_seqlens");
}

void ExpectBoundaries(const Planned& planned, const Tensor& boundaries) {
  const size_t places = boundaries.spec.dims.back();
  Integers want;
  for (size_t c = 0; c < planned.plan.chunks.size(); ++c) {
    Integers of_chunk = {0};
    for (const DocumentSpan& span : planned.documents.Of(c, 0)) {
      EXPECT_EQ(span.begin, of_chunk.back());
      of_chunk.push_back(span.begin + span.length);
    }
    ASSERT_LE(of_chunk.size(), places);
    of_chunk.resize(places, kSentinel);
    want.insert(want.end(), of_chunk.begin(), of_chunk.end());
  }
  EXPECT_EQ(oracle::Integers(FromProduct(boundaries)), want);
}

// Lengths, boundaries or ids, while it plans.
bool ReadsDocuments(const LayoutCase& layout) {
  for (const char* name : {"deepseek", "kimi", "glm5_next", "qwen3_8"}) {
    if (layout.name.starts_with(name)) return true;
  }
  return layout.packed;
}

void ExpectSpansInOrder(const LayoutPlan& layout) {
  ASSERT_TRUE(layout.documents.size() == 1 ||
              static_cast<int64_t>(layout.documents.size()) == layout.rows);
  for (const std::vector<DocumentSpan>& row : layout.documents) {
    int64_t end = 0;
    for (const DocumentSpan& span : row) {
      EXPECT_GE(span.begin, end);
      EXPECT_GE(span.real, 0);
      EXPECT_LE(span.real, span.length);
      end = span.begin + span.length;
    }
    EXPECT_LE(end, layout.padded_len);
  }
}

TEST_P(PlansOfEveryLayout, StateTheDocumentsOfTheirOwnStreams) {
  int64_t stated = 0, masks = 0, ids = 0, boundaries = 0;
  VisitPlans(GetParam(), [&](const Planned& planned) {
    if (planned.documents.from != "lengths") return;
    ++stated;
    SCOPED_TRACE(Describe(planned.sample, planned.point));
    for (const LayoutPlan& layout : planned.plan.chunks) ExpectSpansInOrder(layout);
    const auto result = ShardSample(GetParam(), planned.sample, planned.point);
    ASSERT_TRUE(result.ok()) << result.status();
    if (const auto mask = MaskOf(planned, result->shards)) {
      ++masks;
      VisitStream(planned, result->shards, mask->first, [&](const Column& column, int64_t value) {
        EXPECT_EQ(value == mask->second, !column.real) << mask->first;
      });
    }
    if (const Tensor* told = BoundariesOf(planned, result->shards)) {
      ++boundaries;
      ExpectBoundaries(planned, *told);
    }
    const std::string name = IdsOf(planned, result->shards);
    if (name.empty()) return;
    ++ids;
    const bool unused_places_have_ids = GetParam().name.starts_with("deepseek_v41");  // T40
    VisitStream(planned, result->shards, name, [&](const Column& column, int64_t value) {
      if (column.document == 0) {
        EXPECT_EQ(value, 0) << name;
      } else if (column.real && unused_places_have_ids) {
        EXPECT_GE(value, column.document) << name;
      } else if (column.real) {
        EXPECT_EQ(value, column.document) << name;
      }
    });
  });
  if (!ReadsDocuments(GetParam())) {
    EXPECT_EQ(stated, 0);
    return;
  }
  EXPECT_GT(stated, 50);
  EXPECT_GT(masks, 50);
  EXPECT_GT(ids + boundaries, GetParam().name.starts_with("qwen3_8") ? -1 : 50);
}

INSTANTIATE_TEST_SUITE_P(All, PlansOfEveryLayout, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

// Documents that tokens tell are those of the lengths, where no document has padding.
TEST(DocumentsOfPlans, AreTheSameByLengthsAndByPositions) {
  const LayoutCase& thd = CaseNamed("thd_1");
  for (int64_t cp_size = 2; cp_size <= 4; ++cp_size) {
    const Point point{.cp_size = cp_size, .length = 24 * cp_size, .rows = 1};
    const Integers lengths = {2 * cp_size, 6 * cp_size, 16 * cp_size};
    Rng rng(1);
    Sample sample = PlainSampleWith(PackedStreamVariants(), 0, 0, point, rng);
    SendLengths({{.real = lengths, .padded = lengths}}, 3, "i64", sample);
    Integers positions;
    for (const int64_t length : lengths) {
      for (int64_t x = 0; x < length; ++x) positions.push_back(x);
    }
    sample.streams["position_ids"] = oracle::FromIntegers("i64", {1, point.length}, positions);
    const Batch batch = ToProduct(sample);
    ShardPlan plan = PlanBatch(thd.SharderFor(sample, point), batch, cp_size).value();
    const BatchSpec spec = SpecOf(batch, cp_size);
    const PlanValues values = {{"position_ids", ViewValues(*batch.FindTensor("position_ids"))}};
    const Documents by_lengths = DocumentsOf(plan, spec, values);
    plan.chunks.front().documents.clear();
    const Documents by_positions = DocumentsOf(plan, spec, values);
    EXPECT_EQ(by_lengths.from, "lengths");
    EXPECT_EQ(by_positions.from, "position_ids");
    EXPECT_EQ(by_lengths.chunks, by_positions.chunks);
  }
}

}  // namespace
}  // namespace cpshard::property
