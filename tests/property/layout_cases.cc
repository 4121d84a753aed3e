#include "tests/property/layout_cases.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard::property {
namespace {

LayoutCase IdentityCase() {
  return {.name = "identity",
          .make = [](SharedOptions shared) { return Identity(std::move(shared)); },
          .whole = true,
          .restated = oracle::Options{.layout = "identity"}};
}

LayoutCase ContiguousCase(int64_t pad_multiple, Primary primary) {
  const bool full = primary == Primary::kLeaveFull;
  const ContiguousOptions options = {.pad_multiple = pad_multiple, .primary = primary};
  return {.name = absl::StrCat("contiguous_", pad_multiple, full ? "_full" : ""),
          .make = [=](SharedOptions shared) { return Contiguous(options, std::move(shared)); },
          .extras = ExtrasTaken::kNamesAndPads,
          .restated = oracle::Options{
              .layout = "contiguous", .keep_primary_full = full, .pad_multiple = pad_multiple}};
}

LayoutCase RoundRobinCase(Primary primary) {
  const bool full = primary == Primary::kLeaveFull;
  return {.name = absl::StrCat("round_robin", full ? "_full" : ""),
          .make = [=](SharedOptions shared) { return RoundRobin({primary}, std::move(shared)); },
          .extras = ExtrasTaken::kNames,
          .restated = oracle::Options{.layout = "round_robin", .keep_primary_full = full}};
}

}  // namespace

const std::vector<LayoutCase>& LayoutCases() {
  static const auto& cases = *new std::vector<LayoutCase>{
      IdentityCase(),
      ContiguousCase(0, Primary::kCut),
      ContiguousCase(1, Primary::kCut),
      ContiguousCase(1, Primary::kLeaveFull),
      ContiguousCase(2, Primary::kCut),
      ContiguousCase(3, Primary::kCut),
      ContiguousCase(3, Primary::kLeaveFull),
      ContiguousCase(5, Primary::kCut),
      ContiguousCase(5, Primary::kLeaveFull),
      RoundRobinCase(Primary::kCut),
      RoundRobinCase(Primary::kLeaveFull),
  };
  return cases;
}

std::vector<oracle::Shard> LayoutCase::Expected(const Sample& sample, const Point& point) const {
  oracle::Options options = *restated;
  options.padding_token_id = sample.padding_token_id;
  options.extras = sample.extras;
  options.qkv_format = sample.qkv_format;
  std::vector<oracle::Shard> shards;
  for (int64_t rank = 0; rank < point.num_ranks(); ++rank) {
    auto shard = oracle::Restate(sample.streams, options, point.cp_size, rank);
    if (!shard) return {};
    shards.push_back(*std::move(shard));
  }
  return shards;
}

void LayoutCase::Fit(Sample& sample) const {
  if (extras == ExtrasTaken::kNone) sample.extras.clear();
  if (extras != ExtrasTaken::kNames) return;
  for (oracle::Extra& extra : sample.extras) extra.pad.reset();
}

}  // namespace cpshard::property
