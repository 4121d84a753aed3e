#include "client/cli/demo/tally.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard::demo {
namespace {

std::string Name(int64_t loader, int64_t batch) {
  return absl::StrCat("loader ", loader, ", batch ", batch);
}

void AddTo(std::vector<int64_t>& sums, const std::vector<int64_t>& more) {
  sums.resize(std::max(sums.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

void CountIn(std::vector<StreamFigure>& streams, const std::vector<std::string>& equal) {
  for (const std::string& name : equal) {
    auto found = std::find_if(streams.begin(), streams.end(),
                              [&name](const StreamFigure& stream) { return stream.name == name; });
    if (found == streams.end()) found = streams.insert(found, {name});
    ++found->equal;
  }
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace

Tally::Tally(std::string layout, int64_t batches, int64_t loaders)
    : layout_(std::move(layout)), loaders_(loaders), entries_(batches) {}

void Tally::Add(int64_t loader, const BatchReport& report) {
  const bool known =
      report.layout == layout_ && report.batch < batches() && report.batch % loaders_ == loader;
  if (!known) {
    if (!stray_.empty()) return;
    stray_ = absl::StrCat(Name(loader, report.batch), " of ", report.layout,
                          ": reported, but it is not this loader's share of ", layout_);
    return;
  }
  Entry& entry = entries_[report.batch];
  if (entry.times++ == 0) entry.report = report;
}

int64_t Tally::reported() const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.times > 0; });
}

int64_t Tally::ShareOf(int64_t loader) const {
  return (batches() - loader + loaders_ - 1) / loaders_;
}

int64_t Tally::ReportedBy(int64_t loader) const {
  int64_t batch = loader;
  while (batch < batches() && entries_[batch].times > 0) batch += loaders_;
  return (batch - loader) / loaders_;
}

std::string Tally::DifferenceOf(int64_t batch) const {
  const Entry& entry = entries_[batch];
  const std::string name = Name(batch % loaders_, batch);
  if (entry.times == 0) return absl::StrCat(name, ": never reported");
  if (entry.times > 1) return absl::StrCat(name, ": reported ", entry.times, " times");
  if (entry.report.difference.empty()) return "";
  return absl::StrCat(name, ": ", entry.report.difference);
}

Figures Tally::Sum() const {
  Figures figures;
  figures.batches = reported();
  figures.difference = stray_;
  std::vector<double> token_rates, byte_rates;
  for (int64_t loader = 0; loader < loaders_; ++loader) {
    double seconds = 0, tokens = 0, bytes = 0;
    for (int64_t batch = loader; batch < batches(); batch += loaders_) {
      const BatchReport& report = entries_[batch].report;
      seconds += report.seconds;
      tokens += static_cast<double>(report.real_tokens);
      bytes += static_cast<double>(report.bytes);
    }
    if (seconds <= 0) continue;
    token_rates.push_back(tokens / seconds);
    byte_rates.push_back(bytes / seconds);
  }
  figures.tokens_per_second = Median(std::move(token_rates));
  figures.bytes_per_second = Median(std::move(byte_rates));
  for (int64_t batch = 0; batch < batches(); ++batch) {
    const BatchReport& report = entries_[batch].report;
    figures.real_tokens += report.real_tokens;
    figures.columns += report.columns;
    figures.bytes += report.bytes;
    AddTo(figures.tokens_of_rank, report.tokens_of_rank);
    CountIn(figures.streams, report.equal);
    if (figures.difference.empty()) figures.difference = DifferenceOf(batch);
  }
  return figures;
}

}  // namespace cpshard::demo
