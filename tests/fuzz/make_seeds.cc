// make_seeds FOLDER: writes the seed corpora, FOLDER/TARGET/NAME. Run by hand after a change of a
// format: build the target fuzz_make_seeds, then run it on tests/fuzz/corpus.
#include <algorithm>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/safetensors.h"
#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "proto/json.h"
#include "tests/fuzz/seeds.h"

namespace cpshard {
namespace {

struct Named {
  std::string name, text;
};

const std::vector<Named> kOptions = {
    {"identity", R"({"identity": {}})"},
    {"contiguous", R"({"contiguous": {}})"},
    {"contiguous_multiple", R"({"contiguous": {"pad_multiple": 4}, "padding_token_id": 7})"},
    {"contiguous_full", R"({"contiguous": {"keep_primary_full": true}, "padding_token_id": "0"})"},
    {"round_robin", R"({"round_robin": {}, "padding_token_id": 0})"},
    {"round_robin_full", R"({"round_robin": {"keep_primary_full": true}})"},
    {"thd", R"({"thd": {}})"},
    {"thd_chunks", R"({"thd": {"num_chunks": 2}})"},
    {"glm_dsa", R"({"glm_dsa": {}})"},
    {"glm_dsa_chunks", R"({"glm_dsa": {"num_chunks": 2}})"},
    {"deepseek_v4", R"({"deepseek_v4": {"pad_multiple": 4}, "min_padded_len": 17})"},
    {"deepseek_v41", R"({"deepseek_v41": {"packed_alignment": 3}})"},
    {"gemma4", R"({"gemma4": {}})"},
    {"kimi", R"({"kimi": {"variant": "LINEAR"}})"},
    {"kimi_k3", R"({"kimi": {"variant": "K3"}})"},
    {"glm5_next", R"({"glm5_next": {"keep_primary_full": true}})"},
    {"mimo", R"({"mimo": {"image_token_id": 3, "video_token_id": -1}})"},
    {"qwen3_8", R"({"qwen3_8": {}})"},
    {"block_diagonal", R"({"block_diagonal": {}})"},
    {"magi", R"({"magi": {"variant": "HF", "chunk_size": 2}})"},
    {"magi_custom", R"({"magi": {"variant": "CUSTOM", "min_chunks_per_rank": 2}})"},
    {"explicit", R"({"explicit": {"ranks": [{"runs": [{"length": 1}, {"source": 4, "length": 12}]},
{"runs": [{"source": 1, "length": 3}]}]}})"},
    {"document_head_tail", R"({"document_head_tail": {}})"},
};

