// Where the frames of a batch are cut.
#pragma once

#include <cstdint>
#include <memory>

#include "client/outgoing_batch.h"

namespace cpshard {

// One frame to write. Its bytes are made elsewhere.
struct FrameToSend {
  uint64_t wire_id = 0;
  uint32_t seq = 0;
  int64_t offset = 0;
  int64_t size = 0;  // of the body
  bool last = false;
  bool cancel = false;
  std::shared_ptr<const OutgoingBatch> batch;  // nullptr in a cancel
};

// Bytes of a body, for a server that takes `max_chunk_bytes` (0: it does not say).
int64_t ChunkBytes(int64_t max_chunk_bytes);

// How far a batch of a connection is written.
struct FrameCursor {
  uint32_t next_seq = 0;
  int64_t next_offset = 0;
  bool complete = false;

  // The next frame of a batch of `bytes`, without the batch. With checksums a last frame without a
  // body carries the one of the last body. Precondition: !complete.
  FrameToSend Next(uint64_t wire_id, int64_t bytes, int64_t chunk_bytes, bool checksums);
};

}  // namespace cpshard
