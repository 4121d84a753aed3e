#include "core/plan/flat_streams.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "core/plan/token_bits.h"

namespace cpshard {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

std::string Describe(const TensorSpec& tensor) {
  return absl::StrCat("stream '", tensor.name, "' ", DTypeName(tensor.dtype),
                      DimsString(tensor.dims));
}

absl::StatusOr<const TensorSpec*> Require(const BatchSpec& spec, absl::string_view name) {
  if (const TensorSpec* tensor = spec.FindTensor(name)) return tensor;
  return absl::InvalidArgumentError(
      spec.Has(name) ? absl::StrCat("'", name, "' is a scalar; the layout needs a tensor")
                     : absl::StrCat("the batch has no '", name, "', which the layout needs"));
}

void AppendSegment(std::vector<Segment>& segments, int64_t value, int64_t length) {
  if (length == 0) return;
  if (!segments.empty() && segments.back().start == value) {
    segments.back().length += length;
  } else {
    segments.push_back({value, 0, length});
  }
}

StreamPlan Viewed(const TensorSpec& tensor, std::vector<int64_t> dims, int axis,
                  std::optional<DType> cast) {
  StreamPlan stream{tensor.name, cast.value_or(tensor.dtype), std::move(dims), axis};
  stream.batch_axis = -1;
  stream.value.from = ViewOf{tensor.name};
  return stream;
}

StreamPlan GeneratedTokens(absl::string_view name, DType dtype, int64_t tokens,
                           std::vector<Segment> segments) {
  StreamPlan stream{std::string(name), dtype, {tokens}, 0};
  stream.batch_axis = -1;
  stream.value.from = Generated{{std::move(segments)}};
  return stream;
}

absl::Status CheckInt32(const PackedLengths& lengths, const FlatRows& flat) {
  if (flat.chunk_tokens() <= kInt32Max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "stream '", lengths.padded_name(), "': the documents of ", flat.rows_per_chunk(), " rows of ",
      flat.rows.length, " tokens end at ", flat.chunk_tokens(), ", beyond the ", kInt32Max,
      " of int32 cumulative lengths; send fewer rows, or more chunks"));
}

std::vector<DocumentSpan> Spans(const PackedRows& rows, const std::vector<int64_t>& boundaries) {
  std::vector<DocumentSpan> spans;
  spans.reserve(rows.documents.size());
  for (size_t i = 0; i < rows.documents.size(); ++i) {
    spans.push_back({boundaries[i], rows.documents[i].real, boundaries[i + 1] - boundaries[i]});
  }
  return spans;
}

// The pad id as input_ids hold it, to be compared with them exactly.
struct PadId {
  bool floating = false;
  int64_t integer = 0;
  double number = 0;  // where input_ids are floating

  bool IsAt(const ValueView& ids, int64_t i) const {
    return floating ? ids.Number(i) == number : ids[i] == integer;
  }
  std::string IdAt(const ValueView& ids, int64_t i) const {
    return floating ? absl::StrCat(ids.Number(i)) : absl::StrCat(ids[i]);
  }
};

// InvalidArgument: they cannot.
absl::StatusOr<PadId> PadIdOf(int64_t padding_token_id, DType dtype) {
  PadId pad{IsFloating(dtype), padding_token_id};
  if (dtype == DType::kBool) return pad;  // True is 1 alone
  CPSHARD_ASSIGN_OR_RETURN(const Element element,
                           ConvertFill(padding_token_id, dtype, "input_ids"));
  pad.number = ValueView(dtype, {}, reinterpret_cast<const std::byte*>(&element.bits)).Number(0);
  return pad;
}

TokenBits PaddingOf(const ValueView& ids, const PadId& pad) {
  if (pad.floating) return TokenBits::Of(ids, [n = pad.number](auto id) { return id == n; });
  return TokenBits::Of(ids, [n = pad.integer](auto id) { return id == n; });
}

