// Lengths of the documents that rows are packed with, as the streams seq_lens and seq_lens_padded
// state them (contract 5.1, 5.3, 5.7, decisions D5 and D8). Used by layouts/*.cc and what
// they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/spec.h"
#include "core/plan/token_rows.h"
#include "core/plan/value_view.h"

namespace cpshard {

inline constexpr int64_t kNoDocument = -1000;  // the sentinel: an unused place in a row's lengths

// Entries of lengths, or rows where there are more of them, times ranks. What a plan of packed rows
// takes in memory grows with all of them.
inline constexpr int64_t kMaxDocumentsTimesRanks = int64_t{1} << 22;

// `real` tokens and then padding, `padded` columns in all. Both may be 0. Where only one of the two
// was sent, both are that.
struct Document {
  int64_t real = 0, padded = 0;
  friend bool operator==(const Document&, const Document&) = default;
};

// The documents of some consecutive rows.
struct PackedRows {
  std::vector<Document> documents;
  std::vector<size_t> row_ends;  // per row: documents before and in it
  int64_t first_row = 0;         // of the batch, for messages

  int64_t num_rows() const { return static_cast<int64_t>(row_ends.size()); }
};

class PackedLengths {
 public:
  // The names of the streams that Of reads; the batch has them as tensors.
  static std::vector<std::string> Needs(const BatchSpec& spec);

  // Precondition: `values` holds what Needs named; it must outlive the object. InvalidArgument:
  // neither stream is there; one is not i16, i32 or i64 (narrower ones cannot hold the sentinel:
  // the reference would take another number for it), or not [B, n] (of one row [n] will do), or has
  // more entries or rows than a plan can take.
  static absl::StatusOr<PackedLengths> Of(const BatchSpec& spec, const PlanValues& values,
                                          const TokenRows& rows);

  // The documents of rows first ... first+count-1. InvalidArgument, naming stream, row and numbers:
  // a negative length other than the sentinel, unequal counts of real and padded lengths in a row,
  // a real length over its padded one.
  absl::StatusOr<PackedRows> Rows(int64_t first, int64_t count) const;

  // "seq_lens_padded", or "seq_lens" where none were sent: what says how wide documents are.
  absl::string_view padded_name() const { return padded_ ? "seq_lens_padded" : "seq_lens"; }
  bool padded_sent() const { return padded_.has_value(); }

 private:
  absl::Status AppendRow(int64_t row, std::vector<Document>& documents) const;

  std::optional<ValueView> real_, padded_;  // one of them at least
};

// Whether the documents of the last row must reach its end.
enum class LastRow {
  kMayBeShort,  // what is left is padding
  kMustFill,    // ... unless absorption gives it to the last document
};

// Cumulative lengths of a stream of packed rows (contract 5.3), each [documents + 1], from 0 on.
struct CumulativeLengths {
  std::vector<int64_t> real;
  std::vector<int64_t> padded;  // empty: not emitted
  // What the stream is cut by: padded if emitted, else real.
  const std::vector<int64_t>& boundaries() const { return padded.empty() ? real : padded; }
};

// The largest of the documents.
int64_t MaxSeqlen(const std::vector<int64_t>& cumulative);

// InvalidArgument, naming stream, row and numbers: there is no document at all; the padded lengths
// of a row do not sum to `length` (S), where they must: in every row but the last, and there as
// `last_row` says (D5).
// Absorption: where real and padded lengths differ in the last document at most, and the real ones
// end before the stream does, the last document is extended to the end of the stream.
absl::StatusOr<CumulativeLengths> Accumulate(const PackedRows& rows, const PackedLengths& lengths,
                                             int64_t length, LastRow last_row);

// InvalidArgument, naming the document, its row and its length: one cannot be cut into `pieces`
// equal pieces (D5: 2 * cp_size of them). `stream`: where the lengths come from.
absl::Status CheckPieces(const PackedRows& rows, const std::vector<int64_t>& boundaries,
                         absl::string_view stream, int64_t pieces);

}  // namespace cpshard
