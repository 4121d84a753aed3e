#include "client/cli/demo/pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

// A stretch of a document inside one row.
struct Piece {
  const Document* document;
  int64_t begin, length;
};

using Row = std::vector<Piece>;

// Fills rows one after the other; the length of a row may differ from batch to batch.
class Rows {
 public:
  explicit Rows(const PackOptions& options) : options_(options) {}

  void Add(const Document& document) {
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

  const std::vector<Row>& rows() const { return rows_; }

 private:
  const PackOptions options_;
  std::vector<Row> rows_;
  int64_t used_ = 0;
};

// One batch under construction; every stream is [rows, length].
struct Streams {
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

template <typename T>
absl::Status AddTensor(const char* name, DType dtype, const std::vector<int64_t>& dims,
                       const std::vector<T>& values, BufferPool& pool, Batch& batch) {
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(values.size() * sizeof(T)));
  std::memcpy(buffer.data(), values.data(), buffer.size());
  batch.tensors.push_back({{name, dtype, dims}, std::move(buffer)});
  return absl::OkStatus();
}

absl::StatusOr<PackedBatch> Build(const std::vector<Row>& rows, size_t first, int64_t num_rows,
                                  int64_t length, BufferPool& pool) {
  PackedBatch packed;
  Streams streams(num_rows * length);
  for (int64_t r = 0; r < num_rows && first + r < rows.size(); ++r) {
    int64_t slot = r * length;
    for (const Piece& piece : rows[first + r]) {
      streams.Put(piece, slot);
      slot += piece.length;
      packed.real_tokens += piece.length;
    }
  }
  const std::vector<int64_t> dims = {num_rows, length};
  Batch& batch = packed.batch;
  CPSHARD_RETURN_IF_ERROR(AddTensor("input_ids", DType::kI64, dims, streams.ids, pool, batch));
  CPSHARD_RETURN_IF_ERROR(AddTensor("labels", DType::kI64, dims, streams.labels, pool, batch));
  CPSHARD_RETURN_IF_ERROR(
      AddTensor("position_ids", DType::kI64, dims, streams.positions, pool, batch));
  CPSHARD_RETURN_IF_ERROR(
      AddTensor("padding_mask", DType::kBool, dims, streams.padding, pool, batch));
  return packed;
}

}  // namespace

absl::StatusOr<std::vector<PackedBatch>> Pack(const std::vector<Document>& documents,
                                              const PackOptions& options, BufferPool& pool) {
  Rows rows(options);
  for (const Document& document : documents) rows.Add(document);
  std::vector<PackedBatch> batches;
  size_t last = 0;
  for (size_t first = 0; first < rows.rows().size(); first += options.rows) {
    CPSHARD_ASSIGN_OR_RETURN(PackedBatch batch,
                             Build(rows.rows(), first, options.rows, options.length, pool));
    batches.push_back(std::move(batch));
    last = first;
  }
  CPSHARD_ASSIGN_OR_RETURN(
      PackedBatch again,
      Build(rows.rows(), last, options.rows, std::max(options.last_length, options.length), pool));
  batches.push_back(std::move(again));
  return batches;
}

}  // namespace cpshard::demo
