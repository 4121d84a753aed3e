// Bits, empty tensors, sizes and shapes: what a batch may hold, and what is refused before it is
// looked at.
#include <cstring>

#include "tests/cases/cases.h"

namespace cpshard {
namespace {

class BatchValues : public CaseTest {
 protected:
  // Elements of `dtype` with these bits.
  static Tensor OfBits(std::string name, DType dtype, std::vector<int64_t> dims,
                       const std::vector<uint64_t>& bits) {
    Tensor tensor = TensorOf(std::move(name), dtype, std::move(dims), Values(bits.size(), 0));
    for (size_t i = 0; i < bits.size(); ++i) {
      std::memcpy(tensor.buffer.data() + i * ItemSize(dtype), &bits[i], ItemSize(dtype));
    }
    return tensor;
  }
};

// B069
TEST_F(BatchValues, TheBitsOfBfloat16ComeBackUnchanged) {
  const std::vector<uint64_t> words = {0x3C24, 0x8000, 0x7F80, 0x7FC1, 0xFF81};
  const Tensor sent = OfBits("inputs_embeds", DType::kBF16, {1, 5, 1}, words);
  const Batch batch{{sent, Row("labels", Count(0, 5))}, {}};
  for (const NamedLayout& layout : RowLayouts()) {
    SCOPED_TRACE(layout.name);
    const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, 2);
    const Tensor full = Gathered(shards, "inputs_embeds");
    std::vector<uint64_t> padded = words;
    padded.resize(8, 0x0000);
    const Tensor want = OfBits("inputs_embeds", DType::kBF16, {1, 8, 1}, padded);
    EXPECT_EQ(full.spec, want.spec);
    EXPECT_EQ(BytesOf(full), BytesOf(want));
    EXPECT_EQ(BytesOf(Gathered(shards, "inputs_embeds", {.trim = true})), BytesOf(sent));
  }
}

// B069: the bits of every dtype - negative zero, infinity, quiet and signalling NaN, the extremes.
TEST_F(BatchValues, TheBitsOfEveryDTypeComeBackUnchanged) {
  const std::vector<std::pair<DType, std::vector<uint64_t>>> bits = {
      {DType::kBool, {0, 1, 1, 0, 1, 0}},
      {DType::kU8, {0, 1, 0x7F, 0x80, 0xFF, 0x9C}},
      {DType::kI8, {0, 1, 0x7F, 0x80, 0xFF, 0x9C}},
      {DType::kI16, {0, 1, 0x7FFF, 0x8000, 0xFFFF, 0xFF9C}},
      {DType::kI32, {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF9C}},
      {DType::kI64, {0, 1, INT64_MAX, uint64_t{1} << 63, UINT64_MAX, uint64_t{1} << 53 | 1}},
      {DType::kF16, {0x8000, 0x7C00, 0x7E01, 0x7D01, 0xFC01, 0x0001}},
      {DType::kBF16, {0x8000, 0x7F80, 0x7FC1, 0xFF81, 0x0001, 0x3C24}},
      {DType::kF32, {0x80000000, 0x7F800000, 0x7FC00001, 0x7F800001, 0xFF800001, 1}},
      {DType::kF64,
       {uint64_t{1} << 63, 0x7FF0000000000000, 0x7FF8000000000001, 0x7FF0000000000001,
        0xFFF0000000000001, 1}}};
  for (const auto& [dtype, words] : bits) {
    for (const NamedLayout& layout : RowLayouts()) {
      for (int64_t cp_size : {1, 2, 3}) {
        SCOPED_TRACE(layout.name + " " + std::string(DTypeName(dtype)));
        const Tensor sent = OfBits("inputs_embeds", dtype, {1, 6, 1}, words);
        const Batch batch{{sent, Row("labels", Count(0, 6)), OfBits("media", dtype, {6}, words)},
                          {}};
        const std::vector<RankShard> shards = ShardsOf(layout.sharder, batch, cp_size);
        EXPECT_EQ(BytesOf(Gathered(shards, "inputs_embeds", {.trim = true})), BytesOf(sent));
        for (const RankShard& shard : shards) {
          EXPECT_EQ(shard.batch.FindTensor("inputs_embeds")->spec.dtype, dtype);
          EXPECT_EQ(BytesOf(*shard.batch.FindTensor("media")), BytesOf(sent));
        }
      }
    }
    if (!IsFloating(dtype)) continue;
    // Packed embeddings are the one stream that is not made int64 of.
    const Tensor sent = OfBits("input_ids", dtype, {1, 4, 2},
                               {words[0], words[1], words[2], words[3], words[4], words[5], 0, 1});
    const std::vector<RankShard> shards =
        ShardsOf(Thd({}), With(PackedBatch(4, {{4}}, {}), sent), 2);
    EXPECT_EQ(BytesOf(Gathered(shards, "input_ids")), BytesOf(sent));
  }
}

// B070
TEST_F(BatchValues, EmptyTensorsKeepTheirDType) {
  for (const NamedLayout& layout : RowLayouts()) {
    for (const auto& [rows, length] : {std::pair{1, 0}, {0, 7}, {0, 0}, {3, 0}}) {
      SCOPED_TRACE(layout.name);
      const Batch ids{{TensorOf("input_ids", DType::kI64, {rows, length}, {}),
                       TensorOf("labels", DType::kI64, {rows, length}, {}),
                       TensorOf("padding_mask", DType::kBool, {rows, length}, {})},
                      {}};
      const Batch embeddings = With(Without(ids, "input_ids"),
                                    TensorOf("inputs_embeds", DType::kBF16, {rows, length, 4}, {}));
      const int64_t local = length == 0 ? 0 : 4;
      for (const RankShard& shard : ShardsOf(layout.sharder, ids, 2)) {
        ExpectTensor(shard.batch.FindTensor("input_ids"), DType::kI64, {rows, local}, {});
        ExpectTensor(shard.batch.FindTensor("padding_mask"), DType::kBool, {rows, local}, {});
        EXPECT_EQ(shard.layout.original_seq_len, length);
        EXPECT_EQ(shard.layout.padded_seq_len, 2 * local);
      }
      for (const RankShard& shard : ShardsOf(layout.sharder, embeddings, 2)) {
        ExpectTensor(shard.batch.FindTensor("inputs_embeds"), DType::kBF16, {rows, local, 4}, {});
      }
    }
  }
}

// B070: any dtype, cut or not; packed batches of no token are refused.
TEST_F(BatchValues, EmptyTensorsOfEveryDTypeKeepIt) {
  std::vector<NamedLayout> layouts = AllRowLayouts();
  layouts.push_back({"identity", Identity()});
  for (DType dtype : kAllDTypes) {
    for (const NamedLayout& layout : layouts) {
      const Batch batch{{TensorOf("inputs_embeds", dtype, {2, 0, 4}, {}), Tokens("labels", 2, 0),
                         TensorOf("media", dtype, {0, 3}, {})},
                        {}};
      for (const RankShard& shard : ShardsOf(layout.sharder, batch, 3)) {
        SCOPED_TRACE(layout.name);
        ExpectTensor(shard.batch.FindTensor("inputs_embeds"), dtype, {2, 0, 4}, {});
        ExpectTensor(shard.batch.FindTensor("media"), dtype, {0, 3}, {});
      }
    }
    // No row, no column; embeddings of no width are no error.
    Batch packed = PackedBatch(8, {{8}}, {});
    ExpectRefused(Thd({}), With(packed, TensorOf("input_ids", dtype, {0, 8}, {})), 2,
                  {"input_ids", "[0, 8]", "B = 0"});
    ExpectRefused(Thd({}), With(packed, TensorOf("input_ids", dtype, {1, 0}, {})), 1,
                  {"input_ids", "[1, 0]", "S = 0"});
    packed = With(packed, TensorOf("input_ids", dtype, {1, 8, 0}, {}));
    for (const RankShard& shard : ShardsOf(Thd({}), packed, 2)) {
      const DType want = IsFloating(dtype) ? dtype : DType::kI64;
      ExpectTensor(shard.batch.FindTensor("input_ids"), want, {4, 0}, {});
    }
  }
}

// B073
TEST_F(BatchValues, ASizeBeyond64BitsIsRefusedBeforeItIsAllocated) {
  Batch batch = RowBatch(8);
  batch.tensors[1].spec.dims = {int64_t{1} << 33, int64_t{1} << 31};
  ExpectRefused(RoundRobin({}), batch, 2, {"labels", "8589934592"});
}

// B073: wherever the product goes over, and over 31 and 32 bits, where the limit is.
TEST_F(BatchValues, SizesAreCountedIn64Bits) {
  const Limits limits{.max_batch_bytes = int64_t{1} << 40};
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{int64_t{1} << 62, 4},
                                           {3, INT64_MAX},
                                           {1 << 21, 1 << 21, 1 << 21},
                                           {INT64_MAX, INT64_MAX, 0},
                                           {0, INT64_MAX, INT64_MAX},
                                           {int64_t{1} << 60}}) {
    for (DType dtype : kAllDTypes) {
      if (dims.size() == 1 && ItemSize(dtype) < 8) continue;  // 2^60 bytes: over the limit alone
      Batch batch = RowBatch(8);
      batch.tensors.push_back({{"media", dtype, dims}, {}});
      const absl::StatusOr<ShardResult> result = Shard(RoundRobin({}), batch, 2, {}, limits);
      ExpectStatus(result.status(), absl::StatusCode::kInvalidArgument, {"media"});
    }
  }
  for (int64_t bytes : {int64_t{1} << 31, int64_t{1} << 32, (int64_t{1} << 32) + 8}) {
    Batch batch = RowBatch(8);
    batch.tensors.push_back({{"media", DType::kI64, {bytes / 8}}, {}});
    ExpectRefused(RoundRobin({}), batch, 2,
                  {"media", DimsString(batch.tensors[2].spec.dims), "2147483648 bytes"});
  }
  // Padding of 2^40 columns is counted before it is made.
  const Sharder wide = Contiguous({.pad_multiple = int64_t{1} << 39}, {.padding_token_id = 0});
  ExpectRefused(wide, RowBatch(8), 2, {"pad_multiple"});
}

