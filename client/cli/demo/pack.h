// Documents packed into rows: the batches that the demo sends.
#pragma once

#include <cstdint>
#include <optional>
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

  // Absent: documents stand side by side, and the batch does not say where they end. Else every
  // document is padded to a multiple of this, the last one of a row to the row's end, and the batch
  // has their lengths, as layout thd needs it. Divides both lengths.
  std::optional<int64_t> document_multiple;
};

struct PackedBatch {
  Batch batch;
  std::vector<Tensor> expected;  // what comes back of it, gathered and trimmed
  int64_t real_tokens = 0;
  int64_t label_tokens = 0;          // those of them that have a label
  int64_t tokens_excl_tail_pad = 0;  // of every row, up to its last label
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

  // Streams, all int64 [B, S]: input_ids, labels (the next token of the same piece, else -100),
  // position_ids (from 0 in every piece; 0 in the row's tail). Further
  //   without document_multiple: padding_mask, bool [B, S], True in the row's tail;
  //   with it: seq_lens and seq_lens_padded, int64 [B, pieces of the fullest row], -1000 in unused
  //   places; qkv_format "thd". The positions of a piece go on over its padding; a row without text
  //   is the padding of one empty document.
  // Precondition: 0 <= batch < num_batches().
  absl::StatusOr<PackedBatch> Make(int64_t batch, BufferPool& pool) const;

 private:
  struct Piece {  // a stretch of a document inside one row
    const Document* document;
    int64_t begin, length;
    int64_t columns;  // with its padding
  };
  using Row = std::vector<Piece>;
  class Streams;

  void Add(const Document& document);
  Row RowOf(size_t index, int64_t length) const;

  const PackOptions options_;
  std::vector<Row> rows_;
  int64_t used_ = 0;  // columns of the last row
};

}  // namespace cpshard::demo
