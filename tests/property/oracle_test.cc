// The oracle is held to the reference: every case of the corpus for the layouts it restates, with
// the decisions of contract section 17 applied as the corpus states them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

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

// The tensors of "batch" or "outputs"; the rest of the entries are passed on in any layout.
Batch TensorsOf(const Json& entries) {
  Batch batch;
  for (const auto& [name, value] : entries.items()) {
    const bool is_gradient = name.starts_with("d_sum/");
    if (!value.contains("data") || is_gradient) continue;
    batch[name == "loss_mask(buffer)" ? "loss_mask" : name] = TensorOf(value);
  }
  return batch;
}

Options OptionsOf(const Json& test) {
  const Json& args = test["args"];
  const std::string backend = test["backend"];
  Options options{.layout = backend == "round_robin_aux_only" ? "round_robin" : backend};
  options.keep_primary_full =
      backend == "round_robin_aux_only" || !args.value("shard_primary", true);
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

void ExpectRank(const Json& want, const std::optional<Shard>& got) {
  ASSERT_TRUE(got.has_value());
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
  const Json layout = want.value("layout", Json());
  const auto entry = [&](const char* key) {
    const bool there = layout.is_object() && layout.contains(key) && !layout[key].is_null();
    return there ? std::optional<int64_t>(layout[key].get<int64_t>()) : std::nullopt;
  };
  EXPECT_EQ(got->original_seq_len, entry("original_seq_len"));
  EXPECT_EQ(got->padded_seq_len, entry("padded_seq_len"));
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
  for (const Json& rank : ranks) {
    SCOPED_TRACE(rank["rank"].get<int64_t>());
    ExpectRank(rank, Restate(batch, options, cp_size, rank["rank"]));
  }
}

int64_t ExpectFile(const std::string& name) {
  const std::set<std::string> restated = {"identity", "contiguous", "round_robin",
                                          "round_robin_aux_only"};
  std::ifstream file(std::string(CPSHARD_GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  int64_t cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json test = Json::parse(line);
    const Json expect = test["product"].value("expect", Json::object());
    const bool of_another_option = expect.is_object() && expect.contains("args");  // D14
    if (!restated.contains(test["backend"]) || of_another_option) continue;
    SCOPED_TRACE(test["id"].get<std::string>());
    ExpectCase(test);
    ++cases;
  }
  return cases;
}

class OracleOnCorpus : public testing::TestWithParam<const char*> {};

TEST_P(OracleOnCorpus, GivesTheValuesOfTheReference) { EXPECT_GT(ExpectFile(GetParam()), 0); }

INSTANTIATE_TEST_SUITE_P(Files, OracleOnCorpus,
                         testing::Values("identity.jsonl", "contiguous.jsonl", "round_robin.jsonl",
                                         "aux_only.jsonl", "decisions.jsonl", "curated.jsonl"));

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
