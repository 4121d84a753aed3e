#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "proto/entry_codec.h"
#include "proto/frames.h"
#include "proto/layout_arrays.h"
#include "proto/shard_codec.h"
#include "proto/totals_codec.h"

namespace cpshard {
namespace {

constexpr int64_t kLayoutField = 8;  // tag and length of a layout, and the shard's longer length
constexpr int64_t kLoadBytes = 96;   // at most, of a rank's load with its tag
constexpr int64_t kReportBytes = int64_t{8} << 10;  // kept free for totals and notices of a report

int64_t SizeOf(const v1::ShardFrame& frame) { return static_cast<int64_t>(frame.ByteSizeLong()); }

absl::Status OverHead(absl::string_view what, int64_t size) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", size, " bytes, over the ", kMaxHeadBytes,
                   " that a frame takes; send fewer or shorter entries"));
}

// Every scalar once, as the rank has it that needs most bytes for it.
void AddLongestScalars(const ShardPlan& plan, v1::Shard* shard) {
  for (const ScalarPlan& scalar : plan.scalars) {
    v1::Entry longest;
    for (const Scalar& value : scalar.values) {
      v1::Entry entry;
      EncodeScalar({scalar.name, value}, &entry);
      if (entry.ByteSizeLong() > longest.ByteSizeLong()) longest.Swap(&entry);
    }
    shard->add_entries()->Swap(&longest);
  }
}

v1::ShardFrame BeginOf(const BatchReport& report, const std::string& executor, size_t num_shards,
                       uint64_t total_bytes) {
  v1::ShardFrame frame;
  frame.mutable_begin()->set_executor(executor);
  frame.mutable_begin()->set_num_shards(num_shards);
  frame.mutable_begin()->set_total_bytes(total_bytes);
  EncodeTotals(report.totals, frame.mutable_begin()->mutable_totals());
  auto* notices = frame.mutable_begin()->mutable_notices();
  EncodeNotices(report.notices, notices);
  while (!notices->empty() && SizeOf(frame) > kMaxHeadBytes) notices->RemoveLast();
  return frame;
}

}  // namespace

AnswerHeads::AnswerHeads(std::shared_ptr<const ShardPlan> plan, std::vector<int64_t> ranks,
                         BatchReport report, uint64_t digest, std::string executor)
    : plan_(std::move(plan)),
      ranks_(std::move(ranks)),
      report_(std::move(report)),
      records_(*plan_, digest),
      executor_(std::move(executor)) {
  for (const StreamPlan& stream : plan_->streams) {
    whole_at_.push_back(local_at_);
    if (stream.extent == Extent::kLocal) continue;
    local_at_ += AlignUp(NumBytes(OutputSpec(*plan_, stream, ranks_.front())));
  }
}

std::string AnswerHeads::Next() {
  std::string piece = std::exchange(left_over_, {});
  if (!begun_) BeginOf(report_, executor_, ranks_.size(), total_bytes_).AppendToString(&piece);
  begun_ = true;
  v1::ShardFrame frame;  // one for all: it keeps its memory
  while (next_rank_ < ranks_.size() && left_over_.empty()) {
    MakeHead(next_rank_++, &frame);
    const bool fits = static_cast<int64_t>(piece.size() + frame.ByteSizeLong()) <= kMaxHeadBytes;
    frame.AppendToString(fits ? &piece : &left_over_);
  }
  return piece;
}

// The head of ranks_[k], and nothing else. To be called in the order of the ranks.
void AnswerHeads::MakeHead(size_t k, v1::ShardFrame* frame) {
  frame->Clear();
  v1::Shard* shard = frame->add_shards();
  if (k < large_layouts_.size() && !large_layouts_[k].empty()) {
    shard->ParseFromString(large_layouts_[k]);
  } else {
    EncodeLayout(records_.Of(ranks_[k]), shard->mutable_layout());
  }
  for (size_t s = 0; s < plan_->streams.size(); ++s) {
    const TensorSpec output = OutputSpec(*plan_, plan_->streams[s], ranks_[k]);
    EncodeOutput(output, CutOf(*plan_, plan_->streams[s]), Place(s, NumBytes(output)),
                 shard->add_entries());
  }
  for (const ScalarEntry& scalar : ScalarsOf(*plan_, ranks_[k])) {
    EncodeScalar(scalar, shard->add_entries());
  }
  if (!report_.loads.empty()) EncodeLoad(report_.loads[k], shard->mutable_load());
}

// Where the next rank's output of the stream lies.
int64_t AnswerHeads::Place(size_t stream, int64_t bytes) {
  if (bytes == 0) return 0;
  if (plan_->streams[stream].extent != Extent::kLocal) return whole_at_[stream];
  return std::exchange(local_at_, local_at_ + AlignUp(bytes));
}

