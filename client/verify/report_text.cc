#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/verify/elements.h"
#include "client/verify/report.h"
#include "client/verify/wording.h"

namespace cpshard::verify {
namespace {

constexpr size_t kMostRanks = 4;  // in a line; the others are summed up

std::string Plural(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

void AppendTable(const std::vector<StreamFinding>& streams, std::string* out) {
  size_t name = 6, shape = 5;
  for (const StreamFinding& stream : streams) {
    name = std::max(name, stream.ours.name.size());
    shape = std::max(shape, DimsString(stream.ours.dims).size());
  }
  const auto line = [&](absl::string_view a, absl::string_view b, absl::string_view c,
                        absl::string_view d, absl::string_view e) {
    absl::StrAppendFormat(out, "%-*s  %-5s  %-*s  %-6s  %s\n", static_cast<int>(name), a, b,
                          static_cast<int>(shape), c, d, e);
  };
  line("stream", "dtype", "shape", "extent", "verdict");
  for (const StreamFinding& stream : streams) {
    line(stream.ours.name, DTypeName(stream.ours.dtype), DimsString(stream.ours.dims),
         ExtentName(stream.extent), VerdictName(stream.verdict));
  }
}

std::string CountsText(const std::vector<RankCount>& counts) {
  std::vector<std::string> parts;
  int64_t more = 0;
  for (const RankCount& count : counts) {
    if (parts.size() < kMostRanks) {
      parts.push_back(
          absl::StrCat("rank ", count.rank, ": ", count.differing, " of ", count.elements));
    } else {
      more += count.differing;
    }
  }
  if (more > 0) {
    parts.push_back(absl::StrCat(counts.size() - kMostRanks, " more ranks: ", more));
  }
  return absl::StrJoin(parts, "; ");
}

std::string At(int64_t rank, const std::vector<int64_t>& index,
               const std::optional<Explanation>& place) {
  std::string text = absl::StrCat("rank ", rank, " at ", DimsString(index));
  if (!place) return text;
  if (place->place.held.size() == 1 && place->place.held[0].rank == rank) {
    absl::StrAppend(&text, ", slot ", place->place.held[0].slot);
  }
  return absl::StrCat(text, " <- ", PlaceText(*place));
}

std::string WithMeaning(std::string value, absl::string_view meaning) {
  return meaning.empty() ? value : absl::StrCat(value, ": ", meaning);
}

void AppendDifference(const StreamFinding& stream, std::string* out) {
  absl::StrAppend(out, "\n", stream.ours.name, ": ");
  if (stream.verdict == Verdict::kMissing) {
    absl::StrAppend(out, "not in the files of ", RanksText(stream.absent),
                    "; name the streams to compare (--stream) to leave it out\n");
    return;
  }
  absl::StrAppend(out, stream.cause ? stream.cause->text : "values differ", "\n");
  if (stream.theirs) {
    absl::StrAppend(out, "  theirs    ", DescribeSpec(*stream.theirs), " where ours is ",
                    DescribeSpec(stream.ours), "\n");
  }
  if (!stream.differing.empty()) {
    absl::StrAppend(out, "  elements  ", CountsText(stream.differing), "\n");
  }
  if (!stream.first) return;
  const FirstDifference& first = *stream.first;
  absl::StrAppend(out, "  first     ", At(first.rank, first.index, first.place), "\n");
  absl::StrAppend(out, "  expected  ", first.expected, "\n");
  absl::StrAppend(out, "  found     ", WithMeaning(first.found, first.meaning), "\n");
}

void AppendEdges(const EdgeProbe& edges, const std::string& documents_from, std::string* out) {
  if (!edges.not_probed.empty()) {
    absl::StrAppend(out, "\nedges: not probed: ", edges.not_probed, "\n");
    return;
  }
  absl::StrAppend(out, "\nedges: a label is the id of ",
                  edges.rule == Labels::Rule::kNext ? "the next token" : "its own token", " (",
                  edges.agreeing, " of ", Plural(edges.supervised, "supervised token"),
                  " of the batch); documents by ",
                  documents_from.empty() ? "rows, nothing tells them apart" : documents_from, "\n");
  absl::StrAppendFormat(out, "  shard edges    %6d checked, %d wrong\n", edges.shard_edges.checked,
                        edges.shard_edges.wrong);
  absl::StrAppendFormat(out, "  document ends  %6d checked, %d wrong\n",
                        edges.document_ends.checked, edges.document_ends.wrong);
  if (edges.wrong_as_in_batch > 0) {
    absl::StrAppend(out, "  ", Plural(edges.wrong_as_in_batch, "wrong label"),
                    " as in the batch: it is made so, not cut so\n");
  }
  if (!edges.first) return;
  const WrongEdge& first = *edges.first;
  absl::StrAppend(out, "  first     ", At(first.rank, first.index, first.place), "\n");
  absl::StrAppend(out, "  expected  ", first.expected, ": ", first.why, "\n");
  absl::StrAppend(out, "  found     ", WithMeaning(absl::StrCat(first.found), first.meaning), "\n");
}

void AppendNotCompared(const Findings& findings, std::string* out) {
  std::vector<std::string> extra;
  for (const TensorSpec& spec : findings.extra) {
    extra.push_back(absl::StrCat(spec.name, " ", DescribeSpec(spec)));
  }
  if (extra.empty() && findings.scalars.empty()) return;
  absl::StrAppend(out, "\n");
  if (!extra.empty()) {
    absl::StrAppend(out, "not compared, theirs alone: ", absl::StrJoin(extra, ", "), "\n");
  }
  if (!findings.scalars.empty()) {
    absl::StrAppend(out, "not compared, ours alone (no tensors): ",
                    absl::StrJoin(findings.scalars, ", "), "\n");
  }
}

std::string VerdictText(const Findings& findings) {
  if (!findings.different()) return "EQUAL";
  int64_t equal = 0;
  for (const StreamFinding& stream : findings.streams) {
    if (stream.verdict == Verdict::kEqual) ++equal;
  }
  return absl::StrCat("DIFFERENT (", equal, " of ",
                      Plural(static_cast<int64_t>(findings.streams.size()), "stream"), " equal)");
}

}  // namespace

std::string ToText(const Findings& findings) {
  std::string out = absl::StrCat("compared ", RanksText(findings.ranks), " of a group of ",
                                 findings.cp_size, "\n");
  if (!findings.surplus.empty()) {
    absl::StrAppend(&out, "theirs is another group: there are files of ",
                    RanksText(findings.surplus), " too\n");
  }
  absl::StrAppend(&out, "\n");
  AppendTable(findings.streams, &out);
  for (const StreamFinding& stream : findings.streams) {
    if (stream.verdict != Verdict::kEqual) AppendDifference(stream, &out);
  }
  AppendEdges(findings.edges, findings.documents_from, &out);
  AppendNotCompared(findings, &out);
  absl::StrAppend(&out, "\nverdict: ", VerdictText(findings), "\n");
  return out;
}

}  // namespace cpshard::verify
