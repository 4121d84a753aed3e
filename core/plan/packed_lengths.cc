#include "core/plan/packed_lengths.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::string_view kReal = "seq_lens";
constexpr absl::string_view kPadded = "seq_lens_padded";

absl::StatusOr<ValueView> Lengths(absl::string_view name, const BatchSpec& spec,
                                  const PlanValues& values, const TokenRows& rows) {
  const TensorSpec* tensor = spec.FindTensor(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name, "' is a scalar; the layout needs lengths as a tensor [", rows.rows, ", n]"));
  }
  const std::string stream =
      absl::StrCat("stream '", name, "' ", DTypeName(tensor->dtype), DimsString(tensor->dims));
  if (!IsInteger(tensor->dtype) || ItemSize(tensor->dtype) < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        stream, " holds lengths of documents; send i16, i32 or i64, which can hold ", kNoDocument));
  }
  const bool fits = tensor->dims.size() == 2 ? tensor->dims[0] == rows.rows
                                             : tensor->dims.size() == 1 && rows.rows == 1;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(stream, " does not list the documents of ",
                                                   rows.rows, " rows; send [", rows.rows,
                                                   ", n], unused places ", kNoDocument));
  }
  const int64_t ranks = spec.num_ranks();
  const int64_t entries = std::max(NumElements(*tensor), rows.rows);
  if (entries > kMaxDocumentsTimesRanks / ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        stream, " has ", NumElements(*tensor), " entries in ", rows.rows, " rows for ", ranks,
        " ranks; entries, or rows, times ranks may be ", kMaxDocumentsTimesRanks,
        ": send fewer documents in a batch, or fewer unused places"));
  }
  return values.at(std::string(name));
}

// The lengths of a row of `view`, [rows, n] or [n].
int64_t Width(const ValueView& view) { return view.dims().back(); }

absl::Status Negative(absl::string_view name, int64_t row, int64_t entry, int64_t length) {
  return absl::InvalidArgumentError(
      absl::StrCat("stream '", name, "' row ", row, ": entry ", entry, " is ", length,
                   "; a length is >= 0, an unused place ", kNoDocument));
}

size_t DocumentsBefore(const PackedRows& rows, int64_t row) {
  return row == 0 ? 0 : rows.row_ends[row - 1];
}

// The lengths of a row without its unused places.
absl::Status ReadRow(absl::string_view name, const ValueView& view, int64_t row,
                     std::vector<int64_t>& lengths) {
  lengths.reserve(Width(view));
  for (int64_t i = 0; i < Width(view); ++i) {
    const int64_t length = view[row * Width(view) + i];
    if (length == kNoDocument) continue;
    if (length < 0) return Negative(name, row, i, length);
    lengths.push_back(length);
  }
  return absl::OkStatus();
}

// `row` counts from rows.first_row on.
absl::Status WrongSum(const PackedRows& rows, const PackedLengths& lengths, int64_t row,
                      int64_t sum, int64_t length) {
  const bool has_documents = rows.row_ends[row] > DocumentsBefore(rows, row);
  const absl::string_view way_out =
      sum > length ? "shorten the documents, or send longer rows"
      : has_documents
          ? "documents must fill their row: pad its last one to the end of it, and the tokens too"
          : "documents must fill their row: list one, of real length 0 if it is all padding, or "
            "leave the row out";
  return absl::InvalidArgumentError(
      absl::StrCat("stream '", lengths.padded_name(), "' row ", rows.first_row + row,
                   ": its lengths sum to ", sum == INT64_MAX ? "at least " : "", sum,
                   sum > length ? ", more than S = " : ", not S = ", length, "; ", way_out));
}

// Sum of the padded lengths of a row; beyond 64 bits int64's largest.
int64_t RowSum(const PackedRows& rows, int64_t row) {
  int64_t sum = 0;
  for (size_t i = DocumentsBefore(rows, row); i < rows.row_ends[row]; ++i) {
    if (__builtin_add_overflow(sum, rows.documents[i].padded, &sum)) return INT64_MAX;
  }
  return sum;
}

// What is left of the last row after its documents; of the others nothing may be.
absl::StatusOr<int64_t> CheckSums(const PackedRows& rows, const PackedLengths& lengths,
                                  int64_t length) {
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    const int64_t sum = RowSum(rows, row);
    if (sum == length) continue;
    const bool last = row + 1 == rows.num_rows();
    if (sum < length && last) return length - sum;
    return WrongSum(rows, lengths, row, sum, length);
  }
  return 0;
}

std::vector<int64_t> Sums(const std::vector<Document>& documents, int64_t Document::*length) {
  std::vector<int64_t> sums = {0};
  sums.reserve(documents.size() + 1);
  for (const Document& document : documents) sums.push_back(sums.back() + document.*length);
  return sums;
}

}  // namespace

std::vector<std::string> PackedLengths::Needs(const BatchSpec& spec) {
  std::vector<std::string> needs;
  for (absl::string_view name : {kReal, kPadded}) {
    const TensorSpec* tensor = spec.FindTensor(name);
    if (tensor != nullptr && IsInteger(tensor->dtype)) needs.emplace_back(name);
  }
  return needs;
}

