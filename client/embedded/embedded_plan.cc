#include "client/embedded/embedded_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/exec/executor.h"
#include "core/exec/shard.h"
#include "core/plan/batch_totals.h"
#include "core/plan/status_macros.h"

namespace cpshard::embedded {
namespace {

// Of the process; for what is derived on the way. Never destroyed: threads may outlive main.
BufferPool& Pool() {
  static auto* pool = new BufferPool({.max_idle_bytes = size_t{64} << 20});
  return *pool;
}

Executor& TheExecutor() {
  static auto* executor = MakeCpuExecutor().release();
  return *executor;
}

// The tensors at hand as windows on the caller's memory, which nobody writes to.
absl::StatusOr<std::vector<Tensor>> TensorsAt(const BatchSpec& spec,
                                              absl::Span<const void* const> tensors) {
  if (tensors.size() != spec.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat(tensors.size(), " pointers for ",
                                                   spec.tensors.size(), " tensors; give one each"));
  }
  std::vector<Tensor> at;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = NumBytes(spec.tensors[i]);
    if (bytes > 0 && tensors[i] == nullptr) continue;
    auto* data = static_cast<std::byte*>(const_cast<void*>(tensors[i]));
    at.push_back({spec.tensors[i],
                  bytes > 0 ? Buffer(nullptr, data, static_cast<size_t>(bytes)) : Buffer()});
  }
  return at;
}

absl::Status NotAtHand(absl::string_view what, const std::vector<std::string>& names) {
  return absl::FailedPreconditionError(absl::StrCat(what, " of stream '",
                                                    absl::StrJoin(names, "', '"),
                                                    "', whose pointer was null; give its bytes"));
}

// The stream as part of the caller's array: k-th rank's destination, or nullptr.
class Dests {
 public:
  Dests(absl::Span<void* const> dests, size_t streams) : dests_(dests), streams_(streams) {}

  std::byte* At(size_t k, size_t s) const {
    return static_cast<std::byte*>(dests_[k * streams_ + s]);
  }

 private:
  absl::Span<void* const> dests_;
  size_t streams_;
};

// The destinations of a stream that is cut are those of all ranks or of none. A part without bytes
// is nobody's, and any pointer will do for it.
absl::Status CheckAllOrNone(const ShardPlan& plan, const StreamPlan& stream,
                            absl::Span<const int64_t> ranks, absl::Span<std::byte*> dests) {
  static std::byte nowhere;
  const bool wanted = std::any_of(dests.begin(), dests.end(), [](auto* to) { return to; });
  if (!wanted || stream.extent != Extent::kLocal) return absl::OkStatus();
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (dests[k] != nullptr) continue;
    if (NumBytes(OutputSpec(plan, stream, ranks[k])) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("stream '", stream.name, "' is wanted, but not by rank ", ranks[k],
                       "; a stream that is cut is written for all of the ranks or for none"));
    }
    dests[k] = &nowhere;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> NeedsOf(absl::string_view request) {
  CPSHARD_ASSIGN_OR_RETURN(const Request read, ReadPlanRequest(request, Limits()));
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, read.options.MakeSharder());
  PlanSummary summary;
  summary.needs = sharder.Needs(read.spec);
  return WritePlanReply(std::move(summary), Arrays::kShapes);
}

