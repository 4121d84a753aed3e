#include "client/incoming_answer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "core/plan/with_text.h"

namespace cpshard {
namespace {

template <typename... Parts>
absl::Status Broken(const ShardFrame& frame, const Parts&... parts) {
  return absl::InternalError(absl::StrCat("broken answer to batch ", frame.batch_id, ", frame ",
                                          frame.frame_seq, ": ", parts...));
}

}  // namespace

absl::Status IncomingAnswer::Begin(const ShardFrame& frame) {
  begin_ = *frame.begin;
  if (begin_.total_bytes < 0 || begin_.total_bytes > max_bytes_) {
    return Broken(frame, "it announces ", begin_.total_bytes, " bytes; at most ", max_bytes_,
                  " can be");
  }
  absl::StatusOr<Buffer> buffer = pool_->Allocate(static_cast<size_t>(begin_.total_bytes));
  if (!buffer.ok()) {
    return WithText(  // NeverFits stays
        buffer.status(),
        absl::StrCat("no room for an answer of ", begin_.total_bytes,
                     " bytes beside those held by this process: ", buffer.status().message()));
  }
  buffer_ = *std::move(buffer);
  return absl::OkStatus();
}

absl::Status IncomingAnswer::CheckPlace(const ShardFrame& frame) const {
  if (num_heads_ > begin_.num_shards) {
    return Broken(frame, num_heads_, " shards, ", begin_.num_shards, " were announced");
  }
  if (frame.body.size > 0 && num_heads_ < begin_.num_shards) {
    return Broken(frame, "a body after ", num_heads_, " of ", begin_.num_shards, " shards");
  }
  if (frame.body.size > 0 && frame.offset != static_cast<uint64_t>(received_)) {
    return Broken(frame, "its body lies at ", frame.offset, ", the one before ended at ",
                  received_);
  }
  if (frame.body.size > begin_.total_bytes - received_) {
    return Broken(frame, frame.body.size, " bytes at ", received_, " leave the buffer of ",
                  begin_.total_bytes);
  }
  if (frame.last &&
      (num_heads_ != begin_.num_shards || received_ + frame.body.size != begin_.total_bytes)) {
    return Broken(frame, "it is the last, after ", num_heads_, " of ", begin_.num_shards,
                  " shards and ", received_ + frame.body.size, " of ", begin_.total_bytes,
                  " bytes");
  }
  return absl::OkStatus();
}

absl::Status IncomingAnswer::Take(ShardFrame frame) {
  if (complete_) return Broken(frame, "the answer is complete");
  if (frame.frame_seq != next_seq_) return Broken(frame, "frame ", next_seq_, " was expected");
  if (frame.begin.has_value() != (next_seq_ == 0)) {
    return Broken(frame, next_seq_ == 0 ? "it has no begin" : "a second begin");
  }
  ++next_seq_;
  if (frame.begin) CPSHARD_RETURN_IF_ERROR(Begin(frame));
  num_heads_ += frame.num_shards;
  CPSHARD_RETURN_IF_ERROR(CheckPlace(frame));
  for (const Bytes piece : frame.body.pieces) {
    std::memcpy(buffer_.data() + received_, piece.data(), piece.size());
    received_ += static_cast<int64_t>(piece.size());
  }
  complete_ = frame.last;
  frame.body = {};
  if (frame.begin || frame.num_shards > 0) heads_.push_back(std::move(frame));
  return absl::OkStatus();
}

absl::StatusOr<ShardResult> IncomingAnswer::Finish() {
  absl::StatusOr<std::vector<RankShard>> shards = ReadShards(heads_, buffer_);
  if (!shards.ok()) {
    return absl::InternalError(absl::StrCat("broken answer: ", shards.status().message()));
  }
  return ShardResult{*std::move(shards), std::move(begin_.notices), std::move(begin_.totals),
                     std::move(begin_.executor)};
}

absl::StatusOr<std::optional<ShardResult>> IncomingAnswers::Take(ShardFrame frame) {
  const auto answer = answers_.try_emplace(frame.batch_id, max_bytes_, pool_).first;
  absl::Status taken = answer->second.Take(std::move(frame));
  if (taken.ok() && !answer->second.complete()) return std::nullopt;
  absl::StatusOr<ShardResult> shards =
      taken.ok() ? answer->second.Finish() : absl::StatusOr<ShardResult>(std::move(taken));
  answers_.erase(answer);
  return shards;
}

}  // namespace cpshard
