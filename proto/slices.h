// gRPC messages as pieces of memory, both ways, without a copy.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/batch/buffer.h"
#include "proto/frames.h"

namespace cpshard {

// A received message as spans. The object keeps the bytes, and a slice holds a whole read block:
// copy out and drop. It may go on any thread.
class MessageSlices {
 public:
  // An empty list where gRPC cannot hand the slices over (a compressed message that is broken).
  explicit MessageSlices(grpc::ByteBuffer message);

  absl::Span<const Bytes> spans() const { return spans_; }

 private:
  // Goes after slices_, and so has the last reference to the bytes. gRPC prepares a thread for what
  // their end may set off (a quota to be reclaimed) when a message goes, but not when a slice does.
  const grpc::ByteBuffer message_;
  std::vector<grpc::Slice> slices_;
  std::vector<Bytes> spans_;
};

// `header` is copied; every piece becomes a slice of its own that lets its buffer go when gRPC is
// done with it - which is when the last byte is in the socket, not when the write is reported.
grpc::ByteBuffer ToMessage(const std::string& header, absl::Span<const Buffer> pieces);

}  // namespace cpshard
