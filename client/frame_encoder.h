// Frames of a batch as gRPC messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>

#include "client/frame_cursor.h"
#include "proto/session_messages.h"

namespace cpshard {

// Not thread-safe. Frames of one stream, in the order in which they are written.
class FrameEncoder {
 public:
  // `checksums`: every frame of a batch carries the CRC-32C of the body before it.
  explicit FrameEncoder(bool checksums) : checksums_(checksums) {}

  // The bytes of the tensors are not copied: they live as long as gRPC needs them. `push`: the head
  // of a batch that is pushed, with its first frame.
  grpc::ByteBuffer Encode(const FrameToSend& next, std::optional<PushHead> push = {});

 private:
  const bool checksums_;
  uint32_t last_crc_ = 0;  // of the last body; one batch is written at a time
};

}  // namespace cpshard