// B075
TEST_F(BatchValues, MalformedShapesAreRefusedAndTheNextBatchIsServed) {
  const auto refuse = [&](std::vector<int64_t> dims, const std::vector<std::string>& parts) {
    Batch batch = RowBatch(8);
    batch.tensors[0].spec.dims = std::move(dims);
    ExpectRefused(RoundRobin({}), batch, 2, parts);
  };
  refuse({-1, 8}, {"input_ids", "-1"});
  refuse({1, 1, 1, 1, 1, 1, 1, 1, 8}, {"input_ids", "9", "8"});
  Batch batch = With(RowBatch(8), TensorOf("input_ids", DType::kI64, {}, {7}));
  ExpectRefused(RoundRobin({}), batch, 2, {"input_ids", "[]"});
  for (int64_t cp_size : {0, -1}) {
    const absl::Status status = Shard(RoundRobin({}), RowBatch(8), cp_size).status();
    ExpectStatus(status, absl::StatusCode::kInvalidArgument, {"cp_size", std::to_string(cp_size)});
  }
  const absl::Status rank = Shard(RoundRobin({}), RowBatch(8), 2, {-1}).status();
  ExpectStatus(rank, absl::StatusCode::kInvalidArgument, {"rank -1"});
  const SharedOptions shared{.extra_streams = {{"logprobs", 7}}};
  ExpectRefused(RoundRobin({}, shared), With(RowBatch(8), Row("logprobs", Values(8, 0))), 2,
                {"logprobs", "axis 7"});
  const std::vector<RankShard> shards = ShardsOf(RoundRobin({}), RowBatch(8), 2);
  ExpectRow(shards[0], "input_ids", {11, 12, 17, 18});
}

