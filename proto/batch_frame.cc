#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/entry_codec.h"
#include "proto/executor_codec.h"
#include "proto/frame_parts.h"
#include "proto/frames.h"
#include "proto/head_codec.h"
#include "proto/session_parts.h"

namespace cpshard {
namespace {

absl::Status CheckTotal(uint64_t total, const Limits& limits) {
  if (total <= static_cast<uint64_t>(limits.max_batch_bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the batch's total_bytes of ", total,
                                                 " is over the limit of ", limits.max_batch_bytes,
                                                 " bytes; split it into smaller batches"));
}

// A total that says more than the tensors do would keep memory for nothing.
absl::Status CheckEnd(int64_t total, const std::vector<TensorPlace>& places) {
  int64_t end = 0;
  for (const TensorPlace& place : places) end = std::max(end, place.offset + place.nbytes);
  if (total == end || total == AlignUp(end)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the batch's total_bytes of ", total,
                                                 " is not the end of its last tensor, ", end,
                                                 ", nor that rounded up to 64"));
}

// A string that is not UTF-8 would make the frame unreadable, and that ends the stream.
absl::Status CheckText(const v1::BatchBegin& message) {
  using google::protobuf::internal::IsStructurallyValidUTF8;
  for (int i = 0; i < message.entries_size(); ++i) {
    const v1::Entry& entry = message.entries(i);
    if (IsStructurallyValidUTF8(entry.name()) &&
        IsStructurallyValidUTF8(entry.scalar().string_value())) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("name or text of entry ", i,
                                                   " of the batch is not UTF-8: '",
                                                   absl::CHexEscape(entry.name()), "'"));
  }
  return absl::OkStatus();
}

absl::Status CheckSessionFrame(const v1::BatchFrame& header, const FrameBody& body) {
  const bool of_batch =
      header.has_begin() || header.has_push() || header.last() || header.cancel() || body.size > 0;
  if (header.has_hello() + header.has_end() + of_batch > 1) {
    return absl::InvalidArgumentError(absl::StrCat("a BatchFrame has `",
                                                   header.has_hello() ? "hello" : "end",
                                                   "` and something else; send two"));
  }
  if (header.has_begin() == header.has_push()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("batch ", header.batch_id(), ": a BatchFrame of PushBatches has ",
                   header.has_begin() ? "`begin` without `push`" : "`push` without `begin`",
                   "; they stand together"));
}

// Also what is of a session.
absl::Status DecodeSessionFields(const v1::BatchFrame& header, BatchFrame* frame) {
  CPSHARD_RETURN_IF_ERROR(CheckSessionFrame(header, frame->body));
  if (header.has_push()) {
    CPSHARD_ASSIGN_OR_RETURN(frame->push, DecodePush(header.push()));
  }
  if (header.has_hello()) {
    CPSHARD_ASSIGN_OR_RETURN(frame->hello, DecodeHello(header.hello()));
  }
  if (header.has_end()) {
    CPSHARD_ASSIGN_OR_RETURN(frame->end, DecodeEnd(header.end()));
  }
  return absl::OkStatus();
}

// Of a begin whose options, cp_size, ranks and spec are read.
absl::StatusOr<BatchBegin> WithPlaces(const v1::BatchBegin& message, BatchBegin begin) {
  CPSHARD_ASSIGN_OR_RETURN(begin.places,
                           CheckPlaces(message.entries(), begin.spec, message.total_bytes(),
                                       Sharing::kNone, /*specs_alone=*/false));
  begin.total_bytes = static_cast<int64_t>(message.total_bytes());
  CPSHARD_RETURN_IF_ERROR(CheckEnd(begin.total_bytes, begin.places));
  return begin;
}

// ... and the other way round.
absl::StatusOr<std::string> EncodeWithPlaces(const BatchBegin& begin, v1::BatchBegin message) {
  for (size_t i = 0; i < begin.places.size(); ++i) {
    v1::Entry* entry = message.add_entries();
    EncodeSpec(begin.spec.tensors[i], entry);
    entry->set_offset(begin.places[i].offset);
    entry->set_nbytes(begin.places[i].nbytes);
  }
  for (const ScalarEntry& scalar : begin.spec.scalars) EncodeScalar(scalar, message.add_entries());
  message.set_total_bytes(begin.total_bytes);
  CPSHARD_RETURN_IF_ERROR(CheckText(message));
  const int64_t size = static_cast<int64_t>(message.ByteSizeLong());
  if (size <= kMaxHeadBytes) return message.SerializeAsString();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the head of the batch, with ", message.entries_size(), " entries, has ", size,
      " bytes, over the ", kMaxHeadBytes, " that a frame takes; send fewer or shorter entries"));
}

}  // namespace

