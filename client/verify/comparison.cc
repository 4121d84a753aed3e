#include "client/verify/comparison.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/verify/elements.h"
#include "client/verify/meaning.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

Cause CauseOfSpec(const TensorSpec& theirs, const TensorSpec& ours) {
  if (theirs.dims == ours.dims) return {"dtype", "equal but for the dtype"};
  if (theirs.dtype == ours.dtype) return {"shape", "equal but for the shape"};
  return {"shape", "equal but for dtype and shape"};
}

// Counts what differs; `first` receives the lowest element that does.
RankCount CountMismatches(int64_t rank, const Tensor& ours, const Tensor& theirs,
                          std::optional<int64_t>& first) {
  RankCount count{rank, 0, NumElements(ours.spec)};
  ForEachMismatch(ours, theirs, [&](int64_t element) {
    ++count.differing;
    if (!first) first = element;
  });
  return count;
}

}  // namespace

absl::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return "EQUAL";
    case Verdict::kDifferent:
      return "DIFFERENT";
    case Verdict::kMissing:
      return "MISSING";
  }
  return "?";
}

absl::StatusOr<StreamFinding> Comparison::Compare(const StreamPlan& stream) const {
  StreamParts parts{&stream, {}, {}};
  CPSHARD_ASSIGN_OR_RETURN(parts.ours, reference_.Cut(stream, reference_.ranks()));
  StreamFinding finding;
  finding.ours = parts.ours.front().spec;
  finding.extent = stream.extent;
  for (size_t k = 0; k < parts.ours.size(); ++k) {
    const TensorSpec* theirs = folder_.Find(k, stream.name);
    if (theirs == nullptr) {
      finding.absent.push_back(reference_.ranks()[k]);
    } else if (*theirs != parts.ours[k].spec && !finding.theirs) {
      finding.theirs = *theirs;
    }
  }
  if (finding.absent.empty()) {
    CPSHARD_RETURN_IF_ERROR(CompareParts(parts, finding));
  } else {
    finding.verdict = Verdict::kMissing;
  }
  return finding;
}

absl::StatusOr<Comparison::Read> Comparison::ReadLike(const std::vector<Tensor>& ours) const {
  Read read;
  for (size_t k = 0; k < ours.size(); ++k) {
    const TensorSpec& spec = ours[k].spec;
    // Judged before its bytes are read: it may be of any size.
    std::optional<Tensor> restated;
    if (NumElements(*folder_.Find(k, spec.name)) == NumElements(spec)) {
      CPSHARD_ASSIGN_OR_RETURN(const Tensor tensor, folder_.Read(k, spec.name, reference_.pool()));
      CPSHARD_ASSIGN_OR_RETURN(restated,
                               Restated(tensor, spec.dtype, spec.dims, reference_.pool()));
    }
    if (!restated) {
      read.odd = k;
      return read;
    }
    read.theirs.push_back(*std::move(restated));
  }
  return read;
}

absl::Status Comparison::CompareParts(StreamParts& parts, StreamFinding& finding) const {
  CPSHARD_ASSIGN_OR_RETURN(Read read, ReadLike(parts.ours));
  if (read.odd) return ExplainOdd(parts, *read.odd, finding);
  parts.theirs = std::move(read.theirs);
  std::pair<size_t, int64_t> lowest;
  for (size_t k = 0; k < parts.ours.size(); ++k) {
    std::optional<int64_t> first;
    const RankCount count =
        CountMismatches(reference_.ranks()[k], parts.ours[k], parts.theirs[k], first);
    if (!first) continue;
    if (finding.differing.empty()) lowest = {k, *first};
    finding.differing.push_back(count);
  }
  if (finding.differing.empty()) {
    if (!finding.theirs) return absl::OkStatus();
    finding.verdict = Verdict::kDifferent;
    finding.cause = CauseOfSpec(*finding.theirs, finding.ours);
    return absl::OkStatus();
  }
  finding.verdict = Verdict::kDifferent;
  CPSHARD_ASSIGN_OR_RETURN(std::vector<Cause> causes, CausesInRanks(reference_, parts));
  const bool other_ranks = !causes.empty();
  // Positions made after the cut are alike on all ranks: one rank's may be ours of another.
  if (!other_ranks || parts.stream->name == "position_ids") {
    CPSHARD_ASSIGN_OR_RETURN(const std::optional<Cause> cause, CauseInValues(reference_, parts));
    if (cause && (!other_ranks || cause->code == "positions_of_slots")) {
      causes.insert(causes.begin(), *cause);
    }
  }
  if (!causes.empty()) {
    finding.cause = causes.front();
    finding.other_causes.assign(causes.begin() + 1, causes.end());
  }
  CPSHARD_ASSIGN_OR_RETURN(finding.first,
                           Explained(parts, lowest.first, lowest.second, other_ranks));
  return absl::OkStatus();
}

// Of a part that cannot be set against ours element by element.
absl::Status Comparison::ExplainOdd(const StreamParts& parts, size_t k,
                                    StreamFinding& finding) const {
  const std::string& name = parts.stream->name;
  finding.verdict = Verdict::kDifferent;
  finding.theirs = *folder_.Find(k, name);
  CPSHARD_ASSIGN_OR_RETURN(const Tensor theirs, folder_.Read(k, name, reference_.pool()));
  CPSHARD_ASSIGN_OR_RETURN(
      finding.cause,
      CauseInLength(reference_, *parts.stream, reference_.ranks()[k], parts.ours[k], theirs));
  int64_t alike = 0;
  for (size_t other = 0; other < parts.ours.size(); ++other) {
    if (*folder_.Find(other, name) == *finding.theirs) ++alike;
  }
  const std::string who = alike == 1 ? "" : absl::StrCat(" (", alike, " ranks have this shape)");
  finding.cause->text =
      absl::StrCat("rank ", reference_.ranks()[k], who, ": ", finding.cause->text);
  return absl::OkStatus();
}

absl::StatusOr<FirstDifference> Comparison::Explained(const StreamParts& parts, size_t k,
                                                      int64_t element, bool other_ranks) const {
  const StreamPlan& stream = *parts.stream;
  const ElementTexts texts = TextsOf(parts.ours[k], parts.theirs[k], element);
  FirstDifference first;
  first.rank = reference_.ranks()[k];
  first.index = Unraveled(parts.ours[k].spec.dims, element);
  first.expected = texts.expected;
  first.found = texts.found;
  if (stream.extent == Extent::kWhole || stream.layout != kTokens) return first;
  const ElementPlace at = StreamAxes(reference_.plan(), stream).At(first.rank, element);
  if (!reference_.Has(at.column)) return first;
  OddElement odd{&stream, first.rank, &parts.ours[k],           &parts.theirs[k],
                 element, at,         reference_.At(at.column), other_ranks};
  if (stream.extent == Extent::kLocal) {
    std::erase_if(odd.place.place.held,
                  [&](const RankSlot& slot) { return slot.rank != first.rank; });
  }
  first.place = odd.place;
  CPSHARD_ASSIGN_OR_RETURN(first.meaning, MeaningOf(reference_, labels_, odd));
  return first;
}

}  // namespace cpshard::verify
