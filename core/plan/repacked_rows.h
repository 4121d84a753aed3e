// Packed rows laid out anew, every document widened to a multiple (contract 4.8, 4.9). Used by
// layouts/*.cc only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/plan/plan.h"
#include "core/plan/token_rows.h"

namespace cpshard {

// Where a document goes: `real` source columns from `source` on, then padding, together `width`
// columns from padded column `start` on.
struct PlacedDocument {
  int64_t id = 0;  // 1-based
  int64_t source = 0, real = 0;
  int64_t start = 0, width = 0;
};

using PlacedRow = std::vector<PlacedDocument>;

// Rows of a batch that is laid out anew: each has maps of its own.
inline constexpr int64_t kMaxPlacedRows = int64_t{1} << 18;

// InvalidArgument: the batch has no rows, or more than that.
absl::Status CheckPlacedRows(const TokenRows& rows);

// Columns that the row's documents take side by side.
int64_t WidthOf(const PlacedRow& row);

// Puts `document` behind the others, widened to a multiple of `multiple`. InvalidArgument: the row
// would be beyond 64 bits; `what` names the multiple.
absl::Status Place(PlacedDocument document, int64_t multiple, absl::string_view what,
                   PlacedRow& row);

// Whose the padding inside a document is: its own (it has the id, positions go on) or nobody's (id
// and position 0).
enum class InnerPadding { kOfTheDocument, kOfNobody };

class RepackedRows {
 public:
  // `row_len` columns are laid out, from there on to `padded_len` rows are padded as contract 4.2
  // pads them: positions go on from the column before. Precondition: every row's width <= row_len
  // <= padded_len.
  RepackedRows(std::vector<PlacedRow> rows, InnerPadding padding, int64_t row_len,
               int64_t padded_len);

  int64_t row_len() const { return row_len_; }
  int64_t padded_len() const { return padded_len_; }

  // One placement per row; without partition and report.
  LayoutPlan Layout(const TokenRows& rows) const;

  // Streams over padded columns, [B, S] before placement: position_ids and packed_seq_ids i64, and
  // a bool one called `name` that is `on_padding` where there is no token.
  StreamPlan Positions(const TokenRows& rows) const;
  StreamPlan Ids(const TokenRows& rows) const;
  StreamPlan Mask(absl::string_view name, bool on_padding, const TokenRows& rows) const;

 private:
  template <typename InDocument>
  StreamPlan Emit(absl::string_view name, DType dtype, const TokenRows& rows, int64_t tail,
                  InDocument in_document) const;

  std::vector<PlacedRow> rows_;
  InnerPadding padding_;
  int64_t row_len_, padded_len_;
};

}  // namespace cpshard