const std::vector<Named> kMoreOptions = {
    {"none", "{}"},
    {"extra",
     R"({"contiguous": {}, "padding_token_id": 0, "extra_streams": [{"name": "extra", "seq_axis": 1,
"float_pad": -0.5}, {"name": "late", "seq_axis": -1, "int_pad": 3}]})"},
    {"extra_axis", R"({"round_robin": {}, "padding_token_id": 0,
"extra_streams": [{"name": "late", "seq_axis": 2}]})"},
    {"extra_odd", R"({"contiguous": {}, "extra_streams": [{"name": "extra", "float_pad": "NaN"},
{"name": "extra", "seq_axis": -2147483648}, {"name": "labels", "float_pad": "-Infinity"}]})"},
    {"multiple_max", R"({"contiguous": {"pad_multiple": "9223372036854775807"}})"},
    {"multiple_large", R"({"contiguous": {"pad_multiple": 4611686018427387904},
"padding_token_id": 1})"},
    {"multiple_below", R"({"contiguous": {"pad_multiple": -9223372036854775808}})"},
    {"pad_id_below", R"({"contiguous": {"pad_multiple": 8}, "padding_token_id": -100})"},
    {"thd_chunks_max", R"({"thd": {"num_chunks": 2147483647}, "padding_token_id": 0})"},
    {"thd_chunks_below", R"({"thd": {"num_chunks": -3}, "padding_token_id": "1"})"},
    {"min_padded_len", R"({"contiguous": {}, "min_padded_len": 12})"},
    {"targets", R"({"identity": {}, "targets": {"num_depths": 2, "ignore_index": "-1"}})"},
    {"two_layouts", R"({"identity": {}, "contiguous": {}})"},
    {"twice", R"({"identity": {}, "identity": {}})"},
    {"magi_vlm", R"({"magi": {"variant": "HF", "domain": "VLM", "chunk_size": 512}})"},
    {"magi_sizes", R"({"magi": {"variant": 2, "chunk_size": "9223372036854775807",
"min_chunks_per_rank": "9223372036854775807"}})"},
    {"no_variant", R"({"kimi": {}})"},
    {"alignment_max", R"({"deepseek_v41": {"packed_alignment": "9223372036854775807",
"pad_multiple": "9223372036854775807"}, "min_padded_len": "9223372036854775807"})"},
    {"explicit_one", R"({"explicit": {"ranks": [{"runs": [{"source": 0, "length": 3}]}]}})"},
    {"explicit_large", R"({"explicit": {"ranks": [{"runs": [{"length": 6}]},
{"runs": [{"source": 6, "length": "9223372036854775801"}]}]}})"},
    {"explicit_none", R"({"explicit": {"ranks": [{}, {"runs": [{"source": 3}]}]}})"},
    {"tensor_parallel", R"({"qwen3_8": {"tp_size": 2}})"},
    {"camel", R"({"roundRobin": {"keepPrimaryFull": null}})"},
    {"unknown", R"({"identity": {"nothing": [1, 2.5e3, "\u00e9\ud83d\ude00"]}})"},
    {"deep", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["},
};

Tensor Counted(const char* name, DType dtype, std::vector<int64_t> dims) {
  static auto& pool = *new BufferPool;
  Tensor tensor{{name, dtype, std::move(dims)}, {}};
  tensor.buffer = *pool.Allocate(NumBytes(tensor.spec));
  for (size_t i = 0; i < tensor.buffer.size(); ++i) {
    const size_t in_item = i % ItemSize(dtype);
    tensor.buffer.data()[i] = static_cast<std::byte>(
        in_item == 0 ? (dtype == DType::kBool ? 1 : i / ItemSize(dtype) + 1) : 0);
  }
  return tensor;
}

Tensor Lengths(const char* name, std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  Tensor tensor = Counted(name, DType::kI64, std::move(dims));
  std::memcpy(tensor.buffer.data(), values.data(), tensor.buffer.size());
  return tensor;
}

std::vector<std::pair<std::string, Batch>> Batches() {
  const Tensor ids = Counted("input_ids", DType::kI64, {2, 5});
  const Tensor labels = Counted("labels", DType::kI32, {2, 5});
  const Tensor mask = Counted("attention_mask", DType::kBool, {2, 5});
  const Tensor positions = Counted("position_ids", DType::kI64, {1, 5});
  return {
      {"plain", {{ids, labels, mask, positions}, {}}},
      {"even",
       {{Counted("input_ids", DType::kI32, {1, 8}), Counted("labels", DType::kI64, {1, 8})},
        {{"flag", true}, {"rate", 0.5}}}},
      {"embeds",
       {{Counted("inputs_embeds", DType::kBF16, {1, 3, 4}),
         Counted("padding_mask", DType::kBool, {1, 3}), Counted("labels", DType::kI64, {1, 3}),
         Counted("late", DType::kF16, {1, 2, 3})},
        {{"note", std::string("x")}, {"count", int64_t{-3}}}}},
      {"mask4d", {{ids, labels, Counted("attention_mask", DType::kBool, {2, 1, 5, 5})}, {}}},
      {"packed",
       {{Counted("input_ids", DType::kI64, {1, 6}), Counted("labels", DType::kI64, {1, 6}),
         Counted("seq_lens", DType::kI64, {1, 2})},
        {{"qkv_format", std::string("thd")}}}},
      {"documents",
       {{Counted("input_ids", DType::kI32, {2, 8}), Counted("labels", DType::kI64, {2, 8}),
         Counted("position_ids", DType::kI64, {2, 8}),
         Lengths("seq_lens", {2, 2}, {3, 4, 8, -1000}),
         Lengths("seq_lens_padded", {2, 2}, {4, 4, 8, -1000}),
         Counted("pixel_values", DType::kF32, {3})},
        {{"cp_rank", int64_t{9}}}}},
      {"one_row",
       {{Counted("input_ids", DType::kI64, {1, 8}), Counted("labels", DType::kI64, {1, 8}),
         Counted("position_ids", DType::kI64, {1, 8}), Lengths("seq_lens", {1, 2}, {3, 5})},
        {{"qkv_format", std::string("thd")}}}},
      {"boundaries",
       {{Counted("input_ids", DType::kI32, {1, 8}), Counted("labels", DType::kI64, {1, 8}),
         Lengths("cu_seqlens", {3}, {0, 3, 8})},
        {}}},
      {"visual",
       {{Counted("input_ids", DType::kI64, {1, 7}),
         Counted("visual_pos_masks", DType::kBool, {1, 7}),
         Counted("_deepstack_visual_embeds.0", DType::kF32, {7, 2}),
         Counted("_deepstack_visual_embeds.1", DType::kI16, {7})},
        {}}},
      {"empty",
       {{Counted("input_ids", DType::kI64, {0, 5}), Counted("labels", DType::kI64, {0, 5}),
         Counted("x", DType::kF64, {})},
        {}}},
  };
}

void WriteOptions(const Seeds& seeds) {
  for (const auto& [name, text] : kOptions) seeds.Write("options", name, text);
  for (const auto& [name, text] : kMoreOptions) seeds.Write("options", name, text);
}

void WriteRequests(const Seeds& seeds) {
  for (const auto& [batch_name, batch] : Batches()) {
    for (const auto& [name, text] : kOptions) {
      Options options = *Options::FromJson(text);
      options.SetDefaultPaddingTokenId(0);
      const bool planned = PlanBatch(*options.MakeSharder(), batch, 2).ok();
      if (!planned && batch_name != "plain") continue;  // one refusal of each will do
      v1::ShardBatchRequest message;
      (void)EncodeShardBatchRequest(batch, options, 2, {}, ExecutorKind::kCuda, &message);
      if (batch_name == "even" || (batch_name == "plain" && name == "thd")) message.clear_cp_size();
      if (batch_name == "embeds") message.add_ranks(1);
      seeds.Write("request", absl::StrCat(batch_name, "_", name), message.SerializeAsString());
    }
  }
  // No bytes, but many columns: rows of none, and slots of none.
  for (const auto& [name, text] : kOptions) {
    v1::ShardBatchRequest message;
    *message.mutable_options() = Options::FromJson(text)->message();
    message.set_cp_size(2);
    for (const char* stream : {"input_ids", "labels"}) {
      v1::Entry* entry = message.add_entries();
      entry->set_name(stream);
      entry->set_dtype(v1::DTYPE_I64);
      entry->add_dims(0);
      entry->add_dims(int64_t{1} << 40);
    }
    seeds.Write("request", absl::StrCat("no_rows_", name), message.SerializeAsString());
  }
}

void WriteLayouts(const Seeds& seeds) {
  const std::vector<std::pair<std::string, Batch>> batches = Batches();
  for (const auto& [name, text] : kOptions) {
    Options options = *Options::FromJson(text);
    options.SetDefaultPaddingTokenId(0);
    for (const char* batch_name : {"documents", "one_row", "plain"}) {  // the first that it takes
      const auto batch = std::find_if(batches.begin(), batches.end(),
                                      [&](const auto& named) { return named.first == batch_name; });
      const auto plan = PlanBatch(*options.MakeSharder(), batch->second, 2);
      if (!plan.ok()) continue;
      const std::vector<ShardLayout> layouts = {LayoutFor(*plan, 0, 42), LayoutFor(*plan, 1, 42)};
      seeds.Write("layouts", name, LayoutsToJson(layouts));
      break;
    }
  }
  ShardLayout first{.cp_size = 2, .batch_digest = ~uint64_t{0}, .runs = {{0, 1}, {3, 1}}};
  first.padded_seq_len = 4;
  ShardLayout second = first;
  second.cp_rank = 1;
  second.runs = {{1, 2}};
  ShardLayout whole{.runs = {{0, 4}}};
  whole.padded_seq_len = 4;
  const auto both = [&](const char* name, auto change) {
    std::vector<ShardLayout> layouts = {first, second};
    for (ShardLayout& layout : layouts) change(layout);
    seeds.Write("layouts", name, LayoutsToJson(layouts));
  };
  both("positions", [](auto& x) {
    x.input_token_stream_positions = IntArray{{2, 3}, {0, 1, -1, 3, 3, 2}};
  });
  both("positions_beyond", [](auto& x) {
    x.input_token_stream_positions = IntArray{{2, 1}, {0, 9}};
  });
  both("rows", [](auto& x) { x.input_row_shape = {{2}, {2, 2}}; });
  both("original", [](auto& x) { x.original_seq_len = 3; });
  both("original_below", [](auto& x) { x.original_seq_len = -3; });
  both("indices", [](auto& x) { x.local_token_global_indices = {{1, 2}, {0, 3}}; });
  both("columns_max", [](auto& x) { x.padded_seq_len = INT64_MAX; });
  both("runs_max", [](auto& x) {
    x.padded_seq_len = INT64_MAX;
    x.runs = {{0, INT64_MAX - 1}};
  });
  both("runs_fill", [](auto& x) { x.runs = {{-1, 1}, {-2, 1}, {0, -1}}; });
  both("runs_none", [](auto& x) { x.runs.clear(); });
  seeds.Write("layouts", "whole", LayoutsToJson({whole}));
  seeds.Write("layouts", "none", "[]");
  seeds.Write("layouts", "empty", "[{\"cp_size\": 1}]");
  seeds.Write("layouts", "numbers", "[{\"cpSize\": 1.0, \"batch_digest\": \"-1\", \"runs\": {}}]");
}

std::string FileOf(const std::string& header, const std::string& body) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + body;
}

