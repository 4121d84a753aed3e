#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/frame_parts.h"
#include "proto/frames.h"
#include "proto/session_parts.h"
#include "proto/shard_codec.h"
#include "proto/status_codec.h"
#include "proto/totals_codec.h"

namespace cpshard {
namespace {

void EncodeError(const BatchError& error, v1::BatchStatus* message) {
  EncodeStatus(error.status, message);
  if (!error.retry_after_ms) return;
  message->set_retry_after_ms(static_cast<uint32_t>(
      std::clamp<int64_t>(*error.retry_after_ms, 0, std::numeric_limits<uint32_t>::max())));
}

BatchError DecodeError(const v1::BatchStatus& message) {
  BatchError error{DecodeStatus(message), std::nullopt};
  if (message.has_retry_after_ms()) error.retry_after_ms = message.retry_after_ms();
  return error;
}

// A number of bytes that a server states.
absl::StatusOr<int64_t> ToBytes(uint64_t bytes, absl::string_view what, uint64_t batch_id) {
  if (bytes <= static_cast<uint64_t>(ReplyLimits().max_batch_bytes)) {
    return static_cast<int64_t>(bytes);
  }
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " of batch ", batch_id, " is ",
                                                 bytes, " bytes, more than an answer can have"));
}

}  // namespace

absl::StatusOr<ShardFrame> DecodeShardFrame(absl::Span<const Bytes> message, FrameOf call) {
  ShardFrame frame;
  const auto header = std::make_shared<v1::ShardFrame>();
  CPSHARD_ASSIGN_OR_RETURN(frame.body, ParseFrame(message, "ShardFrame", call, header.get()));
  frame.batch_id = header->batch_id();
  frame.frame_seq = header->frame_seq();
  if (header->has_begin()) {
    const v1::ShardsBegin& begin = header->begin();
    frame.begin = {begin.num_shards(), 0, DecodeNotices(begin.notices()),
                   DecodeTotals(begin.totals()), begin.executor()};
    CPSHARD_ASSIGN_OR_RETURN(frame.begin->total_bytes,
                             ToBytes(begin.total_bytes(), "total_bytes", frame.batch_id));
  }
  frame.num_shards = header->shards_size();
  frame.offset = header->offset();
  frame.last = header->last();
  if (header->has_credit()) {
    frame.credit = {0, header->credit().batches()};
    CPSHARD_ASSIGN_OR_RETURN(frame.credit->bytes,
                             ToBytes(header->credit().bytes(), "credit", frame.batch_id));
  }
  if (header->has_status()) frame.error = DecodeError(header->status());
  frame.draining = header->draining();
  if (call == FrameOf::kSession && header->has_delivery()) {
    CPSHARD_ASSIGN_OR_RETURN(frame.delivery, DecodeDelivery(header->delivery(), frame.batch_id));
  }
  frame.message = header;
  return frame;
}

std::string EncodeShardFrame(const ShardFrame& frame, absl::string_view head, size_t body_size) {
  v1::ShardFrame message;
  message.set_batch_id(frame.batch_id);
  message.set_frame_seq(frame.frame_seq);
  message.set_offset(frame.offset);
  message.set_last(frame.last);
  if (frame.credit) {
    message.mutable_credit()->set_bytes(frame.credit->bytes);
    message.mutable_credit()->set_batches(frame.credit->batches);
  }
  if (frame.error) EncodeError(*frame.error, message.mutable_status());
  message.set_draining(frame.draining);
  if (frame.delivery) EncodeDelivery(*frame.delivery, message.mutable_delivery());
  std::string header = message.SerializeAsString();
  header.append(head.data(), head.size());
  return EndHeader(std::move(header), body_size);
}

}  // namespace cpshard
