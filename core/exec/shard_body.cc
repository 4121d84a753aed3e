#include "core/exec/shard_body.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/exec/lowering.h"
#include "core/exec/moves.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// What stands between two outputs.
alignas(kBufferAlignment) constexpr std::byte kZeros[kBufferAlignment] = {};

// A stream as one rank gets it, or as all get it who hold it whole.
struct Output {
  size_t stream = 0;
  size_t dest = 0;  // of the stream's moves: the index of the rank; 0 of a stream held whole
  int64_t bytes = 0;
  int64_t staged_bytes = 0;  // what of it is written,
  int64_t staged_at = 0;     // and from where on in the staging block
};

// All outputs in the order of the body, those without bytes too.
std::vector<Output> OutputsOf(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  std::vector<Output> outputs;
  const auto add = [&](size_t s, size_t k) {
    outputs.push_back({s, k, NumBytes(OutputSpec(plan, plan.streams[s], ranks[k]))});
  };
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    if (plan.streams[s].extent != Extent::kLocal) add(s, 0);
  }
  for (size_t k = 0; k < ranks.size(); ++k) {
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      if (plan.streams[s].extent == Extent::kLocal) add(s, k);
    }
  }
  return outputs;
}

// Calls fn(move, outer index) for the moves of one destination in the order of its bytes, until fn
// says false.
template <typename Fn>
void ForMoves(const CutTask& cut, const std::vector<Moves>& rows, Fn fn) {
  for (int64_t outer = 0; outer < cut.outer; ++outer) {
    for (const Move& move : rows[(outer / cut.row_divisor) % rows.size()]) {
      if (!fn(move, outer)) return;
    }
  }
}

int64_t SourceOffset(const CutTask& cut, const Move& move, int64_t outer) {
  return outer * cut.source_stride + move.from * cut.column_bytes;
}

// Bytes of a stream's outputs: of each destination, and together.
struct OutputBytes {
  std::vector<int64_t> of;
  int64_t total = 0;
};

// Whether the copies to the outputs are runs of `min_view_bytes` on average; a run goes on as long
// as source and destination both do. Told by the moves as they are: to sort them by slots takes
// memory for every row and rank, which short runs are not worth.
bool RunsAreLong(const CutTask& cut, const OutputBytes& outputs, int64_t min_view_bytes) {
  if (cut.outer == 0) return false;
  struct Dest {
    int64_t row_bytes = 0;
    int64_t source_end = -1, end = -1;  // of the run that may go on
  };
  std::vector<Dest> dests;
  for (const int64_t bytes : outputs.of) dests.push_back({bytes / cut.outer});
  int64_t runs = 0, copied = 0;
  const int64_t most_runs = outputs.total / min_view_bytes;
  ForMoves(cut, *cut.moves, [&](const Move& move, int64_t outer) {
    if (move.kind != Move::Kind::kCopy) return true;
    Dest& dest = dests[move.dest];
    const int64_t from = SourceOffset(cut, move, outer);
    const int64_t to = outer * dest.row_bytes + move.to * cut.column_bytes;
    const int64_t bytes = move.length * cut.column_bytes;
    runs += from == dest.source_end && to == dest.end ? 0 : 1;
    copied += bytes;
    dest.source_end = from + bytes;
    dest.end = to + bytes;
    return runs <= most_runs;  // so many cannot be long
  });
  return runs > 0 && copied / runs >= min_view_bytes;
}

// Makes pieces of parts of buffers; parts that follow each other in one buffer become one piece.
class PieceList {
 public:
  void Add(const Buffer& from, int64_t offset, int64_t size) {
    if (size == 0) return;
    if (&from != from_ || offset != end_) {
      Close();
      from_ = &from;
      begin_ = offset;
    }
    end_ = offset + size;
  }

  std::vector<Buffer> Take() {
    Close();
    return std::move(pieces_);
  }

 private:
  void Close() {
    if (from_ != nullptr) pieces_.push_back(from_->Slice(begin_, end_ - begin_));
    from_ = nullptr;
  }

  const Buffer* from_ = nullptr;  // of the piece that may still grow
  int64_t begin_ = 0, end_ = 0;
  std::vector<Buffer> pieces_;
};

// The steps of ViewShards, in this order.
class BodyBuilder {
 public:
  BodyBuilder(const ShardPlan& plan, const Batch& batch, absl::Span<const int64_t> ranks,
              BufferPool& pool)
      : plan_(plan),
        pool_(pool),
        outputs_(OutputsOf(plan, ranks)),
        lowering_(plan, batch, ranks, pool),
        streams_(plan.streams.size()) {}

  // Decides which streams are viewed.
  absl::Status Lower(int64_t min_view_bytes) {
    std::vector<OutputBytes> outputs(streams_.size());
    for (const Output& output : outputs_) {  // of a stream in the order of its destinations
      outputs[output.stream].of.push_back(output.bytes);
      outputs[output.stream].total += output.bytes;
    }
    for (size_t s = 0; s < streams_.size(); ++s) {
      Stream& stream = streams_[s];
      CPSHARD_ASSIGN_OR_RETURN(stream.lowered, lowering_.Lower(plan_.streams[s]));
      if (stream.lowered.source.size() == 0) continue;  // nothing to view
      const CutTask& cut = stream.lowered.cut;
      const bool as_sent = plan_.streams[s].extent == Extent::kWhole && !stream.lowered.derived;
      if (!as_sent && !RunsAreLong(cut, outputs[s], min_view_bytes)) continue;
      SlotMoves& slots = slots_[cut.moves];  // streams of one geometry share
      if (slots.computed == nullptr) slots = BySlot(*cut.moves, outputs[s].of.size());
      stream.views = &slots;
    }
    return absl::OkStatus();
  }

