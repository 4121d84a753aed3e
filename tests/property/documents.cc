#include "tests/property/documents.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/oracle/tensors.h"

namespace cpshard::property {
namespace {

using Lengths = std::vector<int64_t>;

// How much of its padded length a document is.
enum class Style { kFull, kAny, kLastShort };

Row DrawRow(int64_t length, int64_t block, Rng& rng) {
  Row row;
  int64_t left = length / block;
  for (int64_t more = rng.Below(4); more > 0; --more) {
    const int64_t blocks =
        rng.OneIn(3) ? rng.Below(2) : rng.Below(left + 1);  // often empty or small
    row.padded.push_back(std::min(blocks, left) * block);
    left -= row.padded.back() / block;
  }
  row.padded.push_back(left * block + length % block);
  row.real = row.padded;
  return row;
}

void LeaveOutEmptyOnes(Row& row) {
  std::erase(row.padded, 0);
  row.real = row.padded;
}

void ShortenDocuments(Style style, bool is_last, Rng& rng, Row& row) {
  for (size_t i = 0; i < row.real.size(); ++i) {
    const bool short_one =
        style == Style::kAny || (style == Style::kLastShort && is_last && i + 1 == row.real.size());
    if (short_one) row.real[i] = rng.Below(row.padded[i] + 1);
  }
}

// The last row of a chunk may end early.
void ShortenTheLastRow(bool fill, Style style, bool is_only_row, Rng& rng, Row& row) {
  if (fill && style == Style::kAny) return;  // nothing would absorb the tail
  if (!fill && !is_only_row && rng.OneIn(4)) {
    row = {};
    return;
  }
  row.padded.back() -= rng.Below(row.padded.back() + 1);
  row.real.back() = std::min(row.real.back(), row.padded.back());
}

// The lengths in order, sentinels in any of the places between.
Lengths Spread(const Lengths& lengths, int64_t places, Rng& rng) {
  Lengths out;
  size_t next = 0;
  for (int64_t place = 0; place < places; ++place) {
    const auto left = static_cast<int64_t>(lengths.size() - next);
    out.push_back(rng.Below(places - place) < left ? lengths[next++] : kSentinel);
  }
  return out;
}

oracle::Tensor LengthsTensor(const std::vector<Lengths>& rows, const std::string& dtype) {
  const auto places = static_cast<int64_t>(rows.front().size());
  Lengths values;
  for (const Lengths& row : rows) values.insert(values.end(), row.begin(), row.end());
  return oracle::FromIntegers(dtype, {static_cast<int64_t>(rows.size()), places}, values);
}

void SendSpread(const std::vector<Row>& rows, Rng& rng, Sample& sample) {
  size_t places = 1;
  for (const Row& row : rows) places = std::max(places, row.real.size());
  places += rng.Below(3);
  constexpr const char* kDTypes[] = {"i64", "i64", "i32", "i16"};
  for (const bool padded : {false, true}) {
    std::vector<Lengths> spread;
    for (const Row& row : rows) {
      spread.push_back(Spread(padded ? row.padded : row.real, static_cast<int64_t>(places), rng));
    }
    oracle::Tensor lengths = LengthsTensor(spread, kDTypes[rng.Below(std::size(kDTypes))]);
    if (rows.size() == 1 && rng.OneIn(3)) lengths.dims.erase(lengths.dims.begin());
    sample.streams[padded ? "seq_lens_padded" : "seq_lens"] = std::move(lengths);
  }
}

// Contract 5.4: without lengths the pads are told by their value. They end the last chunk.
void SendPadIds(const Point& point, Rng& rng, Sample& sample) {
  constexpr const char* kDTypes[] = {"i64", "i32", "i16", "i8", "u8", "bool"};
  const int64_t tokens = point.rows * point.length;
  const int64_t real = tokens - rng.Below(point.length + 1);
  const std::string dtype = kDTypes[rng.Below(std::size(kDTypes))];
  const bool is_bool = dtype == "bool";
  sample.padding_token_id = is_bool ? 0 : 7;
  Lengths ids;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(i < real ? (is_bool ? 1 : 10 + i % 90) : *sample.padding_token_id);
  }
  std::vector<int64_t> dims = {point.rows, point.length};
  if (rng.OneIn(4)) dims.push_back(1);
  sample.streams["input_ids"] = oracle::FromIntegers(dtype, dims, ids);
}

}  // namespace

