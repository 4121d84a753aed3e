#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/entry_codec.h"
#include "proto/frame_parts.h"
#include "proto/frames.h"
#include "proto/head_codec.h"

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

}  // namespace

absl::StatusOr<BatchFrame> DecodeBatchFrame(absl::Span<const Bytes> message) {
  BatchFrame frame;
  const auto header = std::make_shared<v1::BatchFrame>();
  CPSHARD_ASSIGN_OR_RETURN(frame.body, ParseFrame(message, "BatchFrame", header.get()));
  frame.batch_id = header->batch_id();
  frame.frame_seq = header->frame_seq();
  if (header->has_begin()) frame.begin = {header, &header->begin()};
  frame.offset = header->offset();
  frame.last = header->last();
  if (header->has_crc32c()) frame.crc32c = header->crc32c();
  frame.cancel = header->cancel();
  return frame;
}

absl::StatusOr<BatchBegin> DecodeBatchBegin(const v1::BatchBegin& message, const Limits& limits) {
  BatchBegin begin;
  CPSHARD_RETURN_IF_ERROR(CheckTotal(message.total_bytes(), limits));
  CPSHARD_RETURN_IF_ERROR(DecodeHead(message, limits, &begin));
  CPSHARD_ASSIGN_OR_RETURN(begin.places,
                           CheckPlaces(message.entries(), begin.spec, message.total_bytes(),
                                       Sharing::kNone, /*specs_alone=*/false));
  begin.total_bytes = static_cast<int64_t>(message.total_bytes());
  CPSHARD_RETURN_IF_ERROR(CheckEnd(begin.total_bytes, begin.places));
  return begin;
}

absl::StatusOr<std::string> EncodeBatchBegin(const BatchBegin& begin) {
  v1::BatchBegin message;
  CPSHARD_RETURN_IF_ERROR(EncodeHead(begin.options, begin.cp_size, begin.ranks, &message));
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

std::string EncodeBatchFrame(const BatchFrame& frame, absl::string_view begin, size_t body_size) {
  v1::BatchFrame message;
  message.set_batch_id(frame.batch_id);
  message.set_frame_seq(frame.frame_seq);
  message.set_offset(frame.offset);
  message.set_last(frame.last);
  if (frame.crc32c) message.set_crc32c(*frame.crc32c);
  message.set_cancel(frame.cancel);
  std::string header = message.SerializeAsString();
  if (!begin.empty()) {
    AppendFieldStart(v1::BatchFrame::kBeginFieldNumber, begin.size(), &header);
    header.append(begin.data(), begin.size());
  }
  return EndHeader(std::move(header), body_size);
}

}  // namespace cpshard