void WriteFiles(const Seeds& seeds) {
  for (const auto& [name, batch] : Batches()) {
    (void)WriteSafetensors(seeds.Path("safetensors", name), batch.tensors,
                           ScalarsToMetadata(batch.scalars));
  }
  const auto write = [&](const char* name, const std::string& header, const std::string& body) {
    seeds.Write("safetensors", name, FileOf(header, body));
  };
  write("all_dtypes",
        R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
        R"("b":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
        R"("c":{"dtype":"I16","shape":[1,1],"data_offsets":[12,14]},)"
        R"("d":{"dtype":"U8","shape":[2],"data_offsets":[14,16]},)"
        R"("e":{"dtype":"I8","shape":[0,9],"data_offsets":[16,16]},)"
        R"("__metadata__":{"format":"pt","n":"-12","t":"true","s":"007","u":"\u00e9"}})",
        "0123456789abcdef");
  write("odd_names",
        R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
        R"("\u0000\"\\":{"dtype":"BOOL","shape":[1],"data_offsets":[1,2]}})",
        "ab");
  write("gap", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "abcd");
  write("overflow", R"({"a":{"dtype":"I64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
        "");
  write("zero_large",
        R"({"a":{"dtype":"I64","shape":[0,4611686018427387904,4611686018427387904],)"
        R"("data_offsets":[0,0]}})",
        "");
  write("offsets_large",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[4611686018427387904,)"
        R"(4611686018427387905]}})",
        "a");
  write("twice", R"({"a":{},"a":{}})", "");
  write("metadata_number", R"({"__metadata__":{"k":3}})", "");
  write("no_header", "", "");
  seeds.Write("safetensors", "short", "abc");
  seeds.Write("safetensors", "length_max", std::string(8, '\xff') + "{}");
}

