#include "tests/conformance/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cpshard::conformance {

void Report::Counts::Count(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::kPassed:
      ++passed;
      return;
    case Outcome::Kind::kFailed:
      ++failed;
      return;
    case Outcome::Kind::kSkipped:
      ++skipped;
      return;
  }
}

void Report::Add(const std::string& family, const std::string& id, const Outcome& outcome) {
  const auto [found, is_new] = families_.try_emplace(family);
  if (is_new) order_.push_back(family);
  found->second.Count(outcome.kind);
  total_.Count(outcome.kind);
  for (const std::string& key : outcome.keys_not_compared) ++keys_not_compared_[key];
  if (outcome.kind == Outcome::Kind::kSkipped) {
    skipped_ids_[{family, outcome.text}].push_back(id);
  }
  if (verbose_ && !outcome.answer.empty())
    out_ << "answer " << id << ": " << outcome.answer << "\n";
  if (outcome.kind == Outcome::Kind::kFailed) {
    out_ << "FAILED " << id << " [" << family << "]: " << outcome.text << "\n";
  }
}

void Report::PrintSummary() {
  for (const std::string& family : order_) {
    const Counts& counts = families_[family];
    out_ << "family " << family << ": " << counts.passed << " passed, " << counts.failed
         << " failed, " << counts.skipped << " skipped\n";
  }
  for (const auto& [key, ids] : skipped_ids_) {
    out_ << "skipped " << key.first << " (" << key.second << "): " << absl::StrJoin(ids, " ")
         << "\n";
  }
  for (const auto& [key, cases] : keys_not_compared_) {
    out_ << "not compared: key " << key << " in " << cases << " cases (this run cannot have it)\n";
  }
  out_ << Totals() << std::endl;
}

std::string Report::Totals() const {
  std::string totals = absl::StrCat(total_.passed, " passed, ", total_.failed, " failed");
  if (total_.skipped > 0) absl::StrAppend(&totals, ", ", total_.skipped, " skipped");
  return totals;
}

}  // namespace cpshard::conformance
