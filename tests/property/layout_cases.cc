#include "tests/property/layout_cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/property/documents.h"

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

LayoutCase ThdCase(int64_t num_chunks) {
  return {.name = absl::StrCat("thd_", num_chunks),
          .make = [=](SharedOptions shared) { return Thd({num_chunks}, std::move(shared)); },
          .packed = true,
          .restated = oracle::Options{.layout = "thd", .num_chunks = num_chunks}};
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
      ThdCase(1),
      ThdCase(2),
      ThdCase(3),
  };
  return cases;
}

Point LayoutCase::NearestPoint(Point point) const {
  if (!packed) return point;
  point.rows = std::max<int64_t>(point.rows, 1) * num_chunks();
  if (point.num_ranks() == 1) return point;
  const int64_t block = 2 * point.num_ranks();
  point.length = (point.length + block - 1) / block * block;
  return point;
}

Sample LayoutCase::Draw(const Point& point, Rng& rng) const {
  Sample sample = DrawSample(StreamsToVary(), point, rng);
  if (packed) PutDocuments(point, num_chunks(), rng, sample);
  return sample;
}

Sample LayoutCase::PlainSampleWith(size_t stream, size_t choice, const Point& point,
                                   Rng& rng) const {
  Sample sample = property::PlainSampleWith(StreamsToVary(), stream, choice, point, rng);
  if (packed) PutDocuments(point, num_chunks(), rng, sample);
  return sample;
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
