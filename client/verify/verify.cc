#include "client/verify/verify.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/verify/elements.h"
#include "client/verify/labels.h"
#include "client/verify/rank_folder.h"
#include "client/verify/reference.h"
#include "client/verify/wording.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

// Names are unique in a plan: a shard is a set of named tensors.
const StreamPlan* FindStream(const ShardPlan& plan, const std::string& name) {
  for (const StreamPlan& stream : plan.streams) {
    if (stream.name == name) return &stream;
  }
  return nullptr;
}

absl::StatusOr<std::vector<const StreamPlan*>> Selected(const ShardPlan& plan,
                                                        const std::vector<std::string>& names) {
  std::vector<const StreamPlan*> streams;
  for (const std::string& name : names) {
    streams.push_back(FindStream(plan, name));
    if (std::count(streams.begin(), streams.end(), streams.back()) > 1) {
      return absl::InvalidArgumentError(absl::StrCat("stream '", name, "' was asked for twice"));
    }
    if (streams.back() != nullptr) continue;
    const std::string all = absl::StrJoin(
        plan.streams, ", ",
        [](std::string* out, const StreamPlan& stream) { absl::StrAppend(out, stream.name); });
    return absl::NotFoundError(
        absl::StrCat("the layout makes no stream '", name, "'; it makes ", all));
  }
  if (!names.empty()) return streams;
  for (const StreamPlan& stream : plan.streams) streams.push_back(&stream);
  return streams;
}

// Of several causes that would explain a stream, the one that explains most streams.
void SettleCauses(std::vector<StreamFinding>& streams) {
  std::map<std::string, int64_t> explained;
  for (const StreamFinding& stream : streams) {
    if (stream.cause) ++explained[stream.cause->text];
    for (const Cause& cause : stream.other_causes) ++explained[cause.text];
  }
  for (StreamFinding& stream : streams) {
    for (Cause& other : stream.other_causes) {
      if (explained[other.text] > explained[stream.cause->text]) std::swap(other, *stream.cause);
    }
  }
}

EdgeProbe NotProbed(std::string why) {
  EdgeProbe probe;
  probe.not_probed = std::move(why);
  return probe;
}

absl::StatusOr<EdgeProbe> Probe(const Reference& reference, const RankFolder& folder,
                                const Comparison& comparison,
                                const absl::StatusOr<Labels>& labels) {
  if (!labels.ok()) return NotProbed(std::string(labels.status().message()));
  const StreamPlan* stream = FindStream(reference.plan(), "labels");
  if (stream == nullptr || stream->extent != Extent::kLocal || stream->layout != kTokens) {
    return NotProbed("the layout does not cut labels");
  }
  if (labels->rule() == Labels::Rule::kNeither) {
    return NotProbed(absl::StrCat("of ", labels->supervised(),
                                  " supervised tokens of the batch only ", labels->agreeing(),
                                  " have the id of the next token, or their own, as their label"));
  }
  std::vector<int64_t> absent;
  for (size_t k = 0; k < reference.ranks().size(); ++k) {
    if (folder.Find(k, "labels") == nullptr) absent.push_back(reference.ranks()[k]);
  }
  if (!absent.empty()) {
    return NotProbed(absl::StrCat("there are no labels in the files of ", RanksText(absent)));
  }
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Tensor> ours,
                           reference.Cut(*stream, reference.ranks()));
  CPSHARD_ASSIGN_OR_RETURN(const Comparison::Read read, comparison.ReadLike(ours));
  if (read.odd) {
    return NotProbed(absl::StrCat("the labels of rank ", reference.ranks()[*read.odd], " are ",
                                  DescribeSpec(*folder.Find(*read.odd, "labels")), ", ours ",
                                  DescribeSpec(ours[*read.odd].spec)));
  }
  return ProbeEdges(reference, *stream, *labels, read.theirs);
}

}  // namespace

bool Findings::different() const {
  return !surplus.empty() || edges.cut_is_wrong() ||
         std::any_of(streams.begin(), streams.end(),
                     [](const StreamFinding& s) { return s.verdict != Verdict::kEqual; });
}

absl::StatusOr<Findings> Verify(const Batch& batch, const Sharder& sharder, const Request& request,
                                Executor& executor, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(
      const Reference reference,
      Reference::Make(batch, sharder, request.cp_size, request.ranks, executor, pool));
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<const StreamPlan*> streams,
                           Selected(reference.plan(), request.streams));
  CPSHARD_ASSIGN_OR_RETURN(const RankFolder folder,
                           RankFolder::Open(request.dir, reference.ranks()));
  Findings findings;
  findings.cp_size = reference.plan().num_ranks();
  findings.ranks = reference.ranks();
  findings.documents_from = reference.documents().from;
  for (const int64_t rank : folder.present()) {
    if (rank >= findings.cp_size) findings.surplus.push_back(rank);
  }
  const absl::StatusOr<Labels> labels = Labels::Of(batch);
  const Comparison comparison(reference, folder, labels.ok() ? &*labels : nullptr);
  for (const StreamPlan* stream : streams) {
    CPSHARD_ASSIGN_OR_RETURN(StreamFinding finding, comparison.Compare(*stream));
    findings.streams.push_back(std::move(finding));
  }
  SettleCauses(findings.streams);
  for (const TensorSpec& theirs : folder.Streams()) {
    if (FindStream(reference.plan(), theirs.name) == nullptr) findings.extra.push_back(theirs);
  }
  for (const ScalarPlan& scalar : reference.plan().scalars) {
    findings.scalars.push_back(scalar.name);
  }
  CPSHARD_ASSIGN_OR_RETURN(findings.edges, Probe(reference, folder, comparison, labels));
  return findings;
}

}  // namespace cpshard::verify
