#include "proto/slices.h"

#include <utility>

namespace cpshard {
namespace {

void LetGo(void* buffer) { delete static_cast<Buffer*>(buffer); }

}  // namespace

MessageSlices::MessageSlices(grpc::ByteBuffer message) : message_(std::move(message)) {
  if (!message_.Dump(&slices_).ok()) slices_.clear();
  spans_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) {
    spans_.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
}

grpc::ByteBuffer ToMessage(const std::string& header, absl::Span<const Buffer> pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + pieces.size());
  slices.emplace_back(header);
  for (const Buffer& piece : pieces) {
    if (piece.size() == 0) continue;
    slices.emplace_back(piece.data(), piece.size(), LetGo, new Buffer(piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace cpshard
