#include "client/frame_encoder.h"

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/batch/crc32c.h"
#include "proto/frames.h"
#include "proto/slices.h"

namespace cpshard {

grpc::ByteBuffer FrameEncoder::Encode(const FrameToSend& next, std::optional<PushHead> push) {
  BatchFrame frame{.batch_id = next.wire_id,
                   .frame_seq = next.seq,
                   .offset = static_cast<uint64_t>(next.offset),
                   .last = next.last,
                   .cancel = next.cancel,
                   .push = std::move(push)};
  if (next.cancel) return ToMessage(EncodeBatchFrame(frame, "", 0), {});

  const std::vector<Buffer> body = BodyOf(*next.batch, next.offset, next.size);
  if (checksums_) {
    if (next.seq > 0) frame.crc32c = last_crc_;
    last_crc_ = 0;
    for (const Buffer& piece : body) last_crc_ = Crc32c({piece.data(), piece.size()}, last_crc_);
  }
  const absl::string_view begin = next.seq == 0 ? next.batch->begin : absl::string_view();
  return ToMessage(EncodeBatchFrame(frame, begin, static_cast<size_t>(next.size)), body);
}

}  // namespace cpshard
