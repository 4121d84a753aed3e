#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/entry_codec.h"
#include "proto/frame_parts.h"
#include "proto/frames.h"
#include "proto/layout_arrays.h"
#include "proto/shard_codec.h"

namespace cpshard {
namespace {

absl::Status OverHead(absl::string_view what, int64_t size) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", size, " bytes, over the ", kMaxHeadBytes,
                   " that a frame takes; send fewer or shorter entries"));
}

v1::ShardFrame BeginOf(const ShardPlan& plan, size_t num_shards, uint64_t total_bytes) {
  v1::ShardFrame frame;
  frame.mutable_begin()->set_num_shards(num_shards);
  frame.mutable_begin()->set_total_bytes(total_bytes);
  EncodeNotices(plan.notices, frame.mutable_begin()->mutable_notices());
  return frame;
}

}  // namespace

absl::StatusOr<Answer> EncodeAnswer(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                    uint64_t digest, ShardBody body, BufferPool& pool) {
  Answer answer{{""}, std::move(body)};
  LayoutArrays arrays(&answer.body, &pool);
  // total_bytes is not known yet; no value of it takes more room than this one.
  int64_t used = static_cast<int64_t>(
      BeginOf(plan, ranks.size(), std::numeric_limits<uint64_t>::max()).ByteSizeLong());
  if (used > kMaxHeadBytes) return OverHead("the notices of the answer", used);
  for (size_t k = 0; k < ranks.size(); ++k) {
    v1::ShardFrame frame;
    v1::Shard* shard = frame.add_shards();
    CPSHARD_RETURN_IF_ERROR(arrays.Encode(LayoutFor(plan, ranks[k], digest), shard));
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      EncodeOutput(OutputSpec(plan, plan.streams[s], ranks[k]), plan.streams[s],
                   answer.body.offsets[s * ranks.size() + k], shard->add_entries());
    }
    for (const ScalarEntry& scalar : plan.scalars) EncodeScalar(scalar, shard->add_entries());
    const int64_t size = static_cast<int64_t>(frame.ByteSizeLong());
    if (size > kMaxHeadBytes) {
      return OverHead(absl::StrCat("the head of the shard of rank ", ranks[k], ", with ",
                                   shard->entries_size(), " entries,"),
                      size);
    }
    if (used + size > kMaxHeadBytes) {
      answer.heads.emplace_back();
      used = 0;
    }
    frame.AppendToString(&answer.heads.back());
    used += size;
  }
  const uint64_t total = static_cast<uint64_t>(answer.body.size);
  answer.heads[0].insert(0, BeginOf(plan, ranks.size(), total).SerializeAsString());
  return answer;
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