// Where the padding of ids [begin, end) begins; `padding` is that of all ids.
absl::StatusOr<int64_t> FindPadding(const ValueView& ids, int64_t begin, int64_t end,
                                    const PadId& pad, const TokenBits& padding) {
  const int64_t tail = end - padding.Count(begin, end);  // where it begins if it is all at the end
  if (padding.Count(tail, end) == end - tail) return tail;
  int64_t first = begin;
  while (first < end && !pad.IsAt(ids, first)) ++first;
  for (int64_t i = first; i < end; ++i) {
    if (pad.IsAt(ids, i)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream 'input_ids': padding_token_id ", pad.integer, " at token ", first,
                     " is followed by ", pad.IdAt(ids, i), " at token ", i,
                     ", so it is content too and does not tell the padding; send 'seq_lens'"));
  }
  return first;
}

}  // namespace

absl::StatusOr<FlatRows> FlatRowsOf(const BatchSpec& spec, int64_t num_chunks) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* primary, Require(spec, "input_ids"));
  FlatRows flat;
  CPSHARD_ASSIGN_OR_RETURN(flat.rows, RowsOf(*primary));
  flat.num_chunks = std::max<int64_t>(num_chunks, 1);
  CPSHARD_ASSIGN_OR_RETURN(
      flat.tokens, CheckedMultiply(flat.rows.rows, flat.rows.length, "the number of tokens B * S"));
  if (flat.tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*primary), " has no tokens: B = ", flat.rows.rows,
                     ", S = ", flat.rows.length, "; a packed batch needs one at least"));
  }
  if (flat.num_chunks > kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("num_chunks is ", flat.num_chunks, "; at most ",
                                                   kMaxChunks,
                                                   " micro-batches are made of a batch"));
  }
  if (flat.rows.rows % flat.num_chunks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(*primary), " has ", flat.rows.rows, " rows, not divisible by num_chunks ",
        flat.num_chunks, "; send a multiple of it, or fewer chunks"));
  }
  return flat;
}

LayoutPlan ChunkWindow(const FlatRows& flat, int64_t chunk, const ConvertedChunk& converted) {
  LayoutPlan layout;
  layout.rows = 1;
  layout.source_len = flat.tokens;
  layout.padded_len = flat.chunk_tokens();
  layout.placement.emplace_back();
  layout.placement.front().Append({chunk * flat.chunk_tokens(), flat.chunk_tokens()});
  layout.flattened_from = RowShape{flat.rows_per_chunk(), flat.rows.length};
  if (!converted.documents.empty()) layout.documents = {converted.documents};
  return layout;
}

std::vector<Segment> PaddingByLengths(const PackedRows& rows, int64_t tokens) {
  std::vector<Segment> segments;
  int64_t end = 0;
  for (const Document& document : rows.documents) {
    AppendSegment(segments, 0, document.real);
    AppendSegment(segments, 1, document.padded - document.real);
    end += document.padded;
  }
  AppendSegment(segments, 1, tokens - end);
  return segments;
}

absl::StatusOr<std::vector<ConvertedChunk>> ConvertByLengths(const PackedLengths& lengths,
                                                             const FlatRows& flat, int64_t pieces) {
  CPSHARD_RETURN_IF_ERROR(CheckInt32(lengths, flat));
  const LastRow last_row = pieces > 1 ? LastRow::kMustFill : LastRow::kMayBeShort;
  std::vector<ConvertedChunk> chunks(flat.num_chunks);
  for (int64_t c = 0; c < flat.num_chunks; ++c) {
    const int64_t count = flat.rows_per_chunk();
    CPSHARD_ASSIGN_OR_RETURN(const PackedRows rows, lengths.Rows(c * count, count));
    CPSHARD_ASSIGN_OR_RETURN(chunks[c].lengths,
                             Accumulate(rows, lengths, flat.rows.length, last_row));
    CPSHARD_RETURN_IF_ERROR(
        CheckPieces(rows, chunks[c].lengths.boundaries(), lengths.padded_name(), pieces));
    chunks[c].documents = Spans(rows, chunks[c].lengths.boundaries());
    chunks[c].padding = PaddingByLengths(rows, flat.chunk_tokens());
  }
  return chunks;
}