absl::StatusOr<PackedLengths> PackedLengths::Of(const BatchSpec& spec, const PlanValues& values,
                                                const TokenRows& rows) {
  PackedLengths lengths;
  if (spec.Has(kReal)) {
    CPSHARD_ASSIGN_OR_RETURN(lengths.real_, Lengths(kReal, spec, values, rows));
  }
  if (spec.Has(kPadded)) {
    CPSHARD_ASSIGN_OR_RETURN(lengths.padded_, Lengths(kPadded, spec, values, rows));
  }
  if (lengths.real_ || lengths.padded_) return lengths;
  return absl::InvalidArgumentError(
      absl::StrCat("the batch has no 'seq_lens': the lengths of its documents, [", rows.rows,
                   ", n], are needed"));
}

absl::StatusOr<PackedRows> PackedLengths::Rows(int64_t first, int64_t count) const {
  PackedRows rows;
  rows.first_row = first;
  rows.documents.reserve(count * Width(real_ ? *real_ : *padded_));
  for (int64_t row = first; row < first + count; ++row) {
    CPSHARD_RETURN_IF_ERROR(AppendRow(row, rows.documents));
    rows.row_ends.push_back(rows.documents.size());
  }
  return rows;
}

absl::Status PackedLengths::AppendRow(int64_t row, std::vector<Document>& documents) const {
  std::vector<int64_t> real, padded;
  if (real_) CPSHARD_RETURN_IF_ERROR(ReadRow(kReal, *real_, row, real));
  if (padded_) CPSHARD_RETURN_IF_ERROR(ReadRow(kPadded, *padded_, row, padded));
  if (real_ && padded_ && real.size() != padded.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "row ", row, ": 'seq_lens' has ", real.size(), " documents, 'seq_lens_padded' has ",
        padded.size(), "; both must list the same documents, unused places ", kNoDocument));
  }
  const std::vector<int64_t>& own = real_ ? real : padded;
  const std::vector<int64_t>& wide = padded_ ? padded : real;
  for (size_t i = 0; i < own.size(); ++i) {
    documents.push_back({own[i], wide[i]});
    if (own[i] <= wide[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("row ", row, ": document ", i, " has real length ", own[i],
                     " in 'seq_lens', over its padded length ", wide[i],
                     " in 'seq_lens_padded'; a padded length counts the real tokens too"));
  }
  return absl::OkStatus();
}

int64_t MaxSeqlen(const std::vector<int64_t>& cumulative) {
  int64_t longest = 0;
  for (size_t i = 1; i < cumulative.size(); ++i) {
    longest = std::max(longest, cumulative[i] - cumulative[i - 1]);
  }
  return longest;
}

absl::StatusOr<CumulativeLengths> Accumulate(const PackedRows& rows, const PackedLengths& lengths,
                                             int64_t length, LastRow last_row) {
  if (rows.documents.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream 'seq_lens' has no document in rows ", rows.first_row, " to ",
                     rows.first_row + rows.num_rows() - 1, ", only unused places (", kNoDocument,
                     "); leave such rows out of the batch"));
  }
  CPSHARD_ASSIGN_OR_RETURN(const int64_t left, CheckSums(rows, lengths, length));
  const std::vector<Document>& documents = rows.documents;
  const int64_t total = rows.num_rows() * length;
  CumulativeLengths sums;
  sums.real = Sums(documents, &Document::real);
  const bool only_the_last_is_padded =
      std::all_of(documents.begin(), documents.end() - 1,
                  [](const Document& document) { return document.real == document.padded; });
  const bool absorbs = lengths.padded_sent() && only_the_last_is_padded && sums.real.back() < total;
  if (left > 0 && last_row == LastRow::kMustFill) {
    const int64_t row = rows.num_rows() - 1;
    const bool row_has_a_document = documents.size() > DocumentsBefore(rows, row);
    if (!absorbs || !row_has_a_document) {
      return WrongSum(rows, lengths, row, length - left, length);
    }
  }
  if (absorbs) {
    sums.real.back() = total;
  } else if (lengths.padded_sent()) {
    sums.padded = Sums(documents, &Document::padded);
    if (sums.padded == sums.real) sums.padded.clear();
  }
  return sums;
}

absl::Status CheckPieces(const PackedRows& rows, const std::vector<int64_t>& boundaries,
                         absl::string_view stream, int64_t pieces) {
  int64_t row = 0;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    while (i >= rows.row_ends[row]) ++row;
    const int64_t length = boundaries[i + 1] - boundaries[i];
    if (length % pieces == 0) continue;
    const size_t before = DocumentsBefore(rows, row);
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", stream, "' row ", rows.first_row + row, ": document ", i - before,
                     " has padded length ", length, ", not a multiple of 2 * cp_size = ", pieces,
                     "; pad every document to one before packing"));
  }
  return absl::OkStatus();
}

}  // namespace cpshard
