// The packed documents of one chunk of rows (contract 5.3, 5.4, 5.7 and section 6).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/oracle/restatement.h"

namespace cpshard::oracle {

constexpr int64_t kSentinel = -1000;  // fills unused places of the lengths

// Rows first_row ... first_row + rows - 1 of a batch of S = row_len columns.
struct RowRange {
  int64_t first_row = 0, rows = 0, row_len = 0;
  int64_t tokens() const { return rows * row_len; }  // T
};

struct Documents {
  std::vector<int64_t> real;   // length of every document, row after row
  std::vector<int64_t> slots;  // the same with its padding; the real ones where no others were sent
  std::vector<int64_t> cu_seqlens;  // of the real lengths, last document absorbed (5.3)
  std::optional<std::vector<int64_t>> cu_seqlens_padded;  // where padded lengths were sent
};

// Whether a batch of `rows` rows can send its lengths like this: [B, n], or [n] where B = 1, of
// integers.
bool AreLengths(const Tensor& tensor, int64_t rows);

// The lengths of one row without its sentinels. nullopt = another negative one (D5). Precondition:
// AreLengths.
std::optional<std::vector<int64_t>> RowLengths(const Tensor& lengths, int64_t row);

// nullopt = decision D5 refuses the lengths, or there are none (5.4). Precondition: the batch has
// seq_lens, and what it has are lengths.
std::optional<Documents> ReadDocuments(const Batch& batch, const RowRange& range, int64_t cp_size);

// True = pad, for every slot of the stream (5.4).
std::vector<int64_t> PaddingMaskOf(const Documents& documents, int64_t tokens);

// The longest of the documents between `boundaries`.
int64_t LongestBetween(const std::vector<int64_t>& boundaries);

// Section 6, slot by slot: the columns of `rank` of `cp_size`.
std::vector<int64_t> TeColumns(const std::vector<int64_t>& boundaries, int64_t tokens,
                               int64_t cp_size, int64_t rank);

}  // namespace cpshard::oracle
