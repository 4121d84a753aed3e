#include "server/session/stored_batch.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kMemoryPerSentByte = 2;
constexpr int64_t kStepOverhead = int64_t{64} << 10;
constexpr int64_t kMinBlockBytes = 4096;  // of the pool
constexpr int64_t kMaxSentBytes = int64_t{1} << 60;

int64_t BlockBytes(int64_t bytes) { return bytes == 0 ? 0 : std::max(bytes, kMinBlockBytes); }

// What a list of pieces and places takes.
int64_t ListBytes(const ShardBody& body) {
  return static_cast<int64_t>(body.pieces.size() * (sizeof(Buffer) + sizeof(int64_t)) +
                              body.offsets.size() * sizeof(int64_t));
}

std::vector<int64_t> AllRanks(int64_t num_ranks) {
  std::vector<int64_t> ranks(num_ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int64_t> EndsOf(const std::vector<Buffer>& pieces) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const Buffer& piece : pieces) ends.push_back(end += static_cast<int64_t>(piece.size()));
  return ends;
}

// A part of a body: ranges of it one after the other, as windows that keep `owner`.
class Part {
 public:
  Part(const ShardBody& body, const std::vector<int64_t>& ends, std::shared_ptr<void> owner)
      : pieces_(body.pieces), ends_(ends), owner_(std::move(owner)) {
    part_.executor = body.executor;
  }

  void Add(int64_t begin, int64_t size) {
    if (size == 0) return;
    if (begin != end_) Close();
    if (begin_ == end_) begin_ = begin;
    end_ = begin + size;
  }

  ShardBody Take() {
    Close();
    return std::move(part_);
  }

 private:
  void Close() {
    part_.size += end_ - begin_;
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin_) - ends_.begin();
    for (; begin_ < end_; ++i) {
      const int64_t size = std::min(end_, ends_[i]) - begin_;
      const int64_t at = begin_ - (ends_[i] - static_cast<int64_t>(pieces_[i].size()));
      part_.pieces.emplace_back(owner_, pieces_[i].data() + at, size);
      begin_ += size;
    }
  }

  const std::vector<Buffer>& pieces_;
  const std::vector<int64_t>& ends_;
  const std::shared_ptr<void> owner_;
  int64_t begin_ = 0, end_ = 0;  // of the range that may still grow
  ShardBody part_;
};

absl::Status NoSuchKey(const ShardPlan& plan, absl::string_view key) {
  std::vector<std::string> names;
  for (const StreamPlan& stream : plan.streams) names.push_back(stream.name);
  for (const ScalarPlan& scalar : plan.scalars) names.push_back(scalar.name);
  return absl::InvalidArgumentError(absl::StrCat(
      "the shards have no entry '", key, "' to select; they have ", absl::StrJoin(names, ", ")));
}

// Which streams of the plan are asked for, in its order.
absl::StatusOr<std::vector<size_t>> Select(const ShardPlan& plan,
                                           absl::Span<const std::string> keys) {
  std::set<absl::string_view> left(keys.begin(), keys.end());
  std::vector<size_t> selected;
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    if (keys.empty() || left.erase(plan.streams[s].name) > 0) selected.push_back(s);
  }
  for (const ScalarPlan& scalar : plan.scalars) left.erase(scalar.name);
  if (!left.empty()) return NoSuchKey(plan, *left.begin());
  return selected;
}

// The plan with these streams alone, and the scalars of `keys`.
std::shared_ptr<const ShardPlan> Reduced(const ShardPlan& plan, const std::vector<size_t>& selected,
                                         absl::Span<const std::string> keys) {
  auto reduced = std::make_shared<ShardPlan>(plan);
  reduced->streams.clear();
  for (const size_t s : selected) reduced->streams.push_back(plan.streams[s]);
  std::erase_if(reduced->scalars, [keys](const ScalarPlan& scalar) {
    return std::find(keys.begin(), keys.end(), scalar.name) == keys.end();
  });
  return reduced;
}

}  // namespace

int64_t MemoryOfStep(int64_t sent_bytes) {
  return kMemoryPerSentByte * std::clamp<int64_t>(sent_bytes, 0, kMaxSentBytes) + kStepOverhead;
}

int64_t MemoryOfBatch(int64_t sent_bytes) {
  return kMemoryPerSentByte * std::clamp(sent_bytes, kMinBlockBytes, kMaxSentBytes);
}

int64_t SentBytesOfStep(int64_t memory) { return (memory - kStepOverhead) / kMemoryPerSentByte; }

StoredBatch::StoredBatch(ArrivedBatch arrived, const Staging& staging)
    : arrived_(std::move(arrived)), staging_(staging) {}

absl::StatusOr<std::shared_ptr<const StoredBatch>> StoredBatch::Make(
    ArrivedBatch arrived, std::shared_ptr<const SessionTerms> terms, const Staging& staging) {
  const std::shared_ptr<StoredBatch> batch(new StoredBatch(std::move(arrived), staging));
  const std::shared_ptr<const ShardPlan>& plan = batch->arrived_.plan;
  BatchReport report = batch->ReportFor(*plan);
  batch->num_label_tokens_ = report.totals.num_label_tokens;
  batch->num_tokens_excl_tail_pad_ = report.totals.num_tokens_excl_tail_pad;
  if (terms->job_groups > 1 && plan->row_need) return batch;
  Cut cut{std::move(terms), std::nullopt, plan, std::move(report), {}, {}, 0};
  absl::MutexLock lock(&batch->mu_);
  CPSHARD_ASSIGN_OR_RETURN(batch->cut_, batch->Carry(std::move(cut)));
  return batch;
}