void WriteIndexMaps(const Seeds& seeds) {
  using namespace std::string_literals;
  const auto write = [&](const char* name, const std::string& bytes) {
    seeds.Write("index_map", name, bytes);
  };
  write("empty", "\x00\x00"s);
  write("identity", "\x08\x01\x00\x08"s);
  write("round_robin", "\x08\x02\x00\x02\x06\x02\x01\x02"s);
  write("merges", "\x08\x03\x00\x03\x03\x03\xf0\x02"s);
  write("fill", "\x08\x03\x04\x03\xf0\x02\x00\x03\x02\x04\xf0\x01"s);
  write("repeats", "\x08\x02\x00\x03\x02\x03"s);
  write("beyond", "\x08\x01\x07\x02"s);
  write("negative", "\x08\x02\x00\xff\xfa\x01"s);
  write("nothing", "\x08\x02\x08\x00\xf0\x00"s);
  write("composed", "\x20\x03\x10\x08\xf0\x04\x00\x08\x02\x05\x0e\x04\xf0\x03\x00\x01"s);
  const auto large = [&](const char* name, const std::vector<Run>& runs) {
    std::string bytes = "\xff\x00"s;
    for (const Run& run : runs) {
      bytes.append(reinterpret_cast<const char*>(&run), sizeof(run));
    }
    write(name, bytes);
  };
  large("large_total", {{0, INT64_MAX - 1}, {0, INT64_MAX - 1}, {0, INT64_MAX}});
  large("large_fill", {{-1, INT64_MAX}, {0, INT64_MAX}});
  large("large_gap", {{1LL << 62, 1LL << 61}, {-1, 5}, {0, 7}, {0, INT64_MAX}});
  large("large_source", {{INT64_MAX, 1}, {0, INT64_MAX}});
}

}  // namespace
}  // namespace cpshard

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_seeds FOLDER\n";
    return 64;
  }
  const cpshard::Seeds seeds(argv[1]);
  cpshard::WriteOptions(seeds);
  cpshard::WriteRequests(seeds);
  cpshard::WriteBatchFrames(seeds, cpshard::Batches());
  cpshard::WriteShardFrames(seeds, cpshard::Batches());
  cpshard::WriteSessionMessages(seeds);
  cpshard::WriteLayouts(seeds);
  cpshard::WriteFiles(seeds);
  cpshard::WriteIndexMaps(seeds);
}
