// The token verbs by the layouts of all layouts (contract section 15, property 2): a tensor of the
// caller's, cut by the records of a shard, holds slot by slot what the record says; it lines up
// with the batch; put back, it is what it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/token_verbs.h"
#include "tests/property/checks.h"
#include "tests/property/layout_cases.h"
#include "tests/property/samples.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

// A tensor in the caller's coordinates, as [before, S or T, item], and where its tokens go.
struct Caller {
  Tensor tensor;
  int64_t axis = 1;
  int64_t before = 1, columns = 0, item = 1;         // item: bytes of a column
  int64_t rows = 1;                                  // before = rows * others, of which ...
  std::vector<std::vector<int64_t>> padded_columns;  // ... each row's tokens go here; -1: dropped
  bool flat = false;                                 // the rows follow one another on one axis
};

Tensor Random(std::vector<int64_t> dims, DType dtype, Rng& rng) {
  Tensor tensor{{"t", dtype, std::move(dims)}, {}};
  tensor.buffer = *ThePool().Allocate(NumBytes(tensor.spec));
  for (size_t i = 0; i < tensor.buffer.size(); ++i) {
    // A bool is 0 or 1; 7 is the fill.
    const auto byte = static_cast<unsigned char>(rng.Next() >> 32);
    tensor.buffer.data()[i] = std::byte(dtype == DType::kBool ? byte % 2 : byte);
  }
  return tensor;
}

std::vector<int64_t> Counted(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = first + i;
  return numbers;
}

// What a caller may hold that the layout takes: rows where tokens were moved or flattened, else
// anything with the original length on some axis; where nothing is reported, all columns.
Caller Draw(const ShardLayout& layout, int64_t columns, DType dtype, Rng& rng) {
  Caller caller;
  const int64_t tail = 1 + rng.Below(3);
  if (layout.input_token_stream_positions) {
    const IntArray& positions = *layout.input_token_stream_positions;
    caller.rows = caller.before = positions.shape[0];
    caller.columns = positions.shape[1];
    for (int64_t row = 0; row < caller.rows; ++row) {
      const auto at = positions.values.begin() + row * caller.columns;
      caller.padded_columns.emplace_back(at, at + caller.columns);
    }
    caller.item = ItemSize(dtype);
    caller.tensor = Random(positions.shape, dtype, rng);
    return caller;
  }
  caller.item = tail * ItemSize(dtype);
  if (layout.input_row_shape) {
    caller.rows = caller.before = layout.input_row_shape->values[0];
    caller.columns = layout.input_row_shape->values[1];
    for (int64_t row = 0; row < caller.rows; ++row) {
      caller.padded_columns.push_back(Counted(row * caller.columns, caller.columns));
    }
    caller.flat = true;
    caller.tensor = Random({caller.rows, caller.columns, tail}, dtype, rng);
    return caller;
  }
  caller.columns = layout.original_seq_len.value_or(columns);
  caller.padded_columns = {Counted(0, caller.columns)};
  std::vector<int64_t> dims(rng.Below(3), 0);
  for (int64_t& dim : dims) caller.before *= dim = 1 + rng.Below(3);
  caller.axis = static_cast<int64_t>(dims.size());
  dims.insert(dims.end(), {caller.columns, tail});
  if (rng.OneIn(2)) caller.axis -= static_cast<int64_t>(dims.size());
  caller.tensor = Random(dims, dtype, rng);
  return caller;
}

// The caller's tokens on the padded columns, byte by byte: [before, columns, item], `fill` between.
std::vector<std::byte> Padded(const Caller& caller, int64_t columns, const Element& fill) {
  const int64_t width = ItemSize(caller.tensor.spec.dtype);
  const int64_t outer = caller.flat ? 1 : caller.before;
  std::vector<std::byte> padded(outer * columns * caller.item);
  for (size_t i = 0; i < padded.size(); i += width) std::memcpy(&padded[i], &fill.bits, width);
  const std::byte* from = caller.tensor.buffer.data();
  for (int64_t before = 0; before < caller.before; ++before) {
    const int64_t row = caller.rows == 1 ? 0 : before;
    for (int64_t column = 0; column < caller.columns; ++column, from += caller.item) {
      const int64_t to = caller.padded_columns[row][column];
      const int64_t line = caller.flat ? 0 : before;
      if (to >= 0) std::memcpy(&padded[(line * columns + to) * caller.item], from, caller.item);
    }
  }
  return padded;
}