void SendLengths(const std::vector<Row>& rows, int64_t places, const std::string& dtype,
                 Sample& sample) {
  std::vector<Lengths> real, padded;
  for (const Row& row : rows) {
    real.push_back(row.real);
    real.back().resize(places, kSentinel);
    padded.push_back(row.padded);
    padded.back().resize(places, kSentinel);
  }
  sample.streams["seq_lens"] = LengthsTensor(real, dtype);
  sample.streams["seq_lens_padded"] = LengthsTensor(padded, dtype);
}

void PutDocuments(const Point& point, const DocumentRules& rules, Rng& rng, Sample& sample) {
  if (rng.OneIn(2)) sample.qkv_format = "thd";
  if (point.rows == 0) return;
  if (!rules.needs_lengths && rng.OneIn(10)) {
    SendPadIds(point, rng, sample);
    if (rng.OneIn(2)) return;
    sample.streams["seq_lens_padded"] = oracle::FromIntegers("i64", {1}, {3});  // nobody reads it
    return;
  }
  constexpr Style kStyles[] = {Style::kFull, Style::kAny, Style::kAny, Style::kLastShort};
  const Style style = kStyles[rng.Below(std::size(kStyles))];
  const bool short_tail = rng.OneIn(4) && !rules.strict;
  const int64_t chunk_rows = std::max<int64_t>(point.rows / rules.num_chunks, 1);
  std::vector<Row> rows;
  for (int64_t b = 0; b < point.rows; ++b) {
    const bool is_last = b % chunk_rows == chunk_rows - 1;
    rows.push_back(DrawRow(point.length, rules.block, rng));
    if (rules.strict) LeaveOutEmptyOnes(rows.back());
    ShortenDocuments(style, is_last, rng, rows.back());
    if (is_last && short_tail) {
      ShortenTheLastRow(rules.fill, style, chunk_rows == 1, rng, rows.back());
    }
  }
  SendSpread(rows, rng, sample);
  const bool no_padded = style == Style::kFull && (!rules.fill || !short_tail) && rng.OneIn(3);
  if (no_padded) sample.streams.erase("seq_lens_padded");
}

void PutRowDocuments(const Point& point, Rng& rng, Sample& sample) {
  if (point.rows == 0) return;
  if (rng.OneIn(2)) sample.qkv_format = "thd";
  const Style style = rng.OneIn(3) ? Style::kFull : Style::kAny;
  std::vector<Row> rows;
  size_t places = 1;
  for (int64_t b = 0; b < point.rows; ++b) {
    rows.push_back(DrawRow(point.length, 1, rng));
    Row& row = rows.back();
    ShortenDocuments(style, /*is_last=*/false, rng, row);
    if (rng.OneIn(3)) {
      row.padded.back() = row.real.back();  // the row ends early
    }
    for (size_t i = 0; i < row.real.size(); ++i) {
      if (row.real[i] == 0) row.padded[i] = 0;
    }
    if (rng.OneIn(3)) {
      const auto at = static_cast<int64_t>(rng.Below(row.real.size() + 1));
      row.real.insert(row.real.begin() + at, kSentinel);
      row.padded.insert(row.padded.begin() + at, kSentinel);
    }
    places = std::max(places, row.real.size());
  }
  SendLengths(rows, static_cast<int64_t>(places) + rng.Below(2), rng.OneIn(2) ? "i64" : "i32",
              sample);
  if (rng.OneIn(4)) sample.streams.erase("seq_lens_padded");
}

}  // namespace cpshard::property
