// gRPC messages as pieces of memory, both ways, without a copy.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/batch/buffer.h"
#include "proto/frames.h"

namespace cpshard {

// A received message as spans. The object keeps the bytes; so does every span's slice until it
// goes, and a slice holds a whole read block: copy out and drop.
class MessageSlices {
 public:
  // An empty list where gRPC cannot hand the slices over (a compressed message that is broken).
  explicit MessageSlices(const grpc::ByteBuffer& message);

  absl::Span<const Bytes> spans() const { return spans_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<Bytes> spans_;
};

// `header` is copied; every piece becomes a slice of its own that lets its buffer go when gRPC is
// done with it - which is when the last byte is in the socket, not when the write is reported.
grpc::ByteBuffer ToMessage(const std::string& header, absl::Span<const Buffer> pieces);

}  // namespace cpshard
