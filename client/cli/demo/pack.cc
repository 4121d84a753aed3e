#include "client/cli/demo/pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard::demo {

Packing::Packing(const std::vector<Document>& documents, const PackOptions& options)
    : options_(options) {
  for (const Document& document : documents) Add(document);
}

void Packing::Add(const Document& document) {
  const int64_t size = static_cast<int64_t>(document.text.size());
  for (int64_t begin = 0; begin < size;) {
    const int64_t left = size - begin;
    const int64_t room = options_.length - used_;
    // Split only what no row can hold whole.
    if (rows_.empty() || room == 0 || (left > room && left <= options_.length)) {
      rows_.emplace_back();
      used_ = 0;
      continue;
    }
    const int64_t take = std::min(left, room);
    rows_.back().push_back({&document, begin, take});
    used_ += take;
    begin += take;
  }
}

// One batch under construction; every stream is [rows, length].
struct Packing::Streams {
  std::vector<int64_t> ids, labels, positions;
  std::vector<uint8_t> padding;

  explicit Streams(size_t slots)
      : ids(slots, kPadToken), labels(slots, -100), positions(slots, 0), padding(slots, 1) {}

  void Put(const Piece& piece, int64_t slot) {
    for (int64_t i = 0; i < piece.length; ++i, ++slot) {
      const std::string& text = piece.document->text;
      ids[slot] = static_cast<unsigned char>(text[piece.begin + i]);
      const bool last = i + 1 == piece.length;
      labels[slot] = last ? -100 : static_cast<unsigned char>(text[piece.begin + i + 1]);
      positions[slot] = i;
      padding[slot] = 0;
    }
  }
};

namespace {

template <typename T>
absl::Status AddTensor(const char* name, DType dtype, const std::vector<int64_t>& dims,
                       const std::vector<T>& values, BufferPool& pool, Batch& batch) {
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(values.size() * sizeof(T)));
  std::memcpy(buffer.data(), values.data(), buffer.size());
  batch.tensors.push_back({{name, dtype, dims}, std::move(buffer)});
  return absl::OkStatus();
}

}  // namespace

int64_t Packing::num_batches() const {
  const int64_t rows = static_cast<int64_t>(rows_.size());
  return (rows + options_.rows - 1) / options_.rows + 1;
}

absl::StatusOr<PackedBatch> Packing::Make(int64_t batch, BufferPool& pool) const {
  const bool again = batch + 1 == num_batches();
  const int64_t length = again ? std::max(options_.last_length, options_.length) : options_.length;
  const size_t first = (again ? batch - 1 : batch) * options_.rows;
  PackedBatch packed;
  Streams streams(options_.rows * length);
  for (int64_t r = 0; r < options_.rows && first + r < rows_.size(); ++r) {
    int64_t slot = r * length;
    for (const Piece& piece : rows_[first + r]) {
      streams.Put(piece, slot);
      slot += piece.length;
      packed.real_tokens += piece.length;
    }
  }
  const std::vector<int64_t> dims = {options_.rows, length};
  Batch& out = packed.batch;
  CPSHARD_RETURN_IF_ERROR(AddTensor("input_ids", DType::kI64, dims, streams.ids, pool, out));
  CPSHARD_RETURN_IF_ERROR(AddTensor("labels", DType::kI64, dims, streams.labels, pool, out));
  CPSHARD_RETURN_IF_ERROR(
      AddTensor("position_ids", DType::kI64, dims, streams.positions, pool, out));
  CPSHARD_RETURN_IF_ERROR(
      AddTensor("padding_mask", DType::kBool, dims, streams.padding, pool, out));
  return packed;
}

}  // namespace cpshard::demo
