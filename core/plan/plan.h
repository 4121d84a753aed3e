// The plan of a batch: which column goes where, and what every output stream is made of. A plan is
// a value (copyable, comparable, printable); it holds no bytes of the batch and moves none. The
// executor (core/exec) carries it out and decides nothing.
//
// Coordinates, on the example of round robin at cp_size 2 (a dot is a fill column):
//
//   source columns   0 1 2 3 4 5                the caller's, source_len = 6
//   placement        0 1 2 3 4 5 . .            padded column <- source column, padded_len = 8
//   partition[0]     0 1         6 7            local slot <- padded column, local_len = 4
//   partition[1]         2 3 4 5
//
// An output is Cut(Place(expression, placement, fill), partition[rank]): placement and fill come
// first, then the cut. (Composing the maps first would forget which padded column a fill slot was,
// and fill that continues a row needs that.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/plan/dtype.h"
#include "core/plan/element.h"
#include "core/plan/index_map.h"
#include "core/plan/spec.h"

namespace cpshard {

// [B, S] of rows that were flattened into one stream.
struct RowShape {
  int64_t rows = 0, columns = 0;
  friend bool operator==(const RowShape&, const RowShape&) = default;
};

// What the layout says of itself; it cannot be derived from its maps (contract section 1).
struct Report {
  enum class Indices { kNone, kI32, kI64 };

  std::optional<int64_t> original_seq_len;
  std::optional<int64_t> padded_seq_len;
  std::optional<RowShape> input_row_shape;
  bool stream_positions = false;  // report the placement's inverse, [B, S]
  Indices indices = Indices::kNone;
  bool indices_2d = false;  // [1, L] instead of [L]
  friend bool operator==(const Report&, const Report&) = default;
};

// A document on a row: its `real` tokens, then padding of its own, `length` columns in all.
struct DocumentSpan {
  int64_t begin = 0;  // padded column
  int64_t real = 0, length = 0;
  friend bool operator==(const DocumentSpan&, const DocumentSpan&) = default;
};

struct LayoutPlan {
  int64_t rows = 0;        // B
  int64_t source_len = 0;  // columns of the caller's rows
  int64_t padded_len = 0;
  std::vector<IndexMap> placement;  // 1 entry (all rows alike) or `rows` entries; size padded_len
  std::vector<IndexMap> partition;  // one per rank; columns < padded_len, no fill runs
  std::optional<RowShape> flattened_from;
  // What the rows are packed with, as far as the layout itself reads it: ascending, apart; columns
  // outside are padding that belongs to no document. None: it does not know; 1 entry (all rows
  // alike) or `rows` entries. For balance, totals and pictures (documents.h); nothing is cut by it.
  std::vector<std::vector<DocumentSpan>> documents;
  Report report;
  std::string padded_to;  // for messages: "a multiple of cp_size 2 * pad_multiple 4"

  const IndexMap& PlacementOf(int64_t row) const {
    return placement[placement.size() == 1 ? 0 : row];
  }
  int64_t LocalLen(int64_t rank) const { return partition[rank].size(); }
  friend bool operator==(const LayoutPlan&, const LayoutPlan&) = default;
};

// Columns of an input stream, seen as the output needs them.
struct ViewOf {
  enum class How {
    kColumns,           // as they stand
    kBroadcastRow,      // [1, S, ...] stands for every row
    kHeadZeroDiagonal,  // [B, H, Q, K] -> [B, min(Q, K)]: the main diagonal of head 0
  };
  std::string source;
  How how = How::kColumns;
  // Column i of the view is column columns[row].At(i) of what is seen, fill where that is none
  // (tokens shifted within their documents); size source_len each. Empty: as they stand; 1 entry:
  // all rows alike. The stream's fill stands there too: a constant.
  std::vector<IndexMap> columns;
  friend bool operator==(const ViewOf&, const ViewOf&) = default;
};

// Values that are computed: position i of a segment has the value start + step * i, step 0 or 1.
struct Segment {
  int64_t start = 0, step = 0, length = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Segments over the source columns (or over the padded ones: then there is nothing left to fill).
struct Generated {
  std::vector<std::vector<Segment>> rows;  // 1 entry (all rows alike) or one per row
  bool over_padded_columns = false;
  friend bool operator==(const Generated&, const Generated&) = default;
};

// Values that the plan knows itself (boundaries of documents, their longest length): one per
// element of the stream's dims, row-major, the same for every rank. Converted to the stream's
// dtype, an integer one that holds them. Only with Extent::kWhole.
struct Literal {
  std::vector<int64_t> values;
  friend bool operator==(const Literal&, const Literal&) = default;
};

enum class Op { kNone, kIsZero, kNotZero, kNotPositive, kBitwiseNot, kEquals };

// cast, then op, then (by StreamPlan::dtype) cast again; only of a view. The comparing ops yield
// bool.
struct Expression {
  std::variant<ViewOf, Generated, Literal> from;
  std::optional<DType> cast;
  Op op = Op::kNone;
  int64_t operand = 0;  // of kEquals
  friend bool operator==(const Expression&, const Expression&) = default;
};

// What stands on the padded columns that no source column fills.
struct Fill {
  enum class Kind {
    kNone,      // there are none
    kConstant,  // `value`
    kContinue,  // last + 1, last + 2, ... of the source column before the fill, each outer index
                // and inner element from its own, in the stream's dtype (bool has no such value)
  };
  // From padded column `from` on fill columns hold `value` instead, an integer that the stream's
  // dtype holds (rows that are laid out anew and then padded otherwise).
  struct Tail {
    int64_t from = 0, value = 0;
    friend bool operator==(const Tail&, const Tail&) = default;
  };
  Kind kind = Kind::kNone;
  Element value;
  std::optional<Tail> tail;  // of kConstant
  friend bool operator==(const Fill&, const Fill&) = default;
};

// How much of the stream a rank gets.
enum class Extent {
  kLocal,   // its own slots
  kPadded,  // all padded columns
  kWhole,   // not cut, every rank holds the same bytes: the caller's tensor, one made of it element
            // by element, or a literal
};

absl::string_view ExtentName(Extent extent);  // "local", "padded", "whole"

inline constexpr int kTokens = -1;

// One output stream.
struct StreamPlan {
  std::string name;
  DType dtype = DType::kI64;
  std::vector<int64_t> dims;  // before placement: dims[axis] == source_len unless kWhole. A view
                              // may reshape its source: the elements are the same, in order
  int axis = 1;               // the sequence axis
  int batch_axis = 0;         // its index is the row; -1 = all outer indices take row 0's placement
  Expression value;
  Fill fill;
  Extent extent = Extent::kLocal;
  int layout =
      kTokens;  // whose columns they are: kTokens the plan's chunks', else others[layout]'s
  friend bool operator==(const StreamPlan&, const StreamPlan&) = default;
};

// A legal but unwise layout, a slower mode: a warning that travels with the answer.
struct Notice {
  std::string code, text;
  friend bool operator==(const Notice&, const Notice&) = default;
};

// A non-tensor entry of the outputs.
struct ScalarPlan {
  std::string name;
  std::vector<Scalar> values;  // 1 entry (the same for every rank) or one per rank

