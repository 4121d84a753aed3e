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
  bool whole = false;  // every rank holds every column
  // How the oracle knows it; absent = only the properties that need no expected values.
  std::optional<oracle::Options> restated;

  Sharder SharderFor(const Sample& sample) const { return make(SharedOptionsOf(sample)); }

  // The oracle's answer for every rank; empty = refused. Precondition: restated.
  std::vector<oracle::Shard> Expected(const Sample& sample, const Point& point) const;

  // Takes out of the sample the extras and pads that the layout would refuse (D13).
  void Fit(Sample& sample) const;
};

const std::vector<LayoutCase>& LayoutCases();

}  // namespace cpshard::property
