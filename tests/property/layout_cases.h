// The layouts under test. A new layout joins every property with one line in LayoutCases().
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/oracle/restatement.h"
#include "core/plan/layouts.h"
#include "tests/property/documents.h"
#include "tests/property/samples.h"

namespace cpshard::property {

enum class ExtrasTaken { kNone, kNames, kNamesAndPads };  // decision D13

// What stands on padding where it is not what contiguous fills (contract 12).
struct Fills {
  bool ids_zero = false;     // input_ids with 0, whatever the pad id
  bool floats_zero = false;  // every floating stream with 0
};

struct LayoutCase {
  std::string name;
  std::function<Sharder(SharedOptions, const Point&)> make;
  ExtrasTaken extras = ExtrasTaken::kNone;
  bool whole = false;            // every rank holds every column
  bool packed = false;           // wants packed documents, and makes one stream of them
  bool uneven = false;           // ranks differ in length
  bool syncs_lengths = false;    // takes min_padded_len (D14)
  bool no_padding_mask = false;  // a packed layout that does not emit one
  int64_t num_chunks = 1;
  Fills fills;
  std::set<std::string> rebuilt = {};  // streams that may come out other than they were sent

  // What it asks of a batch beyond that: see NearestPoint and Draw. Absent: nothing.
  std::function<Point(Point)> nearest;
  std::function<DocumentRules(const Point&)> rules;  // of packed
  std::function<void(const Point&, Rng&, Sample&)> adjust;

  // How the oracle knows it; absent = only the properties that need no expected values.
  std::optional<oracle::Options> restated;

  Sharder SharderFor(const Sample& sample, const Point& point) const {
    return make(SharedOptionsOf(sample), point);
  }
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

 private:
  void Complete(const Point& point, Rng& rng, Sample& sample) const;
};

const std::vector<LayoutCase>& LayoutCases();

// Precondition: there is one of that name.
const LayoutCase& CaseNamed(const std::string& name);

}  // namespace cpshard::property
