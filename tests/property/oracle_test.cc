// The oracle is held to the reference: every case of the corpus for the layouts it restates, with
// the decisions of contract section 17 applied as the corpus states them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/oracle/restatement.h"
#include "core/oracle/values.h"
#include "core/plan/half.h"

namespace cpshard::oracle {
namespace {

using Json = nlohmann::json;

void AppendNumbers(const Json& data, Tensor& tensor) {
  if (data.is_array()) {
    for (const Json& item : data) AppendNumbers(item, tensor);
    return;
  }
  const auto append = [&](auto value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + sizeof value);
  };
  if (tensor.dtype == "bool") return append(static_cast<uint8_t>(data.get<bool>()));
  if (tensor.dtype == "f64") return append(data.get<double>());
  if (tensor.dtype == "f32") return append(data.get<float>());
  if (tensor.dtype == "f16") return append(FloatToF16Bits(data.get<float>()));
  if (tensor.dtype == "bf16") return append(FloatToBf16Bits(data.get<float>()));
  const int64_t integer = data.get<int64_t>();
  const auto* bytes = reinterpret_cast<const uint8_t*>(&integer);
  tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + ElementSize(tensor.dtype));
}

Tensor TensorOf(const Json& value) {
  Tensor tensor{.dtype = value["dtype"], .dims = value["shape"], .bytes = {}};
  AppendNumbers(value["data"], tensor);
  return tensor;
}

// The tensors of "batch" or "outputs"; of the other entries, see ScalarsOf.
Batch TensorsOf(const Json& entries) {
  Batch batch;
  for (const auto& [name, value] : entries.items()) {
    const bool is_gradient = name.starts_with("d_sum/");
    if (!value.contains("data") || is_gradient) continue;
    batch[name == "loss_mask(buffer)" ? "loss_mask" : name] = TensorOf(value);
  }
  return batch;
}

// The non-tensors that mean something to a layout; the rest are passed on by all of them.
std::map<std::string, Scalar> ScalarsOf(const Json& entries) {
  std::map<std::string, Scalar> scalars;
  for (const char* name :
       {"qkv_format", "cp_size", "cp_rank", "kimi_packed_seq_start", "kimi_packed_cp_size",
        "kimi_packed_context.seq_start", "kimi_packed_context.cp_size",
        "glm5_next_packed_context.seq_start", "glm5_next_packed_context.cp_size",
        "glm5_next_packed_context.original_seq_len"}) {
    const Json value = entries.value(name, Json::object()).value("value", Json());
    if (value.is_string()) scalars[name] = value.get<std::string>();
    if (value.is_number()) scalars[name] = value.get<int64_t>();
  }
  return scalars;
}

// Records field by field: "record.field".
Json Flattened(const Json& entries) {
  Json flat = Json::object();
  for (const auto& [name, value] : entries.items()) {
    if (!value.is_object() || !value.contains("struct")) {
      flat[name] = value;
      continue;
    }
    for (const auto& [field, of_field] : value.items()) {
      if (field == "struct") continue;
      flat[name + "." + field] = of_field.is_object() ? of_field : Json{{"value", of_field}};
    }
  }
  return flat;
}

// Embeddings of visual tokens come as a list, which is no tensor.
bool HasAList(const Json& entries) {
  for (const auto& [name, value] : entries.items()) {
    if (name == "_deepstack_visual_embeds") return true;
  }
  return false;
}

// Backends that are another option of a layout, or a part of it.
std::string LayoutOf(const std::string& backend) {
  if (backend == "round_robin_aux_only") return "round_robin";
  if (backend == "te_thd" || backend.starts_with("thd_")) return "thd";
  if (backend == "blockdiag") return "block_diagonal";
  return backend;
}

Options OptionsOf(const Json& test) {
  const Json& args = test["args"];
  const std::string backend = test["backend"];
  Options options{.layout = LayoutOf(backend)};
  options.num_chunks = args.value("num_chunks", 1);
  const Json format = test["batch"].value("qkv_format", Json::object()).value("value", Json());
  if (format.is_string()) options.qkv_format = format.get<std::string>();
  options.keep_primary_full =
      backend == "round_robin_aux_only" || !args.value("shard_primary", backend != "glm5_next");
  const Json multiple = args.value("pad_multiple", Json());
  if (!multiple.is_null()) options.pad_multiple = multiple;
  const Json pad_id = args.value("padding_token_id", Json(0));
  if (!pad_id.is_null()) options.padding_token_id = pad_id.get<int64_t>();
  const Json pads = args.value("extra_pad_values", Json::object());
  for (const char* key : {"extra_seq_keys", "extra_seq_buffers"}) {
    const Json extras = args.value(key, Json());
    if (extras.is_null()) continue;
    for (const auto& [name, axis] : extras.items()) {
      options.extras.push_back({.name = name, .seq_axis = axis});
      if (!pads.contains(name)) continue;
      const Json& pad = pads[name];
      options.extras.back().pad = pad.is_boolean() ? pad.get<bool>() : pad.get<double>();
    }
  }
  return options;
}