  // Writes what is not viewed into one block, in the order of the body.
  absl::Status Write(Executor& executor) {
    int64_t staged = 0;
    for (Output& output : outputs_) {
      output.staged_bytes = output.bytes;
      if (const Stream& stream = streams_[output.stream]; stream.views != nullptr) {
        // A row that computes less than the one that computes most leaves a part unused.
        output.staged_bytes = stream.lowered.cut.outer * stream.lowered.cut.column_bytes *
                              stream.views->computed_columns[output.dest];
      }
      output.staged_at = staged;
      staged += AlignUp(output.staged_bytes);
    }
    CPSHARD_ASSIGN_OR_RETURN(staging_, pool_.Allocate(staged));
    AddCuts();
    return executor.Run(lowering_.tasks());
  }

  // The pieces, and how many bytes of them were written.
  void Collect(ShardBody& body) {
    PieceList pieces;
    for (const Output& output : outputs_) {
      const int64_t gap = AlignUp(output.bytes) - output.bytes;
      if (streams_[output.stream].views != nullptr) {
        body.copied_bytes += AddViews(output, pieces);
        pieces.Add(zeros_, 0, gap);
      } else {  // the gap is in the block, so that the next output can go on in the same piece
        if (gap > 0) std::memset(staging_.data() + output.staged_at + output.bytes, 0, gap);
        pieces.Add(staging_, output.staged_at, output.bytes + gap);
        body.copied_bytes += output.bytes;
      }
    }
    body.pieces = pieces.Take();
  }

 private:
  struct Stream {
    LoweredStream lowered;
    const SlotMoves* views = nullptr;  // of a stream whose copies are viewed; else it is written
  };

  // One task a stream: all ranks in source order.
  void AddCuts() {
    std::vector<CutTask> cuts;
    for (const Stream& stream : streams_) {
      cuts.push_back(stream.lowered.cut);
      if (stream.views != nullptr) cuts.back().moves = stream.views->computed;
    }
    std::vector<int64_t> bytes(streams_.size(), 0);
    for (const Output& output : outputs_) {
      CutTask& cut = cuts[output.stream];
      cut.dests.push_back(staging_.data() + output.staged_at);
      cut.dest_strides.push_back(cut.outer > 0 ? output.staged_bytes / cut.outer : 0);
      bytes[output.stream] += output.staged_bytes;
    }
    for (size_t s = 0; s < cuts.size(); ++s) {
      if (bytes[s] > 0) lowering_.Add(std::move(cuts[s]));
    }
  }

  // Adds a viewed output; returns how much of it does not lie in the batch.
  int64_t AddViews(const Output& output, PieceList& pieces) const {
    const Stream& stream = streams_[output.stream];
    const CutTask& cut = stream.lowered.cut;
    const int64_t staged_stride = cut.outer > 0 ? output.staged_bytes / cut.outer : 0;
    int64_t written = 0, row = -1, staged = 0;
    ForMoves(cut, stream.views->of[output.dest], [&](const Move& move, int64_t outer) {
      if (outer != row) staged = output.staged_at + outer * staged_stride;
      row = outer;
      const int64_t bytes = move.length * cut.column_bytes;
      const bool copy = move.kind == Move::Kind::kCopy;
      if (copy) {
        pieces.Add(stream.lowered.source, SourceOffset(cut, move, outer), bytes);
      } else {
        pieces.Add(staging_, staged, bytes);
        staged += bytes;
      }
      if (!copy || stream.lowered.derived) written += bytes;
      return true;
    });
    return written;
  }

  const ShardPlan& plan_;
  BufferPool& pool_;
  std::vector<Output> outputs_;
  Lowering lowering_;
  std::vector<Stream> streams_;  // one per plan.streams
  std::map<std::shared_ptr<const std::vector<Moves>>, SlotMoves> slots_;
  Buffer staging_;
  const Buffer zeros_{nullptr, const_cast<std::byte*>(kZeros), sizeof(kZeros)};  // only read
};

}  // namespace

ShardBody PlaceShards(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  ShardBody body;
  body.offsets.assign(plan.streams.size() * ranks.size(), 0);
  for (const Output& output : OutputsOf(plan, ranks)) {
    if (output.bytes == 0) continue;
    const auto first = body.offsets.begin() + output.stream * ranks.size() + output.dest;
    const bool whole = plan.streams[output.stream].extent != Extent::kLocal;
    std::fill_n(first, whole ? ranks.size() : 1, body.size);
    body.size += AlignUp(output.bytes);
  }
  return body;
}

absl::StatusOr<ShardBody> ViewShards(const ShardPlan& plan, const Batch& batch,
                                     absl::Span<const int64_t> ranks, Executor& executor,
                                     BufferPool& pool, int64_t min_view_bytes) {
  ShardBody body = PlaceShards(plan, ranks);
  BodyBuilder builder(plan, batch, ranks, pool);
  CPSHARD_RETURN_IF_ERROR(builder.Lower(min_view_bytes));
  CPSHARD_RETURN_IF_ERROR(builder.Write(executor));
  builder.Collect(body);
  body.executor = std::string(executor.name());
  return body;
}

}  // namespace cpshard
