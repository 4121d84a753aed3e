// Documents packed into rows: the batches that the demo sends.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/demo/text.h"
#include "core/batch/batch.h"

namespace cpshard::demo {

inline constexpr int64_t kPadToken = 256;  // bytes are the tokens 0 ... 255

struct PackOptions {
  int64_t rows = 4;            // B
  int64_t length = 8190;       // S of all batches; padded at cp_size 4
  int64_t last_length = 8192;  // S of one more: the last batch again, in longer rows, unpadded
};

struct PackedBatch {
  Batch batch;
  int64_t real_tokens = 0;
};

// Documents laid out in rows, next-fit: a document that does not fit begins the next row, one that
// is longer than a row is split. Batches are made one at a time, so that who needs some of them
// holds no others. Thread-safe once made.
class Packing {
 public:
  // `documents` must outlive the object; there is at least one, and none is empty.
  Packing(const std::vector<Document>& documents, const PackOptions& options);

  // The one in longer rows, which is the last, included.
  int64_t num_batches() const;

  // Streams, all [B, S]: input_ids, labels (the next token of the same piece, else -100),
  // position_ids (from 0 in every piece; 0 in the row's tail), all int64; padding_mask bool (True
  // in the tail). There are no length streams. Precondition: 0 <= batch < num_batches().
  absl::StatusOr<PackedBatch> Make(int64_t batch, BufferPool& pool) const;

 private:
  struct Piece {  // a stretch of a document inside one row
    const Document* document;
    int64_t begin, length;
  };
  using Row = std::vector<Piece>;
  struct Streams;

  void Add(const Document& document);

  const PackOptions options_;
  std::vector<Row> rows_;
  int64_t used_ = 0;  // of the last row
};

}  // namespace cpshard::demo
