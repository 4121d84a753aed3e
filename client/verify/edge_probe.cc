#include "client/verify/edge_probe.h"

#include <algorithm>
#include <utility>

#include "client/verify/elements.h"

namespace cpshard::verify {
namespace {

struct Edge {
  int64_t slot = 0;
  bool shard = false, document = false;
};

class Probing {
 public:
  Probing(const Reference& reference, const StreamPlan& stream, const Labels& labels)
      : reference_(reference), labels_(labels), axes_(reference.plan(), stream) {
    probe_.rule = labels.rule();
    probe_.agreeing = labels.agreeing();
    probe_.supervised = labels.supervised();
  }

  void AddRank(int64_t rank, const Tensor& theirs) {
    int64_t element = 0;  // of slot 0 of the chunk's row
    for (int64_t chunk = 0; chunk < axes_.chunks(); ++chunk) {
      const IndexMap& slots = axes_.layouts()[chunk].partition[rank];
      for (int64_t row = 0; row < axes_.outer(); ++row) {
        for (const Edge& edge : EdgesOf(slots, chunk, row)) {
          Check(rank, {chunk, row, slots.At(edge.slot)}, edge, element + edge.slot, theirs);
        }
        element += slots.size();
      }
    }
  }

  EdgeProbe Finish() { return std::move(probe_); }

 private:
  // By ascending slot.
  std::vector<Edge> EdgesOf(const IndexMap& slots, int64_t chunk, int64_t row) const {
    std::vector<Edge> edges;
    const auto add = [&](int64_t slot, bool shard) {
      if (edges.empty() || edges.back().slot != slot) edges.push_back({slot});
      (shard ? edges.back().shard : edges.back().document) = true;
    };
    const std::vector<DocumentSpan>& spans = reference_.documents().Of(chunk, row);
    for (size_t i = 0; i < slots.runs().size(); ++i) {
      const auto& [source, length] = slots.runs()[i];
      const int64_t begin = slots.starts()[i];
      add(begin, true);
      auto span = std::partition_point(spans.begin(), spans.end(), [&](const DocumentSpan& s) {
        return s.begin + s.real <= source;
      });
      for (; span != spans.end() && span->begin + span->real <= source + length; ++span) {
        if (span->real > 0) add(begin + span->begin + span->real - 1 - source, false);
      }
      add(begin + length - 1, true);
    }
    return edges;
  }

  void Check(int64_t rank, const PaddedColumn& column, const Edge& edge, int64_t element,
             const Tensor& theirs) {
    const std::optional<Labels::Expected> expected = labels_.ExpectedAt(reference_, column);
    const std::optional<int64_t> found = IntegerAt(theirs, element);
    if (!expected || !found) return;
    const bool wrong = !expected->Allows(*found);
    for (const auto& [counts, count] : {std::pair(edge.shard, &probe_.shard_edges),
                                        std::pair(edge.document, &probe_.document_ends)}) {
      if (counts) ++count->checked;
      if (counts && wrong) ++count->wrong;
    }
    if (!wrong) return;
    const bool as_in_batch = *found == labels_.LabelOf(*reference_.SourceOf(column));
    if (as_in_batch) ++probe_.wrong_as_in_batch;
    if (probe_.first && (as_in_batch || !probe_.first->as_in_batch)) return;
    Explanation place = reference_.At(column);
    std::erase_if(place.place.held, [&](const RankSlot& slot) { return slot.rank != rank; });
    WrongEdge first;
    first.rank = rank;
    first.place = place;
    first.index = Unraveled(theirs.spec.dims, element);
    first.expected = expected->label;
    first.found = *found;
    first.why = ReasonOf(*expected, place);
    first.meaning = MeaningOfLabel(reference_, labels_, place, *found);
    first.as_in_batch = as_in_batch;
    probe_.first = std::move(first);
  }

  const Reference& reference_;
  const Labels& labels_;
  const StreamAxes axes_;
  EdgeProbe probe_;
};

}  // namespace

EdgeProbe ProbeEdges(const Reference& reference, const StreamPlan& stream, const Labels& labels,
                     const std::vector<Tensor>& theirs) {
  Probing probing(reference, stream, labels);
  for (size_t k = 0; k < theirs.size(); ++k) {
    probing.AddRank(reference.ranks()[k], theirs[k]);
  }
  return probing.Finish();
}

}  // namespace cpshard::verify