void ExpectLayout(const Json& layout, const Shard& got) {
  const auto entry = [&]<typename T>(const char* key, T of) -> std::optional<T> {
    const bool there = layout.is_object() && layout.contains(key) && !layout[key].is_null();
    if (!there) return std::nullopt;
    const Json& value = layout[key];
    return (value.is_object() ? value["data"] : value).template get<decltype(of)>();
  };
  EXPECT_EQ(got.original_seq_len, entry("original_seq_len", int64_t{}));
  EXPECT_EQ(got.padded_seq_len, entry("padded_seq_len", int64_t{}));
  EXPECT_EQ(got.input_row_shape, entry("input_row_shape", std::vector<int64_t>()));
  const auto indices = entry("local_token_global_indices", std::vector<int64_t>());
  EXPECT_EQ(got.local_token_global_indices, indices);
  if (indices) {
    EXPECT_EQ(got.columns, *indices);
  }
}

// `converted` = the reference ran the conversion alone, which has no layout.
void ExpectRank(Json want, bool converted, std::optional<Shard> got) {
  ASSERT_TRUE(got.has_value());
  want["outputs"] = Flattened(want["outputs"]);
  if (converted) got->outputs.erase("_thd_local_indices");
  const Batch outputs = TensorsOf(want["outputs"]);
  std::set<std::string> names;
  for (const auto& [name, tensor] : outputs) names.insert(name);
  for (const auto& [name, tensor] : got->outputs) names.insert(name);
  for (const std::string& name : names) {
    ASSERT_TRUE(outputs.contains(name)) << name << " should be gone";
    ASSERT_TRUE(got->outputs.contains(name)) << name << " is missing";
    EXPECT_EQ(got->outputs.at(name).dims, outputs.at(name).dims) << name;
    EXPECT_TRUE(got->outputs.at(name) == outputs.at(name)) << name;
  }
  EXPECT_EQ(got->scalars, ScalarsOf(want["outputs"]));
  if (!converted) ExpectLayout(want.value("layout", Json()), *got);
}

void ExpectCase(const Json& test) {
  Batch batch = TensorsOf(test["batch"]);
  if (test.contains("loss_mask_arg")) batch["loss_mask"] = TensorOf(test["loss_mask_arg"]);
  const Options options = OptionsOf(test);
  std::optional<int64_t> cp_size;
  if (!test["cp_size"].is_null()) cp_size = test["cp_size"].get<int64_t>();
  const Json expect = test["product"].value("expect", Json::object());
  if (expect.contains("error")) {
    EXPECT_FALSE(Restate(batch, options, cp_size, 0).has_value());
    return;
  }
  const Json& ranks = expect.contains("ranks") ? expect["ranks"] : test["ranks"];
  const bool converted = test["backend"].get<std::string>().starts_with("thd_");
  for (const Json& rank : ranks) {
    SCOPED_TRACE(rank["rank"].get<int64_t>());
    ExpectRank(rank, converted, Restate(batch, options, cp_size, rank["rank"]));
  }
}

int64_t ExpectFile(const std::string& name) {
  const std::set<std::string> restated = {
      "identity", "contiguous", "round_robin", "round_robin_aux_only", "thd_convert", "thd_chunks",
      "te_thd",   "gemma4",     "kimi_k3",     "kimi_linear",          "glm5_next",   "blockdiag"};
  std::ifstream file(std::string(CPSHARD_GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  int64_t cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json test = Json::parse(line);
    const Json expect = test["product"].value("expect", Json::object());
    const bool of_another_option = expect.is_object() && expect.contains("args");  // D14
    const bool another = of_another_option || HasAList(test["batch"]);
    if (!restated.contains(test["backend"]) || another) continue;
    SCOPED_TRACE(test["id"].get<std::string>());
    ExpectCase(test);
    ++cases;
  }
  return cases;
}

class OracleOnCorpus : public testing::TestWithParam<const char*> {};

TEST_P(OracleOnCorpus, GivesTheValuesOfTheReference) {
  const int64_t cases = ExpectFile(GetParam());
  EXPECT_GT(cases, 0);
  RecordProperty("cases", std::to_string(cases));
}

INSTANTIATE_TEST_SUITE_P(Files, OracleOnCorpus,
                         testing::Values("identity.jsonl", "contiguous.jsonl", "round_robin.jsonl",
                                         "aux_only.jsonl", "thd.jsonl", "te_thd.jsonl",
                                         "gemma4.jsonl", "kimi.jsonl", "glm5_next.jsonl",
                                         "blockdiag.jsonl", "decisions.jsonl", "curated.jsonl"));

uint16_t Bits(const std::optional<Element>& element) {
  uint16_t bits;
  std::memcpy(&bits, element->data(), sizeof bits);
  return bits;
}

// Every value of the format and every midpoint between two neighbours, both signs.
template <typename ToFloat, typename ToBits>
void ExpectSameRounding(const std::string& dtype, uint16_t infinity, ToFloat to_float,
                        ToBits to_bits) {
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const float value = to_float(bits);
    const float middle = value + (to_float(bits + 1) - value) / 2;
    for (const float number : {value, -value, middle, -middle}) {
      ASSERT_EQ(Bits(FillElement(double{number}, dtype)), to_bits(number)) << number;
    }
  }
}

TEST(Oracle, RoundsTo16BitFloatsAsTheProductDoes) {
  ExpectSameRounding("f16", 0x7c00, F16BitsToFloat, FloatToF16Bits);
  ExpectSameRounding("bf16", 0x7f80, Bf16BitsToFloat, FloatToBf16Bits);
}

}  // namespace
}  // namespace cpshard::oracle
