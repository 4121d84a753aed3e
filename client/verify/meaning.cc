#include "client/verify/meaning.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client/verify/elements.h"
#include "client/verify/wording.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

std::string MeaningInMask(const std::string& name, int64_t found) {
  const bool says_padding = name == "padding_mask" ? found != 0 : found == 0;
  return says_padding ? "a token counted as padding"
                      : "padding counted as real: the column holds no token";
}

std::string MeaningOfPosition(const OddElement& odd, int64_t found) {
  if (!odd.place.place.source) return "";
  const bool counts_row = found == odd.at.column.column || found == odd.place.place.source->token;
  if (counts_row && odd.place.document && odd.place.document->position == 0) {
    return absl::StrCat("the position in the row: it goes on across the start of document ",
                        odd.place.document->index);
  }
  if (counts_row) return "the position in the row, not in the document";
  if (found == odd.at.slot) return "the slot in the shard: positions were made after the cut";
  return "";
}

// A stretch of their slots from the odd one on, along a run of our columns: several values together
// tell places apart that one value does not.
int64_t StretchOf(const Reference& reference, const OddElement& odd) {
  constexpr int64_t kMost = 16;
  if (odd.stream->extent != Extent::kLocal) return 1;
  const IndexMap& slots = reference.plan().chunks[odd.at.column.chunk].partition[odd.rank];
  const size_t run = slots.RunAt(odd.at.slot);
  return std::min(kMost, slots.starts()[run] + slots.runs()[run].length - odd.at.slot);
}

struct Match {
  int64_t length = 0;  // of the stretch, in slots
  int64_t places = 0;  // equally long ones
  PaddedColumn column;
};

// Where the stretch stands in our stream before the cut: the longest match, of several the nearest.
Match FindStretch(const Reference& reference, const OddElement& odd, const Tensor& uncut) {
  const StreamAxes axes(reference.plan(), *odd.stream);
  const int64_t item = ItemSize(odd.stream->dtype);
  const int64_t step = axes.inner() * item;
  const std::byte* theirs = odd.theirs->buffer.data() + odd.element * item;
  const int64_t most = StretchOf(reference, odd);
  Match best;
  const auto distance = [&](const PaddedColumn& at) {
    return std::tuple(at.row != odd.at.column.row, std::abs(at.column - odd.at.column.column));
  };
  for (int64_t chunk = 0; chunk < axes.chunks(); ++chunk) {
    for (int64_t outer = 0; outer < axes.outer(); ++outer) {
      if (!axes.SameLane(outer, odd.at.outer)) continue;
      for (int64_t column = 0; column < axes.columns(); ++column) {
        const ElementPlace place{outer, {chunk, axes.RowOf(outer), column}, 0, odd.at.inner};
        const std::byte* ours = uncut.buffer.data() + axes.InUncut(place) * item;
        const int64_t end = std::min(most, axes.columns() - column);
        int64_t length = 0;
        while (length < end &&
               std::memcmp(ours + length * step, theirs + length * step, item) == 0) {
          ++length;
        }
        if (length == 0 || length < best.length) continue;
        if (length > best.length) best = {length, 0, place.column};
        ++best.places;
        if (distance(place.column) < distance(best.column)) best.column = place.column;
      }
    }
  }
  return best;
}

absl::StatusOr<std::string> PlaceOfValue(const Reference& reference, const OddElement& odd) {
  CPSHARD_ASSIGN_OR_RETURN(const Tensor uncut, reference.Uncut(*odd.stream));
  const Match match = FindStretch(reference, odd, uncut);
  if (match.places == 0) return std::string("a value that our stream has nowhere");
  if (match.places > 1 && odd.other_ranks) return std::string();
  const Explanation place = reference.At(match.column);
  std::string text =
      absl::StrCat("that is ", TokenText(place), ", which belongs to ", HolderText(place.place));
  if (match.length > 1) {
    absl::StrAppend(&text, ", and the next ", match.length - 1, " slots go on from there");
  }
  if (match.places > 1) absl::StrAppend(&text, " (the nearest of ", match.places, " such places)");
  return text;
}

}  // namespace

absl::StatusOr<std::string> MeaningOf(const Reference& reference, const Labels* labels,
                                      const OddElement& odd) {
  const std::string& name = odd.stream->name;
  const std::optional<int64_t> found = IntegerAt(*odd.theirs, odd.element);
  const bool padding = reference.IsPadding(odd.at.column);
  if (found && (name == "padding_mask" || name == "attention_mask")) {
    return MeaningInMask(name, *found);
  }
  if (found && name == "labels") {
    if (padding) return std::string("a label on padding: the loss would count it");
    std::string meaning =
        labels == nullptr ? "" : MeaningOfLabel(reference, *labels, odd.place, *found);
    if (!meaning.empty()) return meaning;
  }
  if (padding) return std::string("another fill: the column holds no token");
  if (found && name == "position_ids") {
    std::string meaning = MeaningOfPosition(odd, *found);
    if (!meaning.empty()) return meaning;
  }
  if (odd.stream->dtype == DType::kBool) return std::string();
  if (found && name == "input_ids" && FillOf(*odd.stream) == found) {
    return std::string("the pad id, where a token belongs");
  }
  return PlaceOfValue(reference, odd);
}

}  // namespace cpshard::verify
