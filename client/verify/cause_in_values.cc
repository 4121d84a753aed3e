#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/verify/cause.h"
#include "client/verify/elements.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

std::string Elements(int64_t count) {
  return absl::StrCat(count, count == 1 ? " element" : " elements");
}

// Differing elements, by what theirs is. Padding is counted by itself: what stands there follows
// other rules.
struct Tally {
  int64_t padding = 0, tokens = 0;          // differing elements there
  int64_t ends = 0;                         // last tokens of documents
  int64_t set = 0, cleared = 0;             // 1 where ours is 0, 0 where ours is 1
  int64_t next = 0, previous = 0;           // ours, one column on or back
  int64_t column = 0, token = 0, slot = 0;  // the number of it

  int64_t all() const { return padding + tokens; }
};

class Tallying {
 public:
  Tallying(const Reference& reference, const StreamParts& parts, const Tensor& uncut)
      : reference_(reference),
        parts_(parts),
        uncut_(uncut),
        axes_(reference.plan(), *parts.stream) {}

  Tally Count() {
    for (size_t k = 0; k < parts_.ours.size(); ++k) {
      ForEachMismatch(parts_.ours[k], parts_.theirs[k], [&](int64_t element) { Add(k, element); });
    }
    return tally_;
  }

 private:
  void Add(size_t k, int64_t element) {
    const ElementPlace place = axes_.At(reference_.ranks()[k], element);
    AddMask(k, element);
    if (reference_.IsPadding(place.column)) {
      ++tally_.padding;
      return;
    }
    ++tally_.tokens;
    const DocumentSpan& document = *reference_.DocumentAt(place.column);
    if (place.column.column + 1 == document.begin + document.real) ++tally_.ends;
    if (IsOurs(place, 1, k, element)) ++tally_.next;
    if (IsOurs(place, -1, k, element)) ++tally_.previous;
    const std::optional<int64_t> found = IntegerAt(parts_.theirs[k], element);
    if (!found) return;
    const LayoutPlan& layout = axes_.layouts()[place.column.chunk];
    const int64_t source = layout.PlacementOf(place.column.row).At(place.column.column);
    const int64_t columns = layout.flattened_from ? layout.flattened_from->columns : 0;
    if (*found == place.column.column) ++tally_.column;
    if (*found == (columns > 0 ? source % columns : source)) ++tally_.token;
    if (*found == place.slot) ++tally_.slot;
  }

  void AddMask(size_t k, int64_t element) {
    const std::optional<int64_t> expected = IntegerAt(parts_.ours[k], element);
    const std::optional<int64_t> found = IntegerAt(parts_.theirs[k], element);
    if (expected == 0 && found == 1) ++tally_.set;
    if (expected == 1 && found == 0) ++tally_.cleared;
  }

  // Whether their element is ours of the column `step` further.
  bool IsOurs(ElementPlace place, int64_t step, size_t k, int64_t element) const {
    place.column.column += step;
    if (place.column.column < 0 || place.column.column >= axes_.columns()) return false;
    const int64_t item = ItemSize(parts_.stream->dtype);
    return std::memcmp(uncut_.buffer.data() + axes_.InUncut(place) * item,
                       parts_.theirs[k].buffer.data() + element * item, item) == 0;
  }

  const Reference& reference_;
  const StreamParts& parts_;
  const Tensor& uncut_;
  const StreamAxes axes_;
  Tally tally_;
};

int64_t ElementsOf(const std::vector<Tensor>& parts) {
  int64_t elements = 0;
  for (const Tensor& part : parts) elements += NumElements(part.spec);
  return elements;
}

std::optional<Cause> CauseOfMask(const std::string& name, const Tally& tally, int64_t elements) {
  if (tally.set + tally.cleared != tally.all()) return std::nullopt;
  if (tally.all() == elements && elements > 1) {
    return Cause{"inverted", "inverted: true where ours is false, everywhere"};
  }
  const bool masks_padding = name == "padding_mask";
  if (!masks_padding && name != "attention_mask") return std::nullopt;
  const int64_t made_real = masks_padding ? tally.cleared : tally.set;
  if (made_real == tally.all()) {
    return Cause{"padding",
                 absl::StrCat("padding counted as real: ", Elements(made_real), " not masked")};
  }
  if (made_real == 0) {
    return Cause{"padding",
                 absl::StrCat("tokens counted as padding: ", Elements(tally.all()), " masked")};
  }
  return std::nullopt;
}

std::optional<Cause> CauseOfPositions(const Tally& tally) {
  if (tally.column == tally.tokens || tally.token == tally.tokens) {
    return Cause{"positions_of_row",
                 absl::StrCat("positions count the row, not each of its documents: ",
                              Elements(tally.tokens))};
  }
  if (tally.slot == tally.tokens) {
    return Cause{"positions_of_slots",
                 "positions count the slots of each shard: they were made after the cut"};
  }
  return std::nullopt;
}

std::optional<Cause> CauseOfShift(const Tally& tally) {
  for (const auto& [count, where] :
       {std::pair(tally.next, "next"), std::pair(tally.previous, "previous")}) {
    if (count < 2 || 4 * count < 3 * tally.tokens) continue;
    return Cause{"shifted",
                 absl::StrCat("shifted by one: ", count, " of ", tally.tokens,
                              " differing tokens have what is ours of the ", where, " column")};
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<Cause>> CauseInValues(const Reference& reference,
                                                   const StreamParts& parts) {
  const StreamPlan& stream = *parts.stream;
  if (stream.extent == Extent::kWhole || stream.layout != kTokens) return std::nullopt;
  CPSHARD_ASSIGN_OR_RETURN(const Tensor uncut, reference.Uncut(stream));
  const Tally tally = Tallying(reference, parts, uncut).Count();
  if (auto cause = CauseOfMask(stream.name, tally, ElementsOf(parts.ours))) return cause;
  if (tally.tokens == 0) {
    return Cause{"padding", absl::StrCat("only padding differs: ", Elements(tally.padding),
                                         " on columns without a token")};
  }
  if (tally.ends == tally.tokens && tally.padding == 0) {
    return Cause{"document_ends", absl::StrCat("only the last tokens of documents differ: ",
                                               Elements(tally.tokens))};
  }
  if (stream.name == "position_ids") {
    if (auto cause = CauseOfPositions(tally)) return cause;
  }
  if (stream.dtype == DType::kBool) return std::nullopt;
  return CauseOfShift(tally);
}

}  // namespace cpshard::verify
