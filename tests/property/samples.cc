#include "tests/property/samples.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/oracle/tensors.h"
#include "core/plan/dtype.h"
#include "core/plan/half.h"

namespace cpshard::property {
namespace {

template <typename T>
void AppendBytes(T value, std::vector<uint8_t>& bytes) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

void AppendNumber(double value, const std::string& dtype, std::vector<uint8_t>& bytes) {
  const auto integer = static_cast<int64_t>(std::isfinite(value) ? value : 1);
  if (dtype == "f64") return AppendBytes(value, bytes);
  if (dtype == "f32") return AppendBytes(static_cast<float>(value), bytes);
  if (dtype == "f16") return AppendBytes(FloatToF16Bits(static_cast<float>(value)), bytes);
  if (dtype == "bf16") return AppendBytes(FloatToBf16Bits(static_cast<float>(value)), bytes);
  if (dtype == "i64") return AppendBytes(integer, bytes);
  if (dtype == "i32") return AppendBytes(static_cast<int32_t>(integer), bytes);
  if (dtype == "i16") return AppendBytes(static_cast<int16_t>(integer), bytes);
  if (dtype == "bool") return AppendBytes(static_cast<uint8_t>(integer % 3 != 0), bytes);
  AppendBytes(static_cast<uint8_t>(integer), bytes);
}

// Just before integers wrap or floats stop counting in ones.
double LastPositions(const std::string& dtype) {
  if (dtype == "u8") return 200;
  if (dtype == "i8") return 80;
  if (dtype == "i16") return 32700;
  if (dtype == "f16") return 2000;
  if (dtype == "bf16") return 230;
  return 100000;
}

double MaskValue(Rng& rng) {
  constexpr double kValues[] = {0, 1, 0, 1, 3, -2, -0.0, std::numeric_limits<double>::quiet_NaN()};
  return kValues[rng.Below(std::size(kValues))];
}

std::vector<int64_t> DimsOf(const std::string& shape, const Point& point) {
  std::vector<int64_t> dims;
  for (const char c : shape) {
    if (c == 'B') dims.push_back(point.rows);
    if (c == 'S') dims.push_back(point.length);
    if (c == 'T') dims.push_back(point.length + 2);
    if (c >= '0' && c <= '9') dims.push_back(c - '0');
  }
  return dims;
}

}  // namespace

uint64_t Rng::Next() {  // splitmix64
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

oracle::Tensor MakeTensor(const std::string& dtype, std::vector<int64_t> dims, Content content,
                          Rng& rng) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  oracle::Tensor tensor{.dtype = dtype, .dims = std::move(dims), .bytes = {}};
  const double start = content == Content::kPositions ? LastPositions(dtype) : rng.Below(40);
  const bool any_bits = content == Content::kBits && dtype != "bool";
  for (int64_t i = 0; i < count; ++i) {
    const size_t before = tensor.bytes.size();
    AppendNumber(content == Content::kMask ? MaskValue(rng) : start + i, dtype, tensor.bytes);
    if (!any_bits) continue;
    const uint64_t bits = rng.Next();
    std::memcpy(tensor.bytes.data() + before, &bits, tensor.bytes.size() - before);
  }
  return tensor;
}

void Put(const Variant& variant, const Point& point, Rng& rng, Sample& sample) {
  if (variant.extra) sample.extras.push_back(*variant.extra);
  if (variant.dtype.empty()) return;
  sample.streams[variant.name] =
      MakeTensor(variant.dtype, DimsOf(variant.shape, point), variant.content, rng);
}

Sample DrawSample(const Variants& variants, const Point& point, Rng& rng) {
  Sample sample;
  for (const std::vector<Variant>& of_a_stream : variants) {
    const int64_t choice = rng.OneIn(2) ? 0 : rng.Below(of_a_stream.size());
    Put(of_a_stream[choice], point, rng, sample);
  }
  return sample;
}

Sample PlainSampleWith(const Variants& variants, size_t stream, size_t choice, const Point& point,
                       Rng& rng) {
  Sample sample;
  for (size_t i = 0; i < variants.size(); ++i) {
    Put(variants[i][i == stream ? choice : 0], point, rng, sample);
  }
  return sample;
}

oracle::Tensor FromProduct(const Tensor& tensor) {
  oracle::Tensor out;
  out.dtype = std::string(DTypeName(tensor.spec.dtype));
  out.dims = tensor.spec.dims;
  out.bytes.resize(tensor.bytes().size());
  if (!out.bytes.empty()) std::memcpy(out.bytes.data(), tensor.bytes().data(), out.bytes.size());
  return out;
}

Batch ToProduct(const Sample& sample) {
  Batch batch;
  for (const auto& [name, stream] : sample.streams) {
    auto bytes = std::make_shared<std::vector<uint8_t>>(stream.bytes);
    auto* data = reinterpret_cast<std::byte*>(bytes->data());
    batch.tensors.push_back(
        {.spec = {.name = name, .dtype = *ParseDType(stream.dtype), .dims = stream.dims},
         .buffer = Buffer(bytes, data, stream.bytes.size())});
  }
  if (sample.qkv_format) batch.scalars.push_back({"qkv_format", Scalar(*sample.qkv_format)});
  return batch;
}

SharedOptions SharedOptionsOf(const Sample& sample) {
  SharedOptions options{.padding_token_id = sample.padding_token_id};
  for (const oracle::Extra& extra : sample.extras) {
    options.extra_streams.push_back({.name = extra.name, .seq_axis = extra.seq_axis});
    if (!extra.pad) continue;
    const bool negative_zero = *extra.pad == 0 && std::signbit(*extra.pad);
    const bool whole =
        std::trunc(*extra.pad) == *extra.pad && std::fabs(*extra.pad) < 1e15 && !negative_zero;
    options.extra_streams.back().pad =
        whole ? Number(static_cast<int64_t>(*extra.pad)) : Number(*extra.pad);
  }
  return options;
}

std::string Describe(const Sample& sample, const Point& point) {
  std::string text = absl::StrCat(point.cp_size ? absl::StrCat("cp ", *point.cp_size) : "no mesh",
                                  ", S ", point.length, ", B ", point.rows);
  for (const auto& [name, stream] : sample.streams) {
    absl::StrAppend(&text, "; ", name, " ", stream.dtype, " ", DimsString(stream.dims));
    if (!name.starts_with("seq_lens")) continue;
    absl::StrAppend(&text, " = ", DimsString(oracle::Integers(stream)));
  }
  for (const oracle::Extra& extra : sample.extras) {
    absl::StrAppend(&text, "; extra ", extra.name, " on axis ", extra.seq_axis);
    if (extra.pad) absl::StrAppend(&text, " pad ", *extra.pad);
  }
  if (sample.qkv_format) absl::StrAppend(&text, "; qkv_format ", *sample.qkv_format);
  const std::optional<int64_t> pad_id = sample.padding_token_id;
  return absl::StrCat(text, "; pad id ", pad_id ? absl::StrCat(*pad_id) : "none");
}

}  // namespace cpshard::property