  const Scalar& Of(int64_t rank) const { return values[values.size() == 1 ? 0 : rank]; }
  friend bool operator==(const ScalarPlan&, const ScalarPlan&) = default;
};

// Of options that name a model: the layout that the facts resolved to, and why (contract 3.2).
struct Choice {
  std::string layout;
  std::string reason;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// Several chunks are micro-batches of one batch (contract 5.6). Chunk c places a window of the
// source columns; padded_len and the local lengths are the same in all of them. What is cut has its
// sequence axis first, [T, ...], and comes out stacked, [C, L, ...]; such a plan has no kPadded
// streams.
struct ShardPlan {
  std::optional<int64_t> cp_size;
  std::vector<LayoutPlan> chunks;  // normally 1; more: one each; none: no layout is reported
  std::vector<LayoutPlan> others;  // of streams whose columns are no tokens; nothing is reported
  std::vector<StreamPlan> streams;
  std::vector<ScalarPlan> scalars;
  std::vector<Notice> notices;
  std::optional<Choice> choice;
  // Columns that packed rows need by themselves, without min_padded_len: the maximum of it over a
  // job's groups is what each is to be given as min_padded_len (contract D14). Of layouts that take
  // min_padded_len.
  std::optional<int64_t> row_need;

  int64_t num_ranks() const { return cp_size.value_or(1); }
  bool stacked() const { return chunks.size() > 1; }
  friend bool operator==(const ShardPlan&, const ShardPlan&) = default;
};

// The layouts that the stream's columns go by: one, or one per chunk.
absl::Span<const LayoutPlan> LayoutsOf(const ShardPlan& plan, const StreamPlan& stream);

// Whether the stream's elements are those of its source as they stand: nothing is computed.
bool IsPlainView(const StreamPlan& stream, DType source_dtype);

// Name, dtype and shape of `stream` as rank `rank` receives it.
TensorSpec OutputSpec(const ShardPlan& plan, const StreamPlan& stream, int64_t rank);

// The axis of the output on which the stream was cut: one further where chunks are stacked.
int OutputAxis(const ShardPlan& plan, const StreamPlan& stream);

// The non-tensor entries that rank `rank` receives.
std::vector<ScalarEntry> ScalarsOf(const ShardPlan& plan, int64_t rank);

// Local slots of a rank, over all of `layouts`.
int64_t LocalSlots(absl::Span<const LayoutPlan> layouts, int64_t rank);

// Bytes of the shards of `ranks`; a stream that every rank holds whole counts once.
// InvalidArgument, naming what made the padding, when that is over limits.max_batch_bytes or
// beyond int64: to be asked before anything of that size is allocated.
absl::StatusOr<int64_t> CheckedOutputBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits);

// The same for what the layouts of `ranks` report, as arrays of int64: the runs of every rank, its
// indices, the positions once. Errors as above.
absl::StatusOr<int64_t> CheckedLayoutBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits);

// Bytes of the streams that are computed from others before they are cut: each once, whatever ranks
// are asked for. Precondition: the plan is of this spec, which passed ValidateSpec.
int64_t DerivedBytes(const ShardPlan& plan, const BatchSpec& spec);

// A few lines for people: layouts, maps and streams.
std::string ToString(const ShardPlan& plan);

}  // namespace cpshard
