#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/exec/gather.h"
#include "core/exec/shard_body.h"
#include "core/oracle/tensors.h"
#include "core/oracle/values.h"
#include "tests/property/checks.h"
#include "tests/property/stitching.h"

namespace cpshard::property {
namespace {

// One stream of all ranks.
struct Stream {
  const LayoutCase& layout;
  const Sample& sample;
  const Point& point;
  const Shards& shards;
  std::vector<oracle::Shard> parts;  // of all streams
  std::string name;
  StreamCut cut;

  const ShardLayout& record() const { return shards.front().layout; }
  int64_t slots() const {
    int64_t slots = 0;
    for (const oracle::Shard& part : parts) slots += static_cast<int64_t>(part.columns.size());
    return slots;
  }
  // Columns of tokens: those behind them are padding.
  int64_t tokens() const { return layout.packed ? point.rows * point.length : point.length; }
  // As it was sent, if it was, and if the layout does not make it anew.
  const oracle::Tensor* sent() const {
    if (layout.rebuilt.contains(name)) return nullptr;
    const bool promoted = name == "labels" && !sample.streams.contains("labels");
    const auto found = sample.streams.find(promoted ? "loss_mask" : name);
    return found == sample.streams.end() ? nullptr : &found->second;
  }
};

std::string GatheredFault(const Stream& stream, bool trim, const oracle::Tensor& want) {
  GatherOptions options = {.trim = trim};
  if (stream.record().input_token_stream_positions) options.fill = int64_t{1};
  const auto got = GatherStream(stream.shards, stream.name, options, TheExecutor(), ThePool());
  const std::string what = absl::StrCat(trim ? "trim of " : "gather of ", stream.name);
  if (!got.ok()) return absl::StrCat(what, ": ", got.status().ToString());
  return TensorFault(what, FromProduct(*got), want);
}

std::string TrimIsRefusedFault(const Stream& stream) {
  const auto got = GatherStream(stream.shards, stream.name, {.trim = true, .fill = int64_t{1}},
                                TheExecutor(), ThePool());
  if (absl::IsFailedPrecondition(got.status())) return "";
  return absl::StrCat("trim of ", stream.name, ": ", got.status().ToString());
}

// What was sent, as it should come back: repeated rows, flat ids as one row, cast (4.7).
std::string SentFault(const Stream& stream, const oracle::Tensor& got) {
  if (stream.sent() == nullptr) return "";
  oracle::Tensor want = *stream.sent();
  if (want.dims.size() == 1 && got.dims.size() == 2) want.dims.insert(want.dims.begin(), 1);
  if (!stream.layout.packed && want.dims != got.dims) {
    want = *AsSent(stream.sample, stream.name, got.dims[0]);
  }
  const bool may_cast =
      stream.layout.packed && !(stream.name == "input_ids" && oracle::IsFloat(want.dtype));
  if (may_cast && got.dtype == "i64") want = oracle::AsInt64(want);
  if (stream.layout.packed) want.dims = got.dims;  // flat: the bytes decide
  return TensorFault(absl::StrCat(stream.name, " (sent)"), got, want);
}

std::string WholeFault(const Stream& stream) {
  const oracle::Tensor& whole = stream.parts.front().outputs.at(stream.name);
  std::string fault = GatheredFault(stream, /*trim=*/false, whole);
  if (fault.empty()) fault = GatheredFault(stream, /*trim=*/true, whole);
  const oracle::Tensor* sent = stream.sent();
  if (!fault.empty() || sent == nullptr || stream.cut.extent != Extent::kWhole) return fault;
  oracle::Tensor want = *sent;
  const bool is_flat = want.dims.size() == 1 && whole.dims.size() == 2;  // 4.16 step 1
  if (is_flat) want.dims.insert(want.dims.begin(), 1);
  return TensorFault(absl::StrCat(stream.name, " (whole)"), whole, want);
}

// Rows of visual tokens: rank after rank what was sent.
std::string DeepStackFault(const Stream& stream) {
  std::vector<uint8_t> rows;
  for (const oracle::Shard& part : stream.parts) {
    const std::vector<uint8_t>& bytes = part.outputs.at(stream.name).bytes;
    rows.insert(rows.end(), bytes.begin(), bytes.end());
  }
  return rows == stream.sample.streams.at(stream.name).bytes
             ? ""
             : absl::StrCat(stream.name, ": the ranks' rows are not those that were sent");
}

std::string OfChunksFault(const Stream& stream) {
  oracle::Tensor full = StitchedChunks(stream.parts, stream.name, stream.slots());
  std::string fault = SentFault(stream, full);
  if (!fault.empty()) return fault;
  full.dims.front() /= stream.layout.num_chunks;
  full.dims.insert(full.dims.begin(), stream.layout.num_chunks);
  fault = GatheredFault(stream, /*trim=*/false, full);
  return fault.empty() ? TrimIsRefusedFault(stream) : fault;
}

std::optional<int64_t> FillOf(const Stream& stream, const std::string& dtype) {
  for (const oracle::Extra& extra : stream.sample.extras) {
    if (extra.name == stream.name) return std::nullopt;  // the caller says what
  }
  const Fills& fills = stream.layout.fills;
  const int64_t pad_id = fills.ids_zero ? 0 : stream.sample.padding_token_id.value_or(0);
  const bool zero = fills.floats_zero && oracle::IsFloat(dtype);
  if (stream.name == "input_ids") return zero ? 0 : pad_id;
  if (stream.name == "labels") return zero ? 0 : -100;
  if (stream.name == "padding_mask") return zero ? 0 : 1;
  if (stream.name == "inputs_embeds" || stream.name == "loss_mask") return 0;
  return std::nullopt;
}

// `is_token(outer, column)`: whether one of the caller's tokens stands there.
template <typename IsToken>
std::string FillFault(const Stream& stream, const oracle::Tensor& full, IsToken is_token) {
  const std::optional<int64_t> fill = FillOf(stream, full.dtype);
  if (!fill) return "";
  const int axis = stream.cut.seq_axis;
  const int64_t item = oracle::ElementSize(full.dtype);
  const int64_t inner = ProductOf(full.dims, axis + 1, full.dims.size());
  const int64_t outer = ProductOf(full.dims, 0, axis);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t c = 0; c < full.dims[axis]; ++c) {
      if (is_token(o, c)) continue;
      const auto element = oracle::FillElement(oracle::Value(*fill), full.dtype);
      if (!element) return absl::StrCat(stream.name, " cannot hold its fill");
      for (int64_t i = 0; i < inner; ++i) {
        const uint8_t* at = full.bytes.data() + ((o * full.dims[axis] + c) * inner + i) * item;
        if (std::memcmp(at, element->data(), item) == 0) continue;
        return absl::StrCat(stream.name, ": row ", o, " column ", c, " is not filled with ", *fill);
      }
    }
  }
  return "";
}

