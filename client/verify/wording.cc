#include "client/verify/wording.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cpshard::verify {

std::string RanksText(absl::Span<const int64_t> ranks) {
  constexpr size_t kMost = 8;
  std::vector<std::string> stretches;
  for (size_t begin = 0, end; begin < ranks.size(); begin = end) {
    for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    stretches.push_back(end == begin + 1 ? absl::StrCat(ranks[begin])
                                         : absl::StrCat(ranks[begin], "-", ranks[end - 1]));
  }
  if (stretches.size() > kMost) {
    stretches.resize(kMost);
    stretches.push_back("...");
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(stretches, ", "));
}

std::string TokenText(const Explanation& place) {
  const TokenPlace& at = place.place;
  if (place.document && place.document->is_padding()) {
    return absl::StrCat("padding of document ", place.document->index, " of row ",
                        at.source ? at.source->row : at.padded->row);
  }
  if (!at.source) return "padding";
  return absl::StrCat("token ", at.source->token, " of row ", at.source->row);
}

std::string HolderText(const TokenPlace& place) {
  if (place.held.empty()) return "no rank";
  if (place.held.size() > 1) return "every rank";
  return absl::StrCat("rank ", place.held[0].rank, " slot ", place.held[0].slot);
}

std::string PlaceText(const Explanation& place) {
  std::string text = TokenText(place);
  if (place.document && !place.document->is_padding()) {
    absl::StrAppend(&text, ", document ", place.document->index, " position ",
                    place.document->position);
  }
  if (place.place.padded) absl::StrAppend(&text, ", padded column ", place.place.padded->column);
  if (place.place.padded && place.place.padded->chunk > 0) {
    absl::StrAppend(&text, " of chunk ", place.place.padded->chunk);
  }
  return text;
}

}  // namespace cpshard::verify
