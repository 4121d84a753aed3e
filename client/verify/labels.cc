#include "client/verify/labels.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/verify/wording.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

absl::StatusOr<const Tensor*> IntegersOfRows(const Batch& batch, const char* name) {
  const Tensor* tensor = batch.FindTensor(name);
  if (tensor == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the batch has no '", name, "'"));
  }
  if (!IsInteger(tensor->spec.dtype) || tensor->spec.dims.size() != 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", name, "' of the batch is ", DTypeName(tensor->spec.dtype),
                     DimsString(tensor->spec.dims), ", not integers [B, S]"));
  }
  return tensor;
}

// What stands in the slot of the same row of the same shard; nullopt: there is none.
std::optional<Explanation> AtSlot(const Reference& reference, const Explanation& place,
                                  int64_t slot) {
  const PaddedColumn& column = *place.place.padded;
  const LayoutPlan& layout = reference.plan().chunks[column.chunk];
  const IndexMap& slots = layout.partition[place.place.held.front().rank];
  if (slot >= slots.size()) return std::nullopt;
  return reference.At({column.chunk, column.row, slots.At(slot)});
}

// The first token of the document behind the one that `place` is the last token of; nullopt: it is
// not, or there is none.
std::optional<Explanation> AtNextDocument(const Reference& reference, const Explanation& place) {
  const PaddedColumn& column = *place.place.padded;
  if (!place.document || place.document->position + 1 != place.document->span.real) {
    return std::nullopt;
  }
  const std::vector<DocumentSpan>& spans = reference.documents().Of(column.chunk, column.row);
  for (size_t i = place.document->index + 1; i < spans.size(); ++i) {
    if (spans[i].real > 0) return reference.At({column.chunk, column.row, spans[i].begin});
  }
  return std::nullopt;
}

// What stands on the padding of input_ids, where the layout makes any.
std::optional<int64_t> PadId(const Reference& reference) {
  for (const StreamPlan& stream : reference.plan().streams) {
    if (stream.name == "input_ids") return FillOf(stream);
  }
  return std::nullopt;
}

std::string Id(const Explanation& place) { return absl::StrCat("the id of ", TokenText(place)); }

}  // namespace

absl::StatusOr<Labels> Labels::Of(const Batch& batch) {
  CPSHARD_ASSIGN_OR_RETURN(const Tensor* ids, IntegersOfRows(batch, "input_ids"));
  CPSHARD_ASSIGN_OR_RETURN(const Tensor* given, IntegersOfRows(batch, "labels"));
  if (ids->spec.dims != given->spec.dims) {
    return absl::FailedPreconditionError("'labels' and 'input_ids' have not the same shape");
  }
  Labels labels;
  labels.ids_ = ViewValues(*ids);
  labels.labels_ = ViewValues(*given);
  labels.columns_ = ids->spec.dims[1];
  int64_t own = 0, next = 0;
  for (int64_t i = 0; i < labels.labels_.size(); ++i) {
    const int64_t label = labels.labels_[i];
    if (label == kIgnored) continue;
    ++labels.supervised_;
    if (label == labels.ids_[i]) ++own;
    if ((i + 1) % labels.columns_ != 0 && label == labels.ids_[i + 1]) ++next;
  }
  labels.agreeing_ = std::max(own, next);
  if (2 * labels.agreeing_ > labels.supervised_) {
    labels.rule_ = next >= own ? Rule::kNext : Rule::kOwn;
  }
  return labels;
}

std::optional<Labels::Expected> Labels::ExpectedAt(const Reference& reference,
                                                   const PaddedColumn& column) const {
  using Kind = Expected::Kind;
  if (rule_ == Rule::kNeither || reference.IsPadding(column)) return std::nullopt;
  const SourceToken at = *reference.SourceOf(column);
  const bool unsupervised = LabelOf(at) == kIgnored;
  if (rule_ == Rule::kOwn) return Expected{Kind::kOwnId, IdOf(at), unsupervised};
  const DocumentSpan& document = *reference.DocumentAt(column);
  if (column.column + 1 < document.begin + document.real) {
    const auto next = reference.SourceOf({column.chunk, column.row, column.column + 1});
    if (next) return Expected{Kind::kNextId, IdOf(*next), unsupervised};
  }
  if (at.token + 1 == columns_) return Expected{Kind::kRowEnd, LabelOf(at), unsupervised};
  return Expected{Kind::kDocumentEnd, kIgnored, true};
}

std::string ReasonOf(const Labels::Expected& expected, const Explanation& place) {
  switch (expected.kind) {
    case Labels::Expected::Kind::kOwnId:
      return "its own id";
    case Labels::Expected::Kind::kNextId:
      return absl::StrCat("the id of ", TokenText({*place.next, {}, {}, {}}), ", the next");
    case Labels::Expected::Kind::kDocumentEnd:
      return absl::StrCat("document ", place.document->index, " ends here");
    case Labels::Expected::Kind::kRowEnd:
      return "as in the batch: the row ends here";
  }
  return "";
}

std::string MeaningOfLabel(const Reference& reference, const Labels& labels,
                           const Explanation& place, int64_t found) {
  const PaddedColumn& column = *place.place.padded;
  const auto is_id_of = [&](const std::optional<Explanation>& at) {
    return at && at->place.source && labels.IdOf(*at->place.source) == found;
  };
  if (found == kIgnored) return "no label (-100): the token is not learnt from";

  const auto beyond = AtNextDocument(reference, place);
  if (is_id_of(beyond)) {
    return absl::StrCat(Id(*beyond), ", the first of document ", beyond->document->index,
                        ": the label crosses the end of document ", place.document->index);
  }
  const LayoutPlan& layout = reference.plan().chunks[column.chunk];
  const RankSlot& held = place.place.held.front();
  const int64_t slot = held.slot % layout.LocalLen(held.rank);  // of its chunk
  const auto following = AtSlot(reference, place, slot + 1);
  const bool jumps = following && following->place.padded->column != column.column + 1;
  constexpr absl::string_view kAfterCut =
      ", which stands in the next slot of the shard: labels were shifted after the cut";
  if (jumps && is_id_of(following)) return absl::StrCat(Id(*following), kAfterCut);
  if (jumps && !following->place.source && PadId(reference) == found) {
    return absl::StrCat("the id of padding", kAfterCut);
  }
  const auto first = AtSlot(reference, place, 0);
  if (!following && slot > 0 && is_id_of(first)) {
    return absl::StrCat(Id(*first),
                        ", the shard's first slot: labels were rolled inside the shard");
  }
  std::optional<Explanation> next;
  if (place.next) next.emplace(Explanation{*place.next, {}, {}, {}});
  if (labels.rule() == Labels::Rule::kOwn && is_id_of(next)) {
    return absl::StrCat(Id(*next), ", the next: shifted, which the batch's labels are not");
  }
  if (is_id_of(place)) return "the token's own id: not shifted";
  if (labels.LabelOf(*place.place.source) == kIgnored) return "a label where the batch has none";
  return "";
}

}  // namespace cpshard::verify