// Rows laid out anew: `positions` [B, S] says where each token went.
std::string RepositionedFault(const Stream& stream, const oracle::Tensor& full) {
  const IntArray& positions = *stream.record().input_token_stream_positions;
  const int64_t length = positions.shape[1];
  const int64_t columns = full.dims[1];
  const int64_t bytes = ProductOf(full.dims, 2, full.dims.size()) * oracle::ElementSize(full.dtype);
  oracle::Tensor trimmed = full;
  trimmed.dims[1] = length;
  trimmed.bytes.assign(positions.values.size() * bytes, 0);
  std::vector<bool> is_token(positions.shape[0] * columns, false);
  const auto fill = oracle::FillElement(oracle::Value(int64_t{1}), full.dtype);
  for (size_t i = 0; i < positions.values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / length;
    const int64_t column = positions.values[i];
    if (column >= columns) return "a position lies beyond the padded columns";
    if (column < 0) {
      const int64_t items = bytes / oracle::ElementSize(full.dtype);
      for (int64_t k = 0; k < items; ++k) {
        std::copy_n(fill->begin(), bytes / items,
                    trimmed.bytes.begin() + i * bytes + k * oracle::ElementSize(full.dtype));
      }
      continue;
    }
    if (is_token[row * columns + column]) return "two tokens have one position";
    is_token[row * columns + column] = true;
    const uint8_t* token = full.bytes.data() + (row * columns + column) * bytes;
    std::copy_n(token, bytes, trimmed.bytes.begin() + i * bytes);
    if (stream.sent() == nullptr) continue;
    if (std::memcmp(stream.sent()->bytes.data() + i * bytes, token, bytes) == 0) continue;
    return absl::StrCat(stream.name, ": token ", i, " is not at its position");
  }
  std::string fault = FillFault(
      stream, full, [&](int64_t row, int64_t column) { return is_token[row * columns + column]; });
  if (!fault.empty()) return fault;
  return full.dims.size() == 2 ? GatheredFault(stream, /*trim=*/true, trimmed)
                               : TrimIsRefusedFault(stream);
}

