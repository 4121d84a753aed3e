#include <algorithm>
#include <iterator>
#include <utility>

#include "core/oracle/tensors.h"
#include "core/oracle/values.h"
#include "core/plan/dtype.h"
#include "tests/property/documents.h"
#include "tests/property/mutations.h"

namespace cpshard::property {
namespace {

using Values = std::vector<int64_t>;

const char* EitherName(Rng& rng) { return rng.OneIn(2) ? "seq_lens" : "seq_lens_padded"; }

// Values in i64 may be any.
void Store(const Values& values, oracle::Tensor& lengths) {
  lengths = oracle::FromIntegers("i64", lengths.dims, values);
}

int64_t AnyLength(int64_t old, Rng& rng) {
  const int64_t lengths[] = {-1,      -999,    -1001,     kSentinel, 0,         1,
                             old + 1, old - 1, old + 4,   old * 2,   INT32_MAX, int64_t{1} << 40,
                             old + 2, old - 2, INT64_MAX, INT64_MIN, old + 6,   4};
  return lengths[rng.Below(std::size(lengths))];
}

void ChangeAValue(Rng& rng, oracle::Tensor& lengths) {
  Values values = oracle::Integers(lengths);
  if (values.empty()) return;
  int64_t& value = values[rng.Below(values.size())];
  value = AnyLength(value, rng);
  Store(values, lengths);
}

void SwapTwoValues(Rng& rng, oracle::Tensor& lengths) {
  Values values = oracle::Integers(lengths);
  if (values.empty()) return;
  std::swap(values[rng.Below(values.size())], values[rng.Below(values.size())]);
  Store(values, lengths);
}

// The flat list of lengths stays what it is; the rows do not.
void MoveValuesBetweenRows(Rng& rng, oracle::Tensor& lengths) {
  Values values = oracle::Integers(lengths);
  if (values.empty()) return;
  const auto by = static_cast<int64_t>(1 + rng.Below(2));
  std::rotate(values.begin(), values.end() - std::min<int64_t>(by, values.size()), values.end());
  Store(values, lengths);
}

void Transpose(oracle::Tensor& lengths) {
  if (lengths.dims.size() != 2) return;
  const Values values = oracle::Integers(lengths);
  const int64_t rows = lengths.dims[0];
  const int64_t columns = lengths.dims[1];
  std::swap(lengths.dims[0], lengths.dims[1]);
  Values swapped;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) swapped.push_back(values[r * columns + c]);
  }
  Store(swapped, lengths);
}

// The same numbers, where the dtype can hold them.
void ChangeTheDType(Rng& rng, oracle::Tensor& lengths) {
  const std::string dtype(DTypeName(kAllDTypes[rng.Below(kAllDTypes.size())]));
  oracle::Tensor changed{.dtype = dtype, .dims = lengths.dims, .bytes = {}};
  for (const int64_t value : oracle::Integers(lengths)) {
    const auto element = oracle::FillElement(value, dtype);
    const auto zero = *oracle::FillElement(int64_t{0}, dtype);
    const oracle::Element bytes = element.value_or(zero);
    changed.bytes.insert(changed.bytes.end(), bytes.begin(),
                         bytes.begin() + oracle::ElementSize(dtype));
  }
  lengths = std::move(changed);
}

// Another place in every row, with the same in it everywhere; or the last place gone.
void ChangeTheNumberOfPlaces(Rng& rng, oracle::Tensor& lengths) {
  if (lengths.dims.size() != 2) return;
  const Values values = oracle::Integers(lengths);
  const int64_t columns = lengths.dims[1];
  const bool longer = columns == 0 || rng.OneIn(2);
  const int64_t added = rng.OneIn(2) ? 0 : kSentinel;
  Values changed;
  for (int64_t r = 0; r < lengths.dims[0]; ++r) {
    const auto row = values.begin() + r * columns;
    changed.insert(changed.end(), row, row + (longer ? columns : columns - 1));
    if (longer) changed.push_back(added);
  }
  lengths.dims[1] += longer ? 1 : -1;
  Store(changed, lengths);
}

void ChangeTheAxes(Rng& rng, oracle::Tensor& lengths) {
  if (lengths.dims.size() == 2 && lengths.dims[0] == 1 && rng.OneIn(2)) {
    lengths.dims.erase(lengths.dims.begin());
  } else if (rng.OneIn(2)) {
    lengths.dims.push_back(1);
  } else {
    int64_t count = 1;
    for (const int64_t dim : lengths.dims) count *= dim;
    lengths.dims = {count};
  }
}

void DamageOne(Rng& rng, oracle::Tensor& lengths) {
  switch (rng.Below(10)) {
    case 0:
      return SwapTwoValues(rng, lengths);
    case 1:
      return MoveValuesBetweenRows(rng, lengths);
    case 2:
      return Transpose(lengths);
    case 3:
      return ChangeTheDType(rng, lengths);
    case 4:
      return ChangeTheNumberOfPlaces(rng, lengths);
    case 5:
      return ChangeTheAxes(rng, lengths);
    default:
      return ChangeAValue(rng, lengths);
  }
}

void Confuse(const char* from, const char* to, oracle::Batch& streams) {
  if (streams.contains(from)) streams[to] = oracle::Tensor(streams.at(from));
}

void DamageBothAlike(Rng& rng, oracle::Batch& streams) {
  const uint64_t seed = rng.Next();
  for (const char* name : {"seq_lens", "seq_lens_padded"}) {
    Rng same(seed);
    if (streams.contains(name)) DamageOne(same, streams.at(name));
  }
}

}  // namespace

void MutateDocuments(Rng& rng, Sample& sample) {
  oracle::Batch& streams = sample.streams;
  switch (rng.Below(8)) {
    case 0:
      streams.erase(EitherName(rng));
      return;
    case 1:
      return Confuse("seq_lens", "seq_lens_padded", streams);
    case 2:
      return Confuse("seq_lens_padded", "seq_lens", streams);
    case 3:
    case 4:
      return DamageBothAlike(rng, streams);
    default: {
      const auto found = streams.find(EitherName(rng));
      if (found != streams.end()) DamageOne(rng, found->second);
    }
  }
}

}  // namespace cpshard::property