absl::StatusOr<std::unique_ptr<EmbeddedPlan>> EmbeddedPlan::Make(
    absl::string_view request, absl::Span<const void* const> tensors) {
  CPSHARD_ASSIGN_OR_RETURN(Request read, ReadPlanRequest(request, Limits()));
  CPSHARD_ASSIGN_OR_RETURN(Sharder sharder, read.options.MakeSharder());
  CPSHARD_ASSIGN_OR_RETURN(read.batch.tensors, TensorsAt(read.spec, tensors));
  auto made = std::unique_ptr<EmbeddedPlan>(new EmbeddedPlan(std::move(read), std::move(sharder)));
  const Request& request_ = made->request_;
  std::vector<std::string> missing;
  for (const std::string& name : made->sharder_.Needs(request_.spec)) {
    const bool sent = request_.spec.FindTensor(name) != nullptr;
    if (sent && request_.batch.FindTensor(name) == nullptr) missing.push_back(name);
  }
  if (!missing.empty()) return NotAtHand("the layout reads the values", missing);
  CPSHARD_ASSIGN_OR_RETURN(
      made->plan_,
      made->sharder_.Plan(request_.spec, ViewNeeds(made->sharder_, request_.spec, request_.batch)));
  CPSHARD_RETURN_IF_ERROR(made->CheckLimits(request_.ranks));
  return made;
}

absl::Status EmbeddedPlan::CheckLimits(absl::Span<const int64_t> ranks) const {
  CPSHARD_RETURN_IF_ERROR(CheckedOutputBytes(plan_, ranks, Limits()).status());
  return CheckedLayoutBytes(plan_, ranks, Limits()).status();
}

absl::Status EmbeddedPlan::CheckComplete(absl::string_view what) const {
  std::vector<std::string> missing;
  for (const TensorSpec& tensor : request_.spec.tensors) {
    if (request_.batch.FindTensor(tensor.name) == nullptr) missing.push_back(tensor.name);
  }
  return missing.empty() ? absl::OkStatus() : NotAtHand(what, missing);
}

absl::Status EmbeddedPlan::CheckSource(const StreamPlan& stream) const {
  const auto* view = std::get_if<ViewOf>(&stream.value.from);
  if (view == nullptr || request_.batch.FindTensor(view->source) != nullptr) {
    return absl::OkStatus();
  }
  return NotAtHand(absl::StrCat("stream '", stream.name, "' is made"), {view->source});
}

absl::StatusOr<uint64_t> EmbeddedPlan::Digest() const {
  CPSHARD_RETURN_IF_ERROR(CheckComplete("the digest is"));
  absl::MutexLock lock(&mutex_);
  if (!digest_) digest_ = DigestOf(request_.batch);
  return *digest_;
}

const Inspection& EmbeddedPlan::Inspected() const {
  absl::MutexLock lock(&mutex_);
  if (inspection_ == nullptr) {
    inspection_ = std::make_unique<Inspection>(InspectBatch(plan_, request_.spec, request_.batch));
  }
  return *inspection_;
}

absl::StatusOr<std::string> EmbeddedPlan::Reply(absl::Span<const int64_t> asked,
                                                const With& with) const {
  std::vector<int64_t> ranks = request_.ranks;
  if (!asked.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(ranks, ResolveRanks(asked, plan_.num_ranks()));
  }
  Inspection nothing;
  nothing.notices = plan_.notices;
  CPSHARD_ASSIGN_OR_RETURN(PlanSummary summary,
                           Summarize(plan_, with.totals ? Inspected() : nothing, ranks, Limits()));
  if (!with.totals) summary.totals.reset();
  summary.needs = sharder_.Needs(request_.spec);
  if (with.digest) {
    CPSHARD_ASSIGN_OR_RETURN(const uint64_t digest, Digest());
    for (ShardLayout& layout : summary.layouts) layout.batch_digest = digest;
  }
  return WritePlanReply(std::move(summary), with.arrays);
}

absl::StatusOr<std::shared_ptr<const ShardLayout>> EmbeddedPlan::LayoutOf(int64_t rank) const {
  CPSHARD_RETURN_IF_ERROR(ResolveRanks({rank}, plan_.num_ranks()).status());
  absl::MutexLock lock(&mutex_);
  if (last_layout_ != nullptr && last_layout_->cp_rank == rank) return last_layout_;
  CPSHARD_RETURN_IF_ERROR(CheckedLayoutBytes(plan_, {rank}, Limits()).status());
  if (records_ == nullptr) records_ = std::make_unique<LayoutRecords>(plan_, /*batch_digest=*/0);
  last_layout_ = std::make_shared<const ShardLayout>(records_->Of(rank));
  return last_layout_;
}

