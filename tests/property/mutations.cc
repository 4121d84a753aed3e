#include "tests/property/mutations.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "core/plan/dtype.h"

namespace cpshard::property {
namespace {

oracle::Tensor* AnyStream(Rng& rng, Sample& sample) {
  if (sample.streams.empty()) return nullptr;
  return &std::next(sample.streams.begin(), rng.Below(sample.streams.size()))->second;
}

void Reshape(std::vector<int64_t> dims, Rng& rng, oracle::Tensor& tensor) {
  tensor = MakeTensor(tensor.dtype, std::move(dims), Content::kCount, rng);
}

void LoseAStream(Rng& rng, Sample& sample) {
  if (sample.streams.empty()) return;
  sample.streams.erase(std::next(sample.streams.begin(), rng.Below(sample.streams.size())));
}

void ChangeALength(Rng& rng, Sample& sample) {
  oracle::Tensor* stream = AnyStream(rng, sample);
  if (stream == nullptr || stream->dims.empty()) return;
  std::vector<int64_t> dims = stream->dims;
  int64_t& dim = dims[rng.Below(dims.size())];
  dim = std::max<int64_t>(0, dim + (rng.OneIn(2) ? 1 : -1));
  Reshape(dims, rng, *stream);
}

void ChangeTheAxes(Rng& rng, Sample& sample) {
  oracle::Tensor* stream = AnyStream(rng, sample);
  if (stream == nullptr) return;
  std::vector<int64_t> dims = stream->dims;
  const auto at = static_cast<int64_t>(dims.empty() ? 0 : rng.Below(dims.size()));
  switch (rng.Below(3)) {
    case 0:
      dims.insert(dims.begin() + at, 1 + rng.Below(2));
      break;
    case 1:
      if (!dims.empty()) dims.erase(dims.begin() + at);
      break;
    default:
      if (!dims.empty()) std::swap(dims[at], dims.back());
  }
  Reshape(dims, rng, *stream);
}

void ChangeADType(Rng& rng, Sample& sample) {
  oracle::Tensor* stream = AnyStream(rng, sample);
  if (stream == nullptr) return;
  const std::string dtype(DTypeName(kAllDTypes[rng.Below(kAllDTypes.size())]));
  *stream = MakeTensor(dtype, stream->dims, Content::kCount, rng);
}

void SendAnOddStream(Rng& rng, Sample& sample, const Point& point) {
  const std::vector<int64_t> tokens = {point.rows, point.length};
  const auto put = [&](const char* name, const char* dtype, std::vector<int64_t> dims) {
    sample.streams[name] = MakeTensor(dtype, std::move(dims), Content::kCount, rng);
  };
  switch (rng.Below(6)) {
    case 0:
      put("input_ids", "i64", tokens);
      return put("inputs_embeds", "f32", {point.rows, point.length, 2});
    case 1:
      return put("labels", rng.OneIn(2) ? "u8" : "bool", tokens);
    case 2:
      return put("position_ids", "i64", {point.length});
    case 3:
      return put("position_ids", "i32", {2, 2, point.length});
    case 4:
      return put("attention_mask", rng.OneIn(2) ? "i32" : "f32",
                 {point.rows, 1, point.length + rng.Below(2), point.length});
    default:
      return put("loss_mask", "u8", tokens);
  }
}

double AnyPad(Rng& rng) {
  const double pads[] = {0,
                         0.1,
                         -1,
                         255,
                         256,
                         -129,
                         2.75,
                         -0.25,
                         65504,
                         65520,
                         3e38,
                         1e39,
                         1e300,
                         std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity(),
                         -9.3e18,
                         std::ldexp(1.0, 63)};
  return pads[rng.Below(std::size(pads))];
}

void ChangeOptions(Rng& rng, Sample& sample) {
  constexpr int64_t kPadIds[] = {-1,        0,        1,     127,    128,      255,
                                 256,       40000,    65519, -65520, 16777217, int64_t{1} << 40,
                                 INT64_MIN, INT64_MAX};
  constexpr const char* kNames[] = {"route",  "absent",       "input_ids",    "inputs_embeds",
                                    "labels", "padding_mask", "pixel_values", "token_type"};
  switch (rng.Below(3)) {
    case 0:
      sample.padding_token_id.reset();
      return;
    case 1:
      sample.padding_token_id = kPadIds[rng.Below(std::size(kPadIds))];
      return;
    default: {
      oracle::Extra extra{.name = kNames[rng.Below(std::size(kNames))],
                          .seq_axis = rng.Below(7) - 3};
      if (rng.OneIn(2)) extra.pad = AnyPad(rng);
      std::erase_if(sample.extras, [&](const auto& other) { return other.name == extra.name; });
      sample.extras.push_back(std::move(extra));
    }
  }
}

void SendPackedMetadata(Rng& rng, Sample& sample, const Point& point) {
  constexpr const char* kNames[] = {"seq_lens", "seq_lens_padded", "cu_seqlens",
                                    "cu_seqlens_padded", "_packed_seq_ids"};
  const auto choice = static_cast<size_t>(rng.Below(std::size(kNames) + 2));
  if (choice >= std::size(kNames)) {
    sample.qkv_format = choice == std::size(kNames) ? "thd" : "bshd";
    return;
  }
  sample.streams[kNames[choice]] = MakeTensor("i64", {point.rows, 2}, Content::kCount, rng);
}

}  // namespace

void Mutate(Rng& rng, Sample& sample, Point& point) {
  switch (rng.Below(12)) {
    case 0:
      return LoseAStream(rng, sample);
    case 1:
    case 2:
      return ChangeALength(rng, sample);
    case 3:
    case 4:
      return ChangeTheAxes(rng, sample);
    case 5:
    case 6:
      return ChangeADType(rng, sample);
    case 7:
    case 8:
      return SendAnOddStream(rng, sample, point);
    case 9:
      return SendPackedMetadata(rng, sample, point);
    case 10:
      if (rng.OneIn(3)) point.cp_size.reset();
      return;
    default:
      return ChangeOptions(rng, sample);
  }
}

}  // namespace cpshard::property
