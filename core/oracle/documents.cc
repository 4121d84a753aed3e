#include "core/oracle/documents.h"

#include <algorithm>
#include <cstddef>

#include "core/oracle/tensors.h"
#include "core/oracle/values.h"

namespace cpshard::oracle {
namespace {

std::vector<int64_t> Cumulative(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> boundaries = {0};
  for (const int64_t length : lengths) boundaries.push_back(boundaries.back() + length);
  return boundaries;
}

// D5 for one row: as many padded lengths as real ones, none shorter, and no more than the row
// holds. Sums stay small, as none is added that would exceed the row. nullopt = refused.
std::optional<int64_t> SumOfRow(const std::vector<int64_t>& real, const std::vector<int64_t>& slots,
                                int64_t row_len) {
  if (real.size() != slots.size()) return std::nullopt;
  int64_t sum = 0;
  for (size_t i = 0; i < real.size(); ++i) {
    if (real[i] > slots[i] || slots[i] > row_len - sum) return std::nullopt;
    sum += slots[i];
  }
  return sum;
}

// 5.3: padding after the last document alone becomes part of it, up to T whatever cup[-1] is.
void Absorb(int64_t tokens, Documents& documents) {
  if (!documents.cu_seqlens_padded) return;
  std::vector<int64_t>& cu = documents.cu_seqlens;
  std::vector<int64_t>& cup = *documents.cu_seqlens_padded;
  if (cu.size() != cup.size() || cu.size() <= 1) return;
  for (size_t i = 0; i + 1 < cu.size(); ++i) {
    if (cu[i] != cup[i]) return;
  }
  if (cu.back() >= tokens) return;
  cu.back() = tokens;
  cup = cu;
}

// 5.7, D5: at cp > 1 the documents tile the stream, each in multiples of 2 * cp.
bool CanBeCut(const std::vector<int64_t>& boundaries, int64_t tokens, int64_t cp_size) {
  for (size_t i = 1; i < boundaries.size(); ++i) {
    if ((boundaries[i] - boundaries[i - 1]) % (2 * cp_size) != 0) return false;
  }
  return boundaries.back() == tokens;
}

}  // namespace

bool AreLengths(const Tensor& tensor, int64_t rows) {
  // 8 bits cannot hold the sentinel: the reference would take another number for it.
  if (tensor.dtype != "i16" && tensor.dtype != "i32" && tensor.dtype != "i64") return false;
  if (tensor.dims.size() == 1) return rows == 1;
  return tensor.dims.size() == 2 && tensor.dims[0] == rows;
}

std::optional<std::vector<int64_t>> RowLengths(const Tensor& lengths, int64_t row) {
  const std::vector<int64_t> all = Integers(lengths);
  const int64_t places = lengths.dims.back();
  std::vector<int64_t> out;
  for (int64_t i = row * places; i < (row + 1) * places; ++i) {
    if (all[i] == kSentinel) continue;
    if (all[i] < 0) return std::nullopt;
    out.push_back(all[i]);
  }
  return out;
}

std::optional<Documents> ReadDocuments(const Batch& batch, const RowRange& range, int64_t cp_size) {
  const bool has_padded = batch.contains("seq_lens_padded");
  const Tensor& reals = batch.at("seq_lens");
  const Tensor& padded = has_padded ? batch.at("seq_lens_padded") : reals;
  Documents documents;
  for (int64_t row = 0; row < range.rows; ++row) {
    const auto real = RowLengths(reals, range.first_row + row);
    const auto slots = RowLengths(padded, range.first_row + row);
    if (!real || !slots) return std::nullopt;
    const std::optional<int64_t> sum = SumOfRow(*real, *slots, range.row_len);
    if (!sum) return std::nullopt;
    const bool is_last = row == range.rows - 1;
    if (*sum < range.row_len && !is_last) return std::nullopt;
    // What absorption extends must be a document of the last row.
    if (cp_size > 1 && real->empty()) return std::nullopt;
    documents.real.insert(documents.real.end(), real->begin(), real->end());
    documents.slots.insert(documents.slots.end(), slots->begin(), slots->end());
  }
  if (documents.real.empty()) return std::nullopt;
  documents.cu_seqlens = Cumulative(documents.real);
  if (has_padded) documents.cu_seqlens_padded = Cumulative(documents.slots);
  Absorb(range.tokens(), documents);
  const std::vector<int64_t>& cut_at = documents.cu_seqlens_padded.value_or(documents.cu_seqlens);
  if (cp_size > 1 && !CanBeCut(cut_at, range.tokens(), cp_size)) return std::nullopt;
  return documents;
}

std::vector<int64_t> PaddingMaskOf(const Documents& documents, int64_t tokens) {
  const std::vector<int64_t> starts = Cumulative(documents.slots);
  const size_t last = documents.real.size() - 1;
  std::vector<int64_t> mask;
  for (int64_t t = 0; t < tokens; ++t) {
    size_t segment = 0;
    while (segment < last && starts[segment + 1] <= t) ++segment;
    mask.push_back(t - starts[segment] >= documents.real[segment] || t >= starts.back());
  }
  return mask;
}

int64_t LongestBetween(const std::vector<int64_t>& boundaries) {
  int64_t longest = 0;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    longest = std::max(longest, boundaries[i] - boundaries[i - 1]);
  }
  return longest;
}

std::vector<int64_t> TeColumns(const std::vector<int64_t>& boundaries, int64_t tokens,
                               int64_t cp_size, int64_t rank) {
  std::vector<int64_t> d;
  for (const int64_t boundary : boundaries) d.push_back(boundary / cp_size);
  const size_t last = d.size() - 2;
  std::vector<int64_t> columns;
  for (int64_t t = 0; t < tokens / cp_size; ++t) {
    size_t s = 0;
    while (s < last && d[s + 1] <= t) ++s;
    const int64_t i = t - d[s];
    const int64_t half = (d[s + 1] - d[s]) / 2;
    const int64_t chunk = i < half ? rank : 2 * (cp_size - 1) - rank;
    columns.push_back(i + d[s] * cp_size + half * chunk);
  }
  return columns;
}

}  // namespace cpshard::oracle