absl::StatusOr<std::vector<ConvertedChunk>> ConvertByValue(const PlanValues& values,
                                                           std::optional<int64_t> padding_token_id,
                                                           const FlatRows& flat) {
  const TensorSpec& primary = *flat.rows.primary;
  if (NumElements(primary) != flat.tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "without 'seq_lens' padding is found by comparing ids, which ", Describe(primary),
        " does not hold; send 'seq_lens' [", flat.rows.rows, ", n]"));
  }
  if (!padding_token_id) {
    return absl::InvalidArgumentError(
        "without 'seq_lens' padding is found by comparing ids with padding_token_id, which was "
        "not given; send 'seq_lens', or set it");
  }
  CPSHARD_ASSIGN_OR_RETURN(const PadId pad, PadIdOf(*padding_token_id, primary.dtype));
  const ValueView& ids = values.at("input_ids");
  const TokenBits pads = PaddingOf(ids, pad);
  std::vector<ConvertedChunk> chunks(flat.num_chunks);
  for (int64_t c = 0; c < flat.num_chunks; ++c) {
    const int64_t begin = c * flat.chunk_tokens();
    const int64_t end = begin + flat.chunk_tokens();
    CPSHARD_ASSIGN_OR_RETURN(const int64_t padding, FindPadding(ids, begin, end, pad, pads));
    AppendSegment(chunks[c].padding, 0, padding - begin);
    AppendSegment(chunks[c].padding, 1, end - padding);
  }
  return chunks;
}

absl::Status FlatStreams::CutTokens(absl::string_view name, std::optional<DType> cast) {
  CPSHARD_ASSIGN_OR_RETURN(StreamPlan stream, TokensOf(name, cast));
  outputs_.Add(std::move(stream));
  return absl::OkStatus();
}

absl::StatusOr<StreamPlan> FlatStreams::TokensOf(absl::string_view name,
                                                 std::optional<DType> cast) const {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* tensor, Require(spec_, name));
  const std::vector<int64_t>& dims = tensor->dims;
  const TokenRows& rows = flat_.rows;
  if (dims.size() < 2 || dims[0] != rows.rows || dims[1] != rows.length) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*tensor), " is not of [", rows.rows,
                                                   ", ", rows.length, ", ...] as ",
                                                   Describe(*rows.primary), " is"));
  }
  const int64_t per_token = Product(absl::MakeConstSpan(dims).subspan(2));
  std::vector<int64_t> flat = {flat_.tokens};
  if (per_token != 1) flat.push_back(per_token);
  return Viewed(*tensor, std::move(flat), 0, cast);
}

absl::Status FlatStreams::CutPositions(std::optional<DType> cast, bool three_axes) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* tensor, Require(spec_, "position_ids"));
  const std::vector<int64_t>& dims = tensor->dims;
  const TokenRows& rows = flat_.rows;
  if (dims.size() == 3 && !three_axes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*tensor),
                     " has three axes, which document_head_tail takes, and thd and mimo at "
                     "cp_size 1 and in one chunk; send [",
                     rows.rows, ", ", rows.length, "]"));
  }
  if (dims.size() == 3 && dims[0] > 0 && dims[1] == rows.rows && dims[2] == rows.length) {
    outputs_.Add(Viewed(*tensor, {dims[0], 1, flat_.tokens}, 2, cast));
    return absl::OkStatus();
  }
  if (dims.size() != 2 || dims[0] != rows.rows || dims[1] != rows.length) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(*tensor), " is not of [", rows.rows, ", ", rows.length, "] as ",
        Describe(*rows.primary), " is; positions of packed rows are not shared between rows"));
  }
  outputs_.Add(Viewed(*tensor, {flat_.tokens}, 0, cast));
  return absl::OkStatus();
}