absl::StatusOr<int64_t> CheckedAnswerBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits) {
  CPSHARD_ASSIGN_OR_RETURN(const int64_t shards, CheckedOutputBytes(plan, ranks, limits));
  std::vector<int64_t> large;  // ranks whose layouts may be too large for their heads
  for (int64_t rank : ranks) {
    if (MaxLayoutBytes(plan, rank) > kMaxLayoutBytes) large.push_back(rank);
  }
  CPSHARD_ASSIGN_OR_RETURN(const int64_t layouts, CheckedLayoutBytes(plan, large, limits));
  return shards + layouts;
}

absl::Status CheckHeads(const ShardPlan& plan) {
  v1::ShardFrame notices;
  EncodeNotices(plan.notices, notices.mutable_begin()->mutable_notices());
  const int64_t begin = SizeOf(notices) + kReportBytes;
  if (begin > kMaxHeadBytes) return OverHead("the notices of the answer", begin);
  int64_t longest = 0;  // the rank with the longest rows; no dims of another one take more bytes
  int64_t layout = 0;   // the most that a layout leaves in a head
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    layout = std::max(layout, std::min(MaxLayoutBytes(plan, rank), kMaxLayoutBytes));
    const bool longer = !plan.chunks.empty() &&
                        plan.chunks.front().LocalLen(rank) > plan.chunks.front().LocalLen(longest);
    if (longer) longest = rank;
  }
  v1::ShardFrame frame;
  v1::Shard* shard = frame.add_shards();
  for (const StreamPlan& stream : plan.streams) {
    TensorSpec output = OutputSpec(plan, stream, longest);
    if (stream.layout != kTokens && stream.extent == Extent::kLocal) {  // another rank has more
      output.dims[stream.axis] = LayoutsOf(plan, stream).front().padded_len;
    }
    v1::Entry* entry = shard->add_entries();
    EncodeSpec(output, entry);
    EncodeCut(CutOf(plan, stream), entry);
    entry->set_offset(std::numeric_limits<uint64_t>::max());
    entry->set_nbytes(std::numeric_limits<uint64_t>::max());
  }
  AddLongestScalars(plan, shard);
  const int64_t size = SizeOf(frame) + layout + kLayoutField + kLoadBytes;
  if (size <= kMaxHeadBytes) return absl::OkStatus();
  return OverHead(
      absl::StrCat("the head of the shard of rank ", longest, ", with ", shard->entries_size(),
                   " entries and up to ", layout, " bytes of layout,"),
      size);
}

absl::StatusOr<Answer> EncodeAnswer(std::shared_ptr<const ShardPlan> plan,
                                    std::vector<int64_t> ranks, BatchReport report, uint64_t digest,
                                    ShardBody body, BufferPool& pool) {
  AnswerHeads heads(std::move(plan), std::move(ranks), std::move(report), digest, body.executor);
  CPSHARD_ASSIGN_OR_RETURN(heads.large_layouts_,
                           MoveLargeLayouts(*heads.plan_, heads.ranks_, digest, &body, pool));
  heads.total_bytes_ = body.size;
  body.offsets = std::vector<int64_t>();  // streams times ranks: the memory goes too
  return Answer{std::move(heads), std::move(body)};
}

absl::StatusOr<std::vector<RankShard>> ReadShards(absl::Span<const ShardFrame> frames,
                                                  const Buffer& answer) {
  if (frames.empty() || !frames[0].begin) {
    return absl::InvalidArgumentError("an answer does not start with its begin");
  }
  const AnswerBegin& begin = *frames[0].begin;
  if (begin.total_bytes != static_cast<int64_t>(answer.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the answer to batch ", frames[0].batch_id,
                                                   " has ", answer.size(), " bytes instead of ",
                                                   begin.total_bytes));
  }
  int64_t heads = 0;
  for (const ShardFrame& frame : frames) heads += frame.num_shards;
  if (heads != begin.num_shards) {
    return absl::InvalidArgumentError(absl::StrCat("the answer to batch ", frames[0].batch_id,
                                                   " has ", heads, " shards instead of ",
                                                   begin.num_shards));
  }
  std::vector<RankShard> shards;
  for (const ShardFrame& frame : frames) {
    for (v1::Shard shard : frame.message->shards()) {
      CPSHARD_RETURN_IF_ERROR(RestoreArrays(answer, &shard));
      CPSHARD_ASSIGN_OR_RETURN(RankShard decoded, DecodeShard(shard, answer));
      shards.push_back(std::move(decoded));
    }
  }
  return shards;
}

}  // namespace cpshard
