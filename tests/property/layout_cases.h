// The layouts under test. A new layout joins every property with one line in LayoutCases().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/oracle/restatement.h"
#include "core/plan/layouts.h"
#include "tests/property/samples.h"

namespace cpshard::property {

enum class ExtrasTaken { kNone, kNames, kNamesAndPads };  // decision D13

struct LayoutCase {
  std::string name;
  std::function<Sharder(SharedOptions)> make;
  ExtrasTaken extras = ExtrasTaken::kNone;
  bool whole = false;   // every rank holds every column
  bool packed = false;  // wants the lengths of packed documents
  // How the oracle knows it; absent = only the properties that need no expected values.
  std::optional<oracle::Options> restated;

  Sharder SharderFor(const Sample& sample) const { return make(SharedOptionsOf(sample)); }

  int64_t num_chunks() const { return restated ? restated->num_chunks : 1; }
  const Variants& StreamsToVary() const {
    return packed ? PackedStreamVariants() : StreamVariants();
  }

  // The point itself, or one near it at which the layout can accept a batch at all: where documents
  // are packed, rows that divide into the chunks, of a length that documents can fill.
  Point NearestPoint(Point point) const;

  // A sample of the kind that the layout wants; PlainSampleWith as in samples.h.
  Sample Draw(const Point& point, Rng& rng) const;
  Sample PlainSampleWith(size_t stream, size_t choice, const Point& point, Rng& rng) const;

  // The oracle's answer for every rank; empty = refused. Precondition: restated.
  std::vector<oracle::Shard> Expected(const Sample& sample, const Point& point) const;

  // Takes out of the sample the extras and pads that the layout would refuse (D13).
  void Fit(Sample& sample) const;
};

const std::vector<LayoutCase>& LayoutCases();

}  // namespace cpshard::property