BatchReport StoredBatch::ReportFor(const ShardPlan& plan) const {
  return ReportOf(InspectBatch(plan, arrived_.spec, arrived_.batch, Detail::kBatch),
                  AllRanks(plan.num_ranks()));
}

// Carries out the cut's plan.
absl::StatusOr<StoredBatch::CutPtr> StoredBatch::Carry(Cut cut) const {
  CPSHARD_ASSIGN_OR_RETURN(Executor * executor, staging_.executors->Named(cut.terms->executor));
  CPSHARD_ASSIGN_OR_RETURN(
      cut.body, ViewShards(*cut.plan, arrived_.batch, AllRanks(cut.plan->num_ranks()), *executor,
                           *staging_.pool));
  cut.piece_ends = EndsOf(cut.body.pieces);
  cut.bytes = BlockBytes(cut.body.copied_bytes) + ListBytes(cut.body) + arrived_.plan_bytes;
  return std::make_shared<const Cut>(std::move(cut));
}

absl::StatusOr<std::shared_ptr<const ShardPlan>> StoredBatch::PlanBy(
    const SessionTerms& terms, std::optional<int64_t> min_padded_len) const {
  CPSHARD_ASSIGN_OR_RETURN(Options options, Options::FromBytes(terms.options));
  if (min_padded_len) options.RaiseMinPaddedLen(*min_padded_len);
  CPSHARD_ASSIGN_OR_RETURN(const Sharder sharder, options.MakeSharder());
  BatchSpec spec = arrived_.spec;
  spec.cp_size = terms.cp_size;
  CPSHARD_ASSIGN_OR_RETURN(ShardPlan plan,
                           sharder.Plan(spec, ViewNeeds(sharder, spec, arrived_.batch)));
  const std::vector<int64_t> ranks = AllRanks(plan.num_ranks());
  CPSHARD_RETURN_IF_ERROR(CheckedAnswerBytes(plan, ranks, staging_.limits).status());
  CPSHARD_RETURN_IF_ERROR(CheckHeads(plan));
  return std::make_shared<const ShardPlan>(std::move(plan));
}

absl::StatusOr<StoredBatch::CutPtr> StoredBatch::CutFor(
    const SessionTerms& terms, std::optional<int64_t> min_padded_len) const {
  absl::MutexLock lock(&mu_);
  if (cut_ != nullptr && cut_->min_padded_len == min_padded_len &&
      cut_->terms->cp_size == terms.cp_size && cut_->terms->options == terms.options) {
    // Who names no executor takes what there is; who names one gets no other's.
    if (terms.executor == ExecutorKind::kAuto) return cut_;
    CPSHARD_ASSIGN_OR_RETURN(Executor * executor, staging_.executors->Named(terms.executor));
    if (executor->name() == cut_->body.executor) return cut_;
  }
  CPSHARD_ASSIGN_OR_RETURN(auto plan, PlanBy(terms, min_padded_len));
  cut_.reset();  // first, so that the memory is there, unless some of it is being sent
  BatchReport report = ReportFor(*plan);
  CPSHARD_ASSIGN_OR_RETURN(cut_, Carry({std::make_shared<const SessionTerms>(terms),
                                        min_padded_len,
                                        std::move(plan),
                                        std::move(report),
                                        {},
                                        {},
                                        0}));
  return cut_;
}

absl::StatusOr<Answer> StoredBatch::PartOf(const SessionTerms& terms, int64_t rank,
                                           std::optional<int64_t> min_padded_len,
                                           absl::Span<const std::string> keys,
                                           std::shared_ptr<const void> pin) const {
  CPSHARD_ASSIGN_OR_RETURN(const CutPtr cut, CutFor(terms, min_padded_len));
  const ShardPlan& plan = *cut->plan;
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<size_t> selected, Select(plan, keys));
  struct Held {
    CutPtr cut;
    std::shared_ptr<const void> pin;
  };
  // As PlaceShards has it for one rank: what is held whole, then the rank's own.
  Part part(cut->body, cut->piece_ends, std::make_shared<Held>(Held{cut, std::move(pin)}));
  for (const bool whole : {true, false}) {
    for (const size_t s : selected) {
      if ((plan.streams[s].extent != Extent::kLocal) != whole) continue;
      part.Add(cut->body.offsets[s * plan.num_ranks() + rank],
               AlignUp(NumBytes(OutputSpec(plan, plan.streams[s], rank))));
    }
  }
  BatchReport report = {cut->report.totals, {}, cut->report.notices};
  if (!cut->report.loads.empty()) report.loads.push_back(cut->report.loads[rank]);
  return EncodeAnswer(keys.empty() ? cut->plan : Reduced(plan, selected, keys), {rank},
                      std::move(report), arrived_.digest, part.Take(), *staging_.pool);
}

LandedBatch StoredBatch::Landed(std::shared_ptr<const StoredBatch> self) const {
  LandedBatch landed;
  landed.payload = std::move(self);
  landed.digest = arrived_.digest;
  landed.num_label_tokens = num_label_tokens_;
  landed.num_tokens_excl_tail_pad = num_tokens_excl_tail_pad_;
  landed.row_need = arrived_.plan->row_need;
  absl::MutexLock lock(&mu_);
  landed.bytes = BlockBytes(arrived_.bytes) +
                 (cut_ != nullptr ? cut_->bytes : arrived_.plan_bytes + arrived_.output_bytes);
  return landed;
}

}  // namespace cpshard
