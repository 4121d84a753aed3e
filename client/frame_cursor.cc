#include "client/frame_cursor.h"

#include <algorithm>

#include "proto/frames.h"

namespace cpshard {
namespace {

constexpr int64_t kAlignment = 64;  // of the end of a body

}  // namespace

int64_t ChunkBytes(int64_t max_chunk_bytes) {
  if (max_chunk_bytes < kAlignment) return kChunkBytes;
  return std::min(kChunkBytes, max_chunk_bytes / kAlignment * kAlignment);
}

FrameToSend FrameCursor::Next(uint64_t wire_id, int64_t bytes, int64_t chunk_bytes,
                              bool checksums) {
  FrameToSend frame{.wire_id = wire_id, .seq = next_seq, .offset = next_offset};
  frame.size = std::min(chunk_bytes, bytes - next_offset);
  const bool ends = next_offset + frame.size == bytes;
  frame.last = ends && (!checksums || frame.size == 0);
  ++next_seq;
  next_offset += frame.size;
  complete = frame.last;
  return frame;
}

}  // namespace cpshard
