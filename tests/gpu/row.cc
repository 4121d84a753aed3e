#include "tests/gpu/row.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cpshard {
namespace {

std::string JsonOf(const Spread& spread) {
  return absl::StrFormat("[%.6g, %.6g, %.6g]", spread.least, spread.median, spread.most);
}

// Of the time of a walk.
double HostShare(const GpuRow& row) {
  return row.pairs.bytes > 0 ? row.host_seconds * row.pairs.ours.median * 1e9 / row.pairs.bytes : 0;
}

bool CannotBe(const GpuRow& row) { return row.limit > 0 && row.pairs.ratio.median > row.limit; }

}  // namespace

Verdict VerdictOf(const GpuRow& row) {
  if (absl::IsResourceExhausted(row.status)) return Verdict::kSkip;
  if (!row.status.ok() || CannotBe(row)) return Verdict::kFail;
  if (row.goal == 0) return Verdict::kNone;
  return row.pairs.ratio.median >= row.goal ? Verdict::kPass : Verdict::kFail;
}

absl::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "PASS";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kSkip:
      return "SKIP";
    case Verdict::kNone:
      break;
  }
  return "";
}

std::string ReasonOf(const GpuRow& row) {
  if (!row.status.ok()) return std::string(row.status.message());
  const Spread& ratio = row.pairs.ratio;
  std::string reason = absl::StrFormat("%.3f x a plain copy (%.3f to %.3f in %d pairs)",
                                       ratio.median, ratio.least, ratio.most, row.pairs.rounds);
  if (CannotBe(row)) {
    absl::StrAppend(&reason, ", which cannot be: more than ", row.limit);
  } else if (row.goal > 0) {
    absl::StrAppend(&reason, ", goal ", row.goal);
  }
  return reason;
}

std::string LineOf(const GpuRow& row) {
  const absl::string_view verdict = Name(VerdictOf(row));
  if (!row.status.ok()) return absl::StrFormat("%-4s  %s: %s", verdict, row.what, ReasonOf(row));
  const Spread& ratio = row.pairs.ratio;
  const auto shown = [](double value, absl::string_view text) {
    return value > 0 ? std::string(text) : "-";
  };
  return absl::StrFormat("%-4s %8.1f %8.1f %7.3f %7.3f %7.3f %5s %5s  %s%s", verdict,
                         row.pairs.ours.median, row.pairs.anchor.median, ratio.median, ratio.least,
                         ratio.most, shown(row.goal, absl::StrCat(row.goal)),
                         shown(row.host_seconds, absl::StrFormat("%.0f%%", 100 * HostShare(row))),
                         row.what, CannotBe(row) ? ": it cannot be that fast" : "");
}

std::string RowHeading() {
  return absl::StrFormat("%-4s %8s %8s %7s %7s %7s %5s %5s  %s", "", "GB/s", "a copy", "ratio",
                         "least", "most", "goal", "host", "what");
}

std::string JsonOf(const GpuRow& row) {
  return absl::StrCat("{\"what\": ", Quoted(row.what), ", \"gb_per_s\": ", JsonOf(row.pairs.ours),
                      ", \"anchor_gb_per_s\": ", JsonOf(row.pairs.anchor),
                      ", \"ratio\": ", JsonOf(row.pairs.ratio), ", \"pairs\": ", row.pairs.rounds,
                      ", \"host\": ", absl::StrFormat("%.3g", HostShare(row)),
                      ", \"goal\": ", row.goal, ", \"verdict\": ", Quoted(Name(VerdictOf(row))),
                      ", \"reason\": ", Quoted(ReasonOf(row)), "}");
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace cpshard
