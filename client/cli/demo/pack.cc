#include "client/cli/demo/pack.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int64_t kNoLabel = -100;
constexpr int64_t kUnused = -1000;  // place in the lengths of a row

template <typename T>
absl::Status AddTensor(const char* name, DType dtype, std::vector<int64_t> dims,
                       const std::vector<T>& values, BufferPool& pool,
                       std::vector<Tensor>& tensors) {
  CPSHARD_ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(values.size() * sizeof(T)));
  std::memcpy(buffer.data(), values.data(), buffer.size());
  tensors.push_back({{name, dtype, std::move(dims)}, std::move(buffer)});
  return absl::OkStatus();
}

// [rows, n], unused places at the end.
absl::Status AddLengths(const char* name, const std::vector<std::vector<int64_t>>& rows,
                        BufferPool& pool, Batch& batch) {
  size_t width = 0;
  for (const std::vector<int64_t>& row : rows) width = std::max(width, row.size());
  std::vector<int64_t> values;
  for (const std::vector<int64_t>& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
    values.resize(values.size() + width - row.size(), kUnused);
  }
  const std::vector<int64_t> dims = {static_cast<int64_t>(rows.size()),
                                     static_cast<int64_t>(width)};
  return AddTensor(name, DType::kI64, dims, values, pool, batch.tensors);
}

}  // namespace

Packing::Packing(const std::vector<Document>& documents, const PackOptions& options)
    : options_(options) {
  for (const Document& document : documents) Add(document);
}

void Packing::Add(const Document& document) {
  const int64_t size = static_cast<int64_t>(document.text.size());
  const int64_t multiple = options_.document_multiple.value_or(1);
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
    const int64_t columns = (take + multiple - 1) / multiple * multiple;
    rows_.back().push_back({&document, begin, take, columns});
    used_ += columns;
    begin += take;
  }
}

// One batch under construction.
class Packing::Streams {
 public:
  Streams(int64_t rows, int64_t length)
      : dims_{rows, length},
        ids_(rows * length, kPadToken),
        labels_(rows * length, kNoLabel),
        positions_(rows * length, 0),
        padding_(rows * length, 1),
        real_lengths_(rows),
        padded_lengths_(rows) {}

  void Put(int64_t row, const Row& pieces) {
    int64_t slot = row * dims_[1];
    end_of_labels_ = slot;
    for (const Piece& piece : pieces) {
      PutTokens(piece, slot);
      std::iota(positions_.begin() + slot, positions_.begin() + slot + piece.columns, 0);
      real_lengths_[row].push_back(piece.length);
      padded_lengths_[row].push_back(piece.columns);
      slot += piece.columns;
      real_tokens_ += piece.length;
    }
    tokens_excl_tail_pad_ += end_of_labels_ - row * dims_[1];
  }

  absl::StatusOr<PackedBatch> Finish(bool with_lengths, BufferPool& pool) const {
    PackedBatch packed;
    packed.real_tokens = real_tokens_;
    packed.label_tokens = label_tokens_;
    packed.tokens_excl_tail_pad = tokens_excl_tail_pad_;
    std::vector<Tensor>& expected = packed.expected;
    CPSHARD_RETURN_IF_ERROR(AddTensor("input_ids", DType::kI64, dims_, ids_, pool, expected));
    CPSHARD_RETURN_IF_ERROR(AddTensor("labels", DType::kI64, dims_, labels_, pool, expected));
    CPSHARD_RETURN_IF_ERROR(
        AddTensor("position_ids", DType::kI64, dims_, positions_, pool, expected));
    if (with_lengths) packed.batch.tensors = expected;
    CPSHARD_RETURN_IF_ERROR(
        AddTensor("padding_mask", DType::kBool, dims_, padding_, pool, expected));
    if (!with_lengths) {
      packed.batch.tensors = expected;
      return packed;
    }
    CPSHARD_RETURN_IF_ERROR(AddLengths("seq_lens", real_lengths_, pool, packed.batch));
    CPSHARD_RETURN_IF_ERROR(AddLengths("seq_lens_padded", padded_lengths_, pool, packed.batch));
    packed.batch.scalars.push_back({"qkv_format", std::string("thd")});
    CPSHARD_RETURN_IF_ERROR(AddMadeOfLengths(pool, expected));
    return packed;
  }