// The caller's tensor after a round trip: the fill where a token was dropped.
std::vector<std::byte> Returned(const Caller& caller, const Element& fill) {
  const absl::Span<const std::byte> bytes = caller.tensor.bytes();
  std::vector<std::byte> back(bytes.begin(), bytes.end());
  for (int64_t line = 0; line < caller.before * caller.columns; ++line) {
    const int64_t row = caller.rows == 1 ? 0 : line / caller.columns;
    if (caller.padded_columns[row][line % caller.columns] >= 0) continue;
    for (int64_t i = 0; i < caller.item; i += ItemSize(caller.tensor.spec.dtype)) {
      std::memcpy(&back[line * caller.item + i], &fill.bits, ItemSize(caller.tensor.spec.dtype));
    }
  }
  return back;
}

bool Same(const Tensor& tensor, const std::vector<std::byte>& want) {
  return std::equal(tensor.bytes().begin(), tensor.bytes().end(), want.begin(), want.end());
}

std::vector<ShardLayout> LayoutsOf(const Shards& shards) {
  std::vector<ShardLayout> layouts;
  for (const RankShard& shard : shards) layouts.push_back(shard.layout);
  return layouts;
}

// Slot by slot: what rank `layout` must hold of `padded`.
std::vector<std::byte> SlotsOf(const ShardLayout& layout, const Caller& caller,
                               const std::vector<std::byte>& padded, int64_t columns) {
  std::vector<std::byte> slots;
  const int64_t outer = caller.flat ? 1 : caller.before;
  for (int64_t line = 0; line < outer; ++line) {
    for (const Run& run : layout.runs) {
      const auto from = padded.begin() + (line * columns + run.source) * caller.item;
      slots.insert(slots.end(), from, from + run.length * caller.item);
    }
  }
  return slots;
}

// "" = every rank's part is right, alone and among all, and they come back.
std::string TokenVerbFault(const LayoutCase& layout, const std::vector<ShardLayout>& layouts,
                           const Caller& caller, int64_t columns) {
  const DType dtype = caller.tensor.spec.dtype;
  const Number number = int64_t{7};
  const Element fill = *ConvertFill(number, dtype, "t");
  const std::vector<std::byte> padded = Padded(caller, columns, fill);
  const ShardTokenOptions options{caller.axis, number};
  const auto parts =
      ShardTokenTensor(layouts, caller.tensor, options, Limits{}, TheExecutor(), ThePool());
  if (!parts.ok()) return absl::StrCat("shard: ", parts.status().ToString());
  for (size_t rank = 0; rank < layouts.size(); ++rank) {
    const auto want = SlotsOf(layouts[rank], caller, padded, columns);
    if (!Same((*parts)[rank], want)) return absl::StrCat("part of rank ", rank);
    const auto alone = ShardTokenTensor(absl::MakeSpan(&layouts[rank], 1), caller.tensor, options,
                                        Limits{}, TheExecutor(), ThePool());
    if (!alone.ok()) return absl::StrCat("rank ", rank, " alone: ", alone.status().ToString());
    if (alone->front().spec != (*parts)[rank].spec || !Same(alone->front(), want)) {
      return absl::StrCat("rank ", rank, " alone");
    }
  }
  GatherOptions back{caller.flat ? 0 : caller.axis, false, number};
  const auto full = Gather(layouts, *parts, back, TheExecutor(), ThePool());
  if (!full.ok()) return absl::StrCat("gather: ", full.status().ToString());
  if (!Same(*full, padded)) return "gathered";
  back.trim = true;
  const auto trimmed = Gather(layouts, *parts, back, TheExecutor(), ThePool());
  const bool target = layouts[0].original_seq_len || layouts[0].input_row_shape ||
                      layouts[0].input_token_stream_positions || layout.whole;
  if (!target) return absl::IsFailedPrecondition(trimmed.status()) ? "" : "trimmed to nothing";
  if (!trimmed.ok()) return absl::StrCat("trim: ", trimmed.status().ToString());
  if (trimmed->spec != caller.tensor.spec) return "another shape";
  return Same(*trimmed, Returned(caller, fill)) ? "" : "trimmed";
}