// B075: every layout and every stream that it reads.
TEST_F(BatchValues, NoLayoutTakesAStreamOfAMalformedShape) {
  std::vector<NamedLayout> layouts = AllRowLayouts();
  layouts.push_back({"identity", Identity()});
  layouts.push_back({"thd", Thd({})});
  for (const NamedLayout& layout : layouts) {
    const Batch good = layout.name == "thd" ? PackedBatch(8, {{8}}, {}) : RowBatch(8);
    for (size_t i = 0; i < good.tensors.size(); ++i) {
      for (const std::vector<int64_t>& dims : {std::vector<int64_t>{-1, 8},
                                               {8, -1},
                                               {-1, -8},
                                               {INT64_MIN, 8},
                                               {1, 1, 1, 1, 1, 1, 1, 1, 8}}) {
        SCOPED_TRACE(layout.name + " " + good.tensors[i].spec.name);
        Batch batch = good;
        batch.tensors[i].spec.dims = dims;
        ExpectRefused(layout.sharder, batch, 2, {good.tensors[i].spec.name});
      }
    }
    ShardsOf(layout.sharder, good, 2);
  }
  // What holds the lengths of documents: any shape but [B, n].
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{}, {0}, {1, 0}, {2, 1}, {1, 1, 1}, {0, 1}}) {
    for (const char* name : {"seq_lens", "seq_lens_padded"}) {
      Batch batch = PackedBatch(8, {{8}}, {{8}});
      batch = With(batch, TensorOf(name, DType::kI64, dims, Values(Product(dims), 8)));
      for (int64_t cp_size : {1, 2}) ExpectRefused(Thd({}), batch, cp_size, {"seq_lens"});
    }
  }
  for (DType dtype : {DType::kBool, DType::kF16, DType::kF32}) {
    for (const char* name : {"seq_lens", "seq_lens_padded"}) {
      const Batch batch = With(PackedBatch(8, {{8}}, {{8}}), Row(name, {8}, dtype));
      ExpectRefused(Thd({}), batch, 2, {name, std::string(DTypeName(dtype))});
    }
  }
}

}  // namespace
}  // namespace cpshard
