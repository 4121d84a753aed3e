#include "core/oracle/thd.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/oracle/documents.h"
#include "core/oracle/tensors.h"
#include "core/oracle/values.h"

namespace cpshard::oracle {
namespace {

// What all chunks share.
struct Work {
  const Batch& batch;
  const Options& options;
  int64_t cp_size = 1;
  int64_t rank = 0;
  int64_t rows = 0;     // B
  int64_t row_len = 0;  // S
  int64_t num_chunks = 1;

  bool Has(const std::string& name) const { return batch.contains(name); }
  bool Cuts() const { return cp_size > 1; }
  bool Chunked() const { return num_chunks > 1; }
};

// One converted chunk, and the columns of it that the rank holds.
struct Chunk {
  Batch streams;
  std::vector<int64_t> columns;
  Documents documents;  // none where padding is told by value
};

bool IsTokens(const Work& work, const Tensor& tensor) {
  return tensor.dims.size() >= 2 && tensor.dims[0] == work.rows && tensor.dims[1] == work.row_len;
}

// D5, D8: [B, S]; [n, B, S] only where nothing is cut or chunked; required where it is cut.
bool PositionsFit(const Work& work) {
  if (!work.Has("position_ids")) return !work.Cuts();
  const std::vector<int64_t>& dims = work.batch.at("position_ids").dims;
  if (dims.size() == 2) return dims[0] == work.rows && dims[1] == work.row_len;
  const bool may_be_rope = dims.size() == 3 && !work.Cuts() && !work.Chunked();
  return may_be_rope && dims[0] > 0 && dims[1] == work.rows && dims[2] == work.row_len;
}

// D5, D8. Where seq_lens is not sent, seq_lens_padded is ignored (5.3) and padding is told by value
// (5.4): of ids that are one number a token, with a pad id to look for that they can hold.
bool LengthsFit(const Work& work) {
  if (work.Has("seq_lens")) {
    const auto padded = work.batch.find("seq_lens_padded");
    return AreLengths(work.batch.at("seq_lens"), work.rows) &&
           (padded == work.batch.end() || AreLengths(padded->second, work.rows));
  }
  const Tensor& ids = work.batch.at("input_ids");
  return !work.Cuts() && work.options.padding_token_id && Flattened(ids).dims.size() == 1 &&
         (ids.dtype == "bool" || FillElement(*work.options.padding_token_id, ids.dtype));
}

// 5.6 slices every tensor on axis 0: there must be one. D5: no row is left over.
bool CanBeChunked(const Work& work) {
  if (!work.Chunked()) return true;
  for (const auto& [name, tensor] : work.batch) {
    if (tensor.dims.empty()) return false;
  }
  return work.rows % work.num_chunks == 0;
}

// Everything that is refused before the documents are looked at.
bool Accepts(Work& work) {
  if (!work.options.extras.empty() || work.Has("loss_mask")) return false;  // D13, D17
  if (!work.Has("input_ids") || !work.Has("labels")) return false;          // 5.1
  const Tensor& ids = work.batch.at("input_ids");
  if (ids.dims.size() < 2) return false;
  work.rows = ids.dims[0];
  work.row_len = ids.dims[1];
  if (work.rows * work.row_len == 0) return false;  // D5
  return IsTokens(work, work.batch.at("labels")) && PositionsFit(work) && LengthsFit(work) &&
         CanBeChunked(work);
}

// 5.4 without lengths: the pad ids are exactly a suffix of the stream. nullopt = they are not.
std::optional<std::vector<int64_t>> PaddingMaskByValue(const Tensor& ids, int64_t pad_id) {
  const int64_t size = ElementSize(ids.dtype);
  const std::optional<Element> pad_element = FillElement(pad_id, ids.dtype);
  const bool bool_pad_fits = ids.dtype != "bool" || pad_id == 0 || pad_id == 1;
  std::vector<int64_t> mask;
  for (size_t at = 0; at < ids.bytes.size(); at += size) {
    Element id = {};
    std::copy_n(ids.bytes.begin() + at, size, id.begin());
    const bool equal = pad_id == 0 ? IsZero(id, ids.dtype) : id == pad_element;
    const bool pad = bool_pad_fits && equal;
    if (!pad && !mask.empty() && mask.back() != 0) return std::nullopt;
    mask.push_back(pad);
  }
  return mask;
}

// T30: boundaries that came in would take the place of those that are not emitted, where the stream
// is cut or in chunks. Refused unless they are the same.
bool IncomingBoundariesFit(const Work& work, const std::vector<Documents>& chunks) {
  if (!work.Has("cu_seqlens_padded") || (!work.Cuts() && !work.Chunked())) return true;
  bool all_emitted = true;
  for (const Documents& chunk : chunks) {
    const auto& cup = chunk.cu_seqlens_padded;
    all_emitted = all_emitted && cup && *cup != chunk.cu_seqlens;
  }
  if (all_emitted && !chunks.empty()) return true;
  const Tensor& sent = work.batch.at("cu_seqlens_padded");
  const bool integers = !IsFloat(sent.dtype) && sent.dtype != "bool";
  return chunks.size() == 1 && !work.Chunked() && integers &&
         Integers(sent) == chunks.front().cu_seqlens;
}

Tensor Boundaries(const std::vector<int64_t>& values) {
  return FromIntegers("i32", {static_cast<int64_t>(values.size())}, values);
}

// 5.3, and 4.7 step 4 where the stream is cut: then cu_seqlens means the padded boundaries (T28).
void EmitBoundaries(const Work& work, const Documents& documents, Batch& streams) {
  std::vector<int64_t> cu = documents.cu_seqlens;
  const auto& cup = documents.cu_seqlens_padded;
  if (work.Cuts()) {
    cu = cup.value_or(cu);
  } else if (cup && *cup != cu) {
    streams["cu_seqlens_padded"] = Boundaries(*cup);
  }
  streams["cu_seqlens"] = Boundaries(cu);
  streams["max_seqlen"] = FromIntegers("i32", {}, {LongestBetween(cu)});
}

// 5.2: [n, B, S] -> [n, 1, T].
Tensor FlatPositions(Tensor positions, const RowRange& range) {
  if (positions.dims.size() != 3) {
    return Flattened(TakeRows(positions, range.first_row, range.rows));
  }
  positions.dims = {positions.dims[0], 1, range.tokens()};
  return positions;
}

// 5.2 - 5.4 for the rows of one chunk. nullopt = refused.
std::optional<Chunk> Convert(const Work& work, const RowRange& range) {
  Chunk chunk;
  const int64_t tokens = range.tokens();
  for (const char* name : {"input_ids", "labels"}) {
    const Tensor& sent = work.batch.at(name);
    chunk.streams[name] = Flattened(TakeRows(sent, range.first_row, range.rows));
  }
  if (work.Has("position_ids")) {
    chunk.streams["position_ids"] = FlatPositions(work.batch.at("position_ids"), range);
  }
  std::vector<int64_t> boundaries = {0, tokens};
  std::optional<std::vector<int64_t>> mask;
  if (work.Has("seq_lens")) {
    const std::optional<Documents> documents = ReadDocuments(work.batch, range, work.cp_size);
    if (!documents) return std::nullopt;
    EmitBoundaries(work, *documents, chunk.streams);
    mask = PaddingMaskOf(*documents, tokens);
    if (work.Cuts()) boundaries = Integers(chunk.streams["cu_seqlens"]);
    chunk.documents = *documents;
  } else {
    mask = PaddingMaskByValue(chunk.streams["input_ids"], *work.options.padding_token_id);
    if (!mask) return std::nullopt;
  }
  chunk.streams["padding_mask"] = FromIntegers("bool", {tokens}, *mask);
  for (int64_t column = 0; column < tokens; ++column) chunk.columns.push_back(column);
  if (work.Cuts()) chunk.columns = TeColumns(boundaries, tokens, work.cp_size, work.rank);
  return chunk;
}

// 4.7 steps 3 and 4. D7: floating ids stay what they are.
void Cut(int64_t tokens, Chunk& chunk) {
  const Columns columns = {.source_len = tokens, .padded_len = tokens, .local = chunk.columns};
  for (const char* name : {"input_ids", "labels", "position_ids", "padding_mask"}) {
    Tensor& stream = chunk.streams[name];
    stream = *CutAxis(stream, 0, columns, Value(int64_t{0}));
    const bool is_float_ids = name == std::string("input_ids") && IsFloat(stream.dtype);
    if (name != std::string("padding_mask") && !is_float_ids) stream = AsInt64(stream);
  }
}

// 5.6: boundaries of all chunks in one tensor, sentinels after the shorter ones.
Tensor StackedBoundaries(std::vector<std::vector<int64_t>> chunks) {
  size_t longest = 0;
  for (const auto& boundaries : chunks) longest = std::max(longest, boundaries.size());
  std::vector<Tensor> padded;
  for (auto& boundaries : chunks) {
    boundaries.resize(longest, kSentinel);
    padded.push_back(Boundaries(boundaries));
  }
  return Stacked(padded);
}

// 5.6: a chunk that emitted no padded boundaries contributes its real ones.
Batch StackedChunks(const std::vector<Chunk>& chunks) {
  std::set<std::string> names;
  for (const Chunk& chunk : chunks) {
    for (const auto& [name, stream] : chunk.streams) names.insert(name);
  }
  Batch out;
  for (const std::string& name : names) {
    std::vector<Tensor> streams;
    std::vector<std::vector<int64_t>> boundaries;
    for (const Chunk& chunk : chunks) {
      const std::string& source = chunk.streams.contains(name) ? name : "cu_seqlens";
      streams.push_back(chunk.streams.at(source));
      boundaries.push_back(Integers(streams.back()));
    }
    const bool are_boundaries = name == "cu_seqlens" || name == "cu_seqlens_padded";
    out[name] = are_boundaries ? StackedBoundaries(boundaries) : Stacked(streams);
  }
  return out;
}

// 5.5: whatever was not produced survives; seq_lens* do not, nor does an old name that the
// conversion produces as null. At cp > 1 attention_mask and old padded boundaries go too (4.7 step
// 4). Chunks keep no other tensor at cp <= 1 (5.6), all of them at cp > 1 (D16).
Batch PassedThrough(const Work& work) {
  if (work.Chunked() && !work.Cuts()) return {};
  std::set<std::string> gone = {"seq_lens",     "seq_lens_padded", "input_ids", "labels",
                                "position_ids", "padding_mask",    "cu_seqlens"};
  if (work.Cuts()) gone.insert({"attention_mask", "cu_seqlens_padded"});
  if (work.Chunked()) gone.insert("_thd_local_indices");
  Batch out;
  for (const auto& [name, tensor] : work.batch) {
    if (!gone.contains(name)) out[name] = tensor;
  }
  return out;
}

// 4.7: the indices, int32 from TE and int64 where nothing was cut (D7), travel with the batch too.
void ReportIndices(const Work& work, Shard& shard) {
  const std::vector<int64_t>& indices = shard.columns;
  shard.local_token_global_indices = indices;
  shard.input_row_shape = {work.rows, work.row_len};
  shard.padded_seq_len = work.rows * work.row_len;
  shard.outputs["_thd_local_indices"] =
      FromIntegers(work.Cuts() ? "i32" : "i64", {static_cast<int64_t>(indices.size())}, indices);
}

}  // namespace

std::optional<Shard> RestateThd(const Batch& batch, const Options& options, int64_t cp_size,
                                int64_t rank) {
  Work work{.batch = batch, .options = options, .cp_size = cp_size, .rank = rank};
  work.num_chunks = std::max<int64_t>(options.num_chunks, 1);
  if (!Accepts(work)) return std::nullopt;
  const int64_t rows = work.rows / work.num_chunks;
  std::vector<Chunk> chunks;
  std::vector<Documents> documents;
  Shard shard;
  for (int64_t c = 0; c < work.num_chunks; ++c) {
    const RowRange range = {.first_row = c * rows, .rows = rows, .row_len = work.row_len};
    std::optional<Chunk> chunk = Convert(work, range);
    if (!chunk) return std::nullopt;
    if (work.Cuts()) Cut(range.tokens(), *chunk);
    for (const int64_t column : chunk->columns) {
      shard.columns.push_back(c * range.tokens() + column);
    }
    documents.push_back(chunk->documents);
    chunks.push_back(*std::move(chunk));
  }
  if (!IncomingBoundariesFit(work, documents)) return std::nullopt;
  shard.outputs = work.Chunked() ? StackedChunks(chunks) : std::move(chunks.front().streams);
  shard.outputs.merge(PassedThrough(work));
  if (!work.Chunked()) ReportIndices(work, shard);
  if (work.Cuts()) {
    shard.scalars = {{"qkv_format", "thd"}, {"cp_size", cp_size}, {"cp_rank", rank}};
  }
  return shard;
}

}  // namespace cpshard::oracle