int64_t StatedBytes(const v1::BatchBegin& message) {
  return static_cast<int64_t>(std::min(message.total_bytes(), uint64_t{1} << 62));
}

absl::StatusOr<BatchFrame> DecodeBatchFrame(absl::Span<const Bytes> message, FrameOf call) {
  BatchFrame frame;
  const auto header = std::make_shared<v1::BatchFrame>();
  CPSHARD_ASSIGN_OR_RETURN(frame.body, ParseFrame(message, "BatchFrame", call, header.get()));
  frame.batch_id = header->batch_id();
  frame.frame_seq = header->frame_seq();
  if (header->has_begin()) frame.begin = {header, &header->begin()};
  frame.offset = header->offset();
  frame.last = header->last();
  if (header->has_crc32c()) frame.crc32c = header->crc32c();
  frame.cancel = header->cancel();
  if (call == FrameOf::kSession) CPSHARD_RETURN_IF_ERROR(DecodeSessionFields(*header, &frame));
  return frame;
}

absl::StatusOr<BatchBegin> DecodeBatchBegin(const v1::BatchBegin& message, const Limits& limits) {
  BatchBegin begin;
  CPSHARD_RETURN_IF_ERROR(CheckTotal(message.total_bytes(), limits));
  CPSHARD_ASSIGN_OR_RETURN(begin.executor, DecodeExecutor(message.executor()));
  CPSHARD_RETURN_IF_ERROR(DecodeHead(message, limits, &begin));
  return WithPlaces(message, std::move(begin));
}

absl::StatusOr<BatchBegin> DecodeBatchBegin(const v1::BatchBegin& message, const Options& options,
                                            std::optional<int64_t> cp_size, const Limits& limits) {
  const bool has_own = message.has_options() || message.has_cp_size() || message.ranks_size() > 0 ||
                       message.executor() != v1::EXECUTOR_UNSPECIFIED;
  if (has_own) {
    return absl::InvalidArgumentError(
        "a batch that is pushed has options, cp_size, ranks or an executor of its own; they are "
        "the group's, leave them out");
  }
  BatchBegin begin;
  CPSHARD_RETURN_IF_ERROR(CheckTotal(message.total_bytes(), limits));
  begin.options = options;
  begin.cp_size = cp_size;
  CPSHARD_RETURN_IF_ERROR(DecodeSpecsAndRanks(message, limits, &begin));
  return WithPlaces(message, std::move(begin));
}

absl::StatusOr<std::string> EncodeBatchBegin(const BatchBegin& begin) {
  v1::BatchBegin message;
  CPSHARD_RETURN_IF_ERROR(EncodeHead(begin.options, begin.cp_size, begin.ranks, &message));
  message.set_executor(EncodeExecutor(begin.executor));
  return EncodeWithPlaces(begin, std::move(message));
}

absl::StatusOr<std::string> EncodePushedBegin(const BatchBegin& begin) {
  return EncodeWithPlaces(begin, v1::BatchBegin());
}

std::string EncodeBatchFrame(const BatchFrame& frame, absl::string_view begin, size_t body_size) {
  v1::BatchFrame message;
  message.set_batch_id(frame.batch_id);
  message.set_frame_seq(frame.frame_seq);
  message.set_offset(frame.offset);
  message.set_last(frame.last);
  if (frame.crc32c) message.set_crc32c(*frame.crc32c);
  message.set_cancel(frame.cancel);
  if (frame.push) EncodePush(*frame.push, message.mutable_push());
  if (frame.hello) EncodeHello(*frame.hello, message.mutable_hello());
  if (frame.end) EncodeEnd(*frame.end, message.mutable_end());
  std::string header = message.SerializeAsString();
  if (!begin.empty()) {
    AppendFieldStart(v1::BatchFrame::kBeginFieldNumber, begin.size(), &header);
    header.append(begin.data(), begin.size());
  }
  return EndHeader(std::move(header), body_size);
}

}  // namespace cpshard