 private:
  void PutTokens(const Piece& piece, int64_t slot) {
    for (int64_t i = 0; i < piece.length; ++i, ++slot) {
      const std::string& text = piece.document->text;
      ids_[slot] = static_cast<unsigned char>(text[piece.begin + i]);
      const bool last = i + 1 == piece.length;
      if (!last) {
        end_of_labels_ = slot + 1;
        ++label_tokens_;
      }
      labels_[slot] = last ? kNoLabel : static_cast<unsigned char>(text[piece.begin + i + 1]);
      padding_[slot] = 0;
    }
  }

  // What every rank is told of the documents (contract 4.7), where rows are filled: then absorption
  // (5.3) makes no other boundaries than the padded lengths do.
  absl::Status AddMadeOfLengths(BufferPool& pool, std::vector<Tensor>& expected) const {
    std::vector<int32_t> columns(ids_.size()), boundaries = {0};
    std::iota(columns.begin(), columns.end(), 0);
    int64_t longest = 0;
    for (const std::vector<int64_t>& row : padded_lengths_) {
      for (int64_t length : row) {
        boundaries.push_back(static_cast<int32_t>(boundaries.back() + length));
        longest = std::max(longest, length);
      }
    }
    const std::vector<int64_t> ends = {static_cast<int64_t>(boundaries.size())};
    const std::vector<int32_t> max_seqlen = {static_cast<int32_t>(longest)};
    CPSHARD_RETURN_IF_ERROR(
        AddTensor("_thd_local_indices", DType::kI32, dims_, columns, pool, expected));
    CPSHARD_RETURN_IF_ERROR(AddTensor("cu_seqlens", DType::kI32, ends, boundaries, pool, expected));
    return AddTensor("max_seqlen", DType::kI32, {}, max_seqlen, pool, expected);
  }

  const std::vector<int64_t> dims_;
  std::vector<int64_t> ids_, labels_, positions_;
  std::vector<uint8_t> padding_;
  std::vector<std::vector<int64_t>> real_lengths_, padded_lengths_;  // of every row
  int64_t real_tokens_ = 0, label_tokens_ = 0, tokens_excl_tail_pad_ = 0;
  int64_t end_of_labels_ = 0;  // of the row that is put: slot behind its last one
};

int64_t Packing::num_batches() const {
  const int64_t rows = static_cast<int64_t>(rows_.size());
  return (rows + options_.rows - 1) / options_.rows + 1;
}

// The pieces of a row as a batch has them; a row beyond the last is empty.
Packing::Row Packing::RowOf(size_t index, int64_t length) const {
  Row row = index < rows_.size() ? rows_[index] : Row();
  if (!options_.document_multiple) return row;
  if (row.empty()) row.push_back({nullptr, 0, 0, 0});
  for (const Piece& piece : row) length -= piece.columns;
  row.back().columns += length;
  return row;
}

absl::StatusOr<PackedBatch> Packing::Make(int64_t batch, BufferPool& pool) const {
  const bool again = batch + 1 == num_batches();
  const int64_t length = again ? std::max(options_.last_length, options_.length) : options_.length;
  const int64_t first = (again ? batch - 1 : batch) * options_.rows;
  Streams streams(options_.rows, length);
  for (int64_t r = 0; r < options_.rows; ++r) streams.Put(r, RowOf(first + r, length));
  return streams.Finish(options_.document_multiple.has_value(), pool);
}

}  // namespace cpshard::demo