std::string TrimmedFault(const Stream& stream, const oracle::Tensor& full) {
  const int axis = stream.cut.seq_axis;
  const ShardLayout& record = stream.record();
  const oracle::Tensor trimmed = Stitched(stream.parts, stream.name, axis, stream.tokens());
  std::string fault = SentFault(stream, trimmed);
  if (fault.empty()) {
    fault =
        FillFault(stream, full, [&](int64_t, int64_t column) { return column < stream.tokens(); });
  }
  if (!fault.empty()) return fault;
  if (record.input_row_shape) {
    if (ProductOf(full.dims, 0, axis) != 1) return TrimIsRefusedFault(stream);
    oracle::Tensor rows = full;
    rows.dims = record.input_row_shape->values;
    rows.dims.insert(rows.dims.end(), full.dims.begin() + axis + 1, full.dims.end());
    return GatheredFault(stream, /*trim=*/true, rows);
  }
  if (!record.original_seq_len) return TrimIsRefusedFault(stream);
  if (*record.original_seq_len != stream.tokens()) return "original_seq_len is another";
  return GatheredFault(stream, /*trim=*/true, trimmed);
}

std::string LocalFault(const Stream& stream) {
  const int64_t columns = stream.record().padded_seq_len.value_or(stream.slots());
  const oracle::Tensor full = Stitched(stream.parts, stream.name, stream.cut.seq_axis, columns);
  const std::string fault = GatheredFault(stream, /*trim=*/false, full);
  if (!fault.empty()) return fault;
  return stream.record().input_token_stream_positions ? RepositionedFault(stream, full)
                                                      : TrimmedFault(stream, full);
}

}  // namespace

std::string RoundTripFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                           const Shards& shards) {
  Stream stream{layout, sample, point, shards, ToOracle(shards), "", {}};
  for (size_t i = 0; i < shards.front().cuts.size(); ++i) {
    stream.name = shards.front().batch.tensors[i].spec.name;
    stream.cut = shards.front().cuts[i];
    const bool is_local = stream.cut.extent == Extent::kLocal;
    const std::string fault = !is_local                             ? WholeFault(stream)
                              : stream.name.starts_with(kDeepStack) ? DeepStackFault(stream)
                              : layout.num_chunks > 1               ? OfChunksFault(stream)
                                                                    : LocalFault(stream);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string ViewsFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                       const Shards& shards) {
  const Batch batch = ToProduct(sample);
  const auto plan = PlanBatch(layout.SharderFor(sample, point), batch, point.cp_size);
  if (!plan.ok()) return plan.status().ToString();
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < point.num_ranks(); ++rank) ranks.push_back(rank);
  for (const int64_t min_view_bytes : {int64_t{1}, kMinViewBytes}) {
    const auto body = ViewShards(*plan, batch, ranks, TheExecutor(), ThePool(), min_view_bytes);
    if (!body.ok()) return body.status().ToString();
    std::vector<std::byte> bytes;
    for (const Buffer& piece : body->pieces) {
      bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
    }
    for (size_t s = 0; s < plan->streams.size(); ++s) {
      for (size_t k = 0; k < ranks.size(); ++k) {
        const Tensor& tensor = shards[k].batch.tensors[s];
        const auto copy = tensor.bytes();
        const int64_t at = body->offsets[s * ranks.size() + k];
        const bool fits = at + copy.size() <= bytes.size();
        if (copy.empty() || (fits && std::equal(copy.begin(), copy.end(), bytes.begin() + at))) {
          continue;
        }
        return absl::StrCat(tensor.spec.name, " of rank ", k, " is another as views of ",
                            min_view_bytes, " bytes");
      }
    }
  }
  return "";
}

}  // namespace cpshard::property