void FlatStreams::EmitPaddingMask(const std::vector<ConvertedChunk>& chunks) {
  std::vector<Segment> segments;
  for (const ConvertedChunk& chunk : chunks) {
    segments.insert(segments.end(), chunk.padding.begin(), chunk.padding.end());
  }
  outputs_.Add(GeneratedTokens("padding_mask", DType::kBool, flat_.tokens, std::move(segments)));
}

void FlatStreams::EmitLengths(const std::vector<ConvertedChunk>& chunks) {
  outputs_.Drop("cu_seqlens");  // one that came in is replaced, by nothing too (contract 5.3)
  if (chunks.front().lengths.real.empty()) return;
  std::vector<const std::vector<int64_t>*> real, boundaries;
  bool any_padded = false;
  for (const ConvertedChunk& chunk : chunks) {
    real.push_back(&chunk.lengths.real);
    boundaries.push_back(&chunk.lengths.boundaries());
    any_padded = any_padded || !chunk.lengths.padded.empty();
  }
  EmitCumulative("cu_seqlens", real);
  if (any_padded) EmitCumulative("cu_seqlens_padded", boundaries);
  EmitMaxSeqlen(real);
}

void FlatStreams::EmitBoundaries(const std::vector<ConvertedChunk>& chunks) {
  outputs_.Drop("cu_seqlens_padded");
  std::vector<const std::vector<int64_t>*> boundaries;
  for (const ConvertedChunk& chunk : chunks) boundaries.push_back(&chunk.lengths.boundaries());
  EmitCumulative("cu_seqlens", boundaries);
  EmitMaxSeqlen(boundaries);
}

void FlatStreams::EmitMaxSeqlen(const std::vector<const std::vector<int64_t>*>& rows) {
  std::vector<int64_t> longest;
  for (const std::vector<int64_t>* row : rows) longest.push_back(MaxSeqlen(*row));
  const bool stacked = flat_.num_chunks > 1;
  EmitLiteral("max_seqlen",
              stacked ? std::vector<int64_t>{flat_.num_chunks} : std::vector<int64_t>{},
              std::move(longest));
}

void FlatStreams::EmitCumulative(absl::string_view name,
                                 const std::vector<const std::vector<int64_t>*>& rows) {
  size_t width = 0;
  for (const std::vector<int64_t>* row : rows) width = std::max(width, row->size());
  std::vector<int64_t> values;
  values.reserve(width * rows.size());
  for (const std::vector<int64_t>* row : rows) {
    values.insert(values.end(), row->begin(), row->end());
    values.resize(values.size() + width - row->size(), kNoDocument);
  }
  std::vector<int64_t> dims = {static_cast<int64_t>(width)};
  if (flat_.num_chunks > 1) dims.insert(dims.begin(), flat_.num_chunks);
  EmitLiteral(name, std::move(dims), std::move(values));
}

void FlatStreams::EmitLiteral(absl::string_view name, std::vector<int64_t> dims,
                              std::vector<int64_t> values) {
  StreamPlan stream{std::string(name), DType::kI32, std::move(dims), 0};
  stream.batch_axis = -1;
  stream.extent = Extent::kWhole;
  stream.value.from = Literal{std::move(values)};
  outputs_.Add(std::move(stream));
}

void FlatStreams::EmitRanks() {
  std::vector<Scalar> ranks;
  for (int64_t rank = 0; rank < spec_.num_ranks(); ++rank) ranks.emplace_back(rank);
  outputs_.AddScalar("qkv_format", {std::string("thd")});
  outputs_.AddScalar("cp_size", {spec_.num_ranks()});
  outputs_.AddScalar("cp_rank", std::move(ranks));
}

void FlatStreams::EmitIndices(absl::string_view name, DType dtype) {
  StreamPlan stream = GeneratedTokens(name, dtype, flat_.tokens, {{0, 1, flat_.chunk_tokens()}});
  std::get<Generated>(stream.value.from).over_padded_columns = true;
  outputs_.Add(std::move(stream));
}

}  // namespace cpshard