// Whether labels go through the verb as they went through the layout: integers that it pads with
// -100 and does not cast, in rows; of [B, S] where rows are laid out anew (T48); where rows become
// a stream, of a layout that says so (contract 7.5: magi mostly does not).
bool GoesAlike(const Tensor& labels, const Tensor& cut, const StreamCut& how,
               const ShardLayout& layout) {
  if (how.extent != Extent::kLocal || (how.seq_axis == 0 && !layout.input_row_shape)) return false;
  if (labels.spec.dtype != cut.spec.dtype || !IsInteger(cut.spec.dtype)) return false;
  if (IsUnsigned(cut.spec.dtype) || labels.spec.dims.size() < 2) return false;
  const SharedIntArray& positions = layout.input_token_stream_positions;
  return layout.padded_seq_len && (!positions || positions->shape == labels.spec.dims);
}

// Contract 9.2: "exactly like the model inputs". Bytes alone are compared: rows of one token may
// come out as a stream (T51).
std::string LinesUpFault(const Sample& sample, const Shards& shards, int64_t& compared) {
  const auto sent = sample.streams.find("labels");
  const Tensor* cut = shards[0].batch.FindTensor("labels");
  if (sent == sample.streams.end() || cut == nullptr) return "";
  Sample alone;
  alone.streams["labels"] = sent->second;
  const Tensor labels = ToProduct(alone).tensors.front();
  const StreamCut& how = shards[0].cuts[cut - shards[0].batch.tensors.data()];
  if (!GoesAlike(labels, *cut, how, shards[0].layout)) return "";
  ++compared;
  const auto parts =
      ShardTokenTensor(LayoutsOf(shards), labels, {how.seq_axis, Number(int64_t{-100})}, Limits{},
                       TheExecutor(), ThePool());
  if (!parts.ok()) return absl::StrCat("labels: ", parts.status().ToString());
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const Tensor& want = *shards[rank].batch.FindTensor("labels");
    const auto bytes = want.bytes();
    if (!Same((*parts)[rank], {bytes.begin(), bytes.end()})) return absl::StrCat("rank ", rank);
  }
  return "";
}

class TokenVerbsOf : public testing::TestWithParam<LayoutCase> {
 protected:
  // Calls `fault` for the shards of every batch that the layout accepts: cp 1-8 and no mesh.
  template <typename Fault>
  void Check(const Fault& fault) {
    int64_t seen = 0, faults = 0;
    for (int64_t cp_size = 0; cp_size <= 8; ++cp_size) {
      for (int64_t length = 0; length <= 40; length += length < 12 ? 1 : 7) {
        for (int64_t rows = 1; rows <= 3 && faults < 3; ++rows) {
          Point point{.length = length, .rows = rows};
          if (cp_size > 0) point.cp_size = cp_size;
          point = GetParam().NearestPoint(point);
          Rng rng((cp_size * 41 + length) * 4 + rows);
          Sample sample = GetParam().Draw(point, rng);
          GetParam().Fit(sample);
          const auto result = ShardSample(GetParam(), sample, point);
          if (!result.ok()) continue;
          ++seen;
          const std::string text = fault(sample, result->shards, rng);
          if (text.empty()) continue;
          ++faults;
          ADD_FAILURE() << text << "\n  " << Describe(sample, point);
        }
      }
    }
    EXPECT_GT(seen, 20);
  }
};

TEST_P(TokenVerbsOf, CutEveryTensorAsTheRecordsSayAndPutItBack) {
  Check([&](const Sample&, const Shards& shards, Rng& rng) -> std::string {
    const std::vector<ShardLayout> layouts = LayoutsOf(shards);
    const auto map = CapturedMapOf(layouts);
    if (absl::IsFailedPrecondition(map.status())) return "";  // no layout is reported
    if (!map.ok()) return map.status().ToString();
    for (const DType dtype : kAllDTypes) {
      const Caller caller = Draw(layouts[0], map->columns, dtype, rng);
      const std::string fault = TokenVerbFault(GetParam(), layouts, caller, map->columns);
      if (!fault.empty()) {
        return absl::StrCat(fault, " of ", DTypeName(dtype), DimsString(caller.tensor.spec.dims),
                            " on axis ", caller.axis);
      }
    }
    return "";
  });
}

TEST_P(TokenVerbsOf, LineUpWithTheBatch) {
  int64_t compared = 0;
  Check([&](const Sample& sample, const Shards& shards, Rng&) {
    return LinesUpFault(sample, shards, compared);
  });
  // Chunks report no rows to merge.
  const bool none =
      GetParam().whole || GetParam().num_chunks > 1 || GetParam().name.starts_with("magi_custom");
  EXPECT_GT(compared, none ? -1 : 100);
}

INSTANTIATE_TEST_SUITE_P(All, TokenVerbsOf, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard::property