absl::StatusOr<std::string> EmbeddedPlan::Shard(int64_t rank, const With& with) const {
  CPSHARD_ASSIGN_OR_RETURN(std::shared_ptr<const ShardLayout> layout, LayoutOf(rank));
  CPSHARD_RETURN_IF_ERROR(CheckLimits({rank}));
  if (with.digest) {
    auto named = std::make_shared<ShardLayout>(*layout);
    CPSHARD_ASSIGN_OR_RETURN(named->batch_digest, Digest());
    layout = std::move(named);
  }
  std::optional<RankLoad> load;
  if (with.totals) {
    const std::vector<RankLoad> loads = ReportOf(Inspected(), {rank}).loads;
    if (!loads.empty()) load = loads.front();
  }
  return WriteShard(plan_, *layout, load, with.arrays);
}

absl::StatusOr<EmbeddedPlan::Stream> EmbeddedPlan::StreamAt(size_t index) const {
  if (index >= plan_.streams.size()) {
    return absl::NotFoundError(
        absl::StrCat("a shard has ", plan_.streams.size(), " tensors, none at ", index));
  }
  const StreamPlan& stream = plan_.streams[index];
  Stream found{.name = &stream.name};
  const auto* view = std::get_if<ViewOf>(&stream.value.from);
  if (view == nullptr) return found;
  found.source = &view->source;
  found.writable = CheckSource(stream).ok();
  const TensorSpec* source = request_.spec.FindTensor(view->source);
  found.as_sent = stream.extent == Extent::kWhole && source != nullptr &&
                  IsPlainView(stream, source->dtype) && stream.dims == source->dims;
  return found;
}

absl::Status EmbeddedPlan::Write(absl::Span<const int64_t> asked,
                                 absl::Span<void* const> dests) const {
  if (asked.empty()) return absl::InvalidArgumentError("no ranks to write; name them");
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks,
                           ResolveRanks(asked, plan_.num_ranks()));
  const size_t streams = plan_.streams.size();
  if (dests.size() != ranks.size() * streams) {
    return absl::InvalidArgumentError(absl::StrCat(dests.size(), " destinations for ", streams,
                                                   " streams of ", ranks.size(), " ranks"));
  }
  const Dests given(dests, streams);
  std::vector<std::byte*> by_stream(dests.size());
  for (size_t s = 0; s < streams; ++s) {
    const StreamPlan& stream = plan_.streams[s];
    const absl::Span<std::byte*> of_stream =
        absl::MakeSpan(by_stream).subspan(s * ranks.size(), ranks.size());
    for (size_t k = 0; k < ranks.size(); ++k) of_stream[k] = given.At(k, s);
    CPSHARD_RETURN_IF_ERROR(CheckAllOrNone(plan_, stream, ranks, of_stream));
    const bool wanted =
        std::any_of(of_stream.begin(), of_stream.end(), [](auto* to) { return to; });
    if (wanted) CPSHARD_RETURN_IF_ERROR(CheckSource(stream));
  }
  return WriteShards(plan_, request_.batch, ranks, by_stream, TheExecutor(), Pool());
}

absl::StatusOr<verify::Findings> EmbeddedPlan::Verify(const std::string& ranks_dir,
                                                      absl::Span<const int64_t> ranks,
                                                      std::vector<std::string> streams) const {
  CPSHARD_RETURN_IF_ERROR(CheckComplete("a comparison reads the values"));
  const verify::Request request{.cp_size = request_.cp_size,
                                .ranks = {ranks.begin(), ranks.end()},
                                .dir = ranks_dir,
                                .streams = std::move(streams)};
  return verify::Verify(request_.batch, sharder_, request, TheExecutor(), Pool());
}

}  // namespace cpshard::embedded
