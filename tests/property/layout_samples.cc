#include "tests/property/layout_samples.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/oracle/tensors.h"
#include "core/oracle/values.h"
#include "tests/property/documents.h"

namespace cpshard::property {
namespace {

using Integers = std::vector<int64_t>;

void PutTokens(const std::string& name, const std::string& dtype, Content content,
               const Point& point, Rng& rng, Sample& sample) {
  sample.streams[name] = MakeTensor(dtype, {point.rows, point.length}, content, rng);
}

// input_ids, and no inputs_embeds.
void NeedIds(const Point& point, Rng& rng, Sample& sample) {
  sample.streams.erase("inputs_embeds");
  if (!sample.streams.contains("input_ids")) {
    PutTokens("input_ids", "i64", Content::kCount, point, rng, sample);
  }
}

// ... of two axes.
void NeedFlatIds(const Point& point, Rng& rng, Sample& sample) {
  NeedIds(point, rng, sample);
  if (sample.streams.at("input_ids").dims.size() == 2) return;
  PutTokens("input_ids", "i64", Content::kCount, point, rng, sample);
}

// Mostly leaves out a stream that the layout refuses.
void Spare(bool refused, const std::string& name, Rng& rng, Sample& sample) {
  if (refused && !rng.OneIn(6)) sample.streams.erase(name);
}

const oracle::Tensor* Find(const Sample& sample, const std::string& name) {
  const auto found = sample.streams.find(name);
  return found == sample.streams.end() ? nullptr : &found->second;
}

bool IsThreeAxes(const oracle::Tensor* tensor) {
  return tensor != nullptr && tensor->dims.size() == 3;
}

// Document ids as a caller sends them: any values, 0 = of nobody.
void PutIds(const Point& point, Rng& rng, Sample& sample) {
  PutTokens("_packed_seq_ids", rng.OneIn(2) ? "i64" : "i32", Content::kMask, point, rng, sample);
}

// A mask that is taken for document ids: what NaN is as an integer nobody says.
void LeaveOutMasksOfNoIntegers(Sample& sample) {
  const oracle::Tensor* mask = Find(sample, "attention_mask");
  if (mask != nullptr && oracle::IsFloat(mask->dtype)) sample.streams.erase("attention_mask");
}

// Ascending, from 0 to `end`.
Integers DrawBoundaries(int64_t end, Rng& rng) {
  Integers boundaries = {0, end};
  for (int64_t more = rng.Below(4); more > 0 && end > 1; --more) {
    boundaries.push_back(1 + rng.Below(end - 1));
  }
  std::sort(boundaries.begin(), boundaries.end());
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  return boundaries;
}

oracle::Tensor Flat(const Integers& values, Rng& rng) {
  return oracle::FromIntegers(rng.OneIn(2) ? "i64" : "i32", {static_cast<int64_t>(values.size())},
                              values);
}

}  // namespace

void AdjustDeepseekV4(const Point& point, Rng& rng, Sample& sample) {
  if (point.rows == 0 || rng.OneIn(2)) return;
  PutRowDocuments(point, rng, sample);
  if (!sample.streams.contains("labels")) {
    PutTokens("labels", "i64", Content::kCount, point, rng, sample);
  }
}

void AdjustDeepseekV41(const Point& point, Rng& rng, Sample& sample) {
  NeedIds(point, rng, sample);
  Spare(true, "pixel_values", rng, sample);
  const oracle::Tensor* mask = Find(sample, "padding_mask");
  Spare(mask != nullptr && oracle::IsFloat(mask->dtype), "padding_mask", rng, sample);
  AdjustDeepseekV4(point, rng, sample);
}

void AdjustGemma4(const Point& point, Rng& rng, Sample& sample) {
  if (rng.OneIn(3)) PutIds(point, rng, sample);
}

void AdjustKimi(const Point& point, Rng& rng, Sample& sample) {
  NeedIds(point, rng, sample);
  LeaveOutMasksOfNoIntegers(sample);
  Spare(IsThreeAxes(Find(sample, "position_ids")), "position_ids", rng, sample);
  if (rng.OneIn(2)) PutRowDocuments(point, rng, sample);
  if (rng.OneIn(5)) PutIds(point, rng, sample);
}

void AdjustGlm5Next(const Point& point, Rng& rng, Sample& sample) {
  NeedIds(point, rng, sample);
  LeaveOutMasksOfNoIntegers(sample);
  Spare(IsThreeAxes(Find(sample, "position_ids")), "position_ids", rng, sample);
  if (rng.OneIn(2)) PutRowDocuments(point, rng, sample);
  if (rng.OneIn(4)) {
    Integers boundaries = DrawBoundaries(rng.Below(point.length + 3), rng);
    if (rng.OneIn(3)) boundaries.push_back(kSentinel);
    sample.streams["cu_seqlens"] = Flat(boundaries, rng);
  }
  if (rng.OneIn(5)) PutIds(point, rng, sample);
  if (point.rows != 1 || point.length < 2 || !rng.OneIn(3)) return;
  if (sample.streams.at("input_ids").dims.size() != 2) return;
  for (const char* name : {"input_ids", "labels", "padding_mask", "_packed_seq_ids"}) {
    const auto found = sample.streams.find(name);
    if (found == sample.streams.end() || found->second.dims.size() != 2) continue;
    const bool is_ids = name == std::string("input_ids");
    if (is_ids || rng.OneIn(2)) found->second.dims = {point.length};
  }
}

void AdjustQwen38(const Point& point, Rng& rng, Sample& sample) {
  NeedFlatIds(point, rng, sample);
  const std::string ids = sample.streams.at("input_ids").dtype;
  if (ids != "i64" && ids != "i32") {
    PutTokens("input_ids", rng.OneIn(2) ? "i64" : "i32", Content::kCount, point, rng, sample);
  }
  sample.streams.erase("attention_mask");
  sample.streams.erase("padding_mask");
  if (point.rows == 1 && rng.OneIn(2)) {
    const Integers boundaries = DrawBoundaries(point.length, rng);
    if (rng.OneIn(2)) sample.qkv_format = "thd";
    if (rng.OneIn(2)) {
      sample.streams["cu_seqlens"] = Flat(boundaries, rng);
      return;
    }
    Integers lengths;
    for (size_t i = 1; i < boundaries.size(); ++i) {
      lengths.push_back(boundaries[i] - boundaries[i - 1]);
    }
    if (lengths.size() > 1 && rng.OneIn(2)) lengths.back() = kSentinel;
    sample.streams["seq_lens"] = Flat(lengths, rng);
    return;
  }
  if (rng.OneIn(3)) return;
  Integers valid, padding;
  for (int64_t row = 0; row < point.rows; ++row) {
    const int64_t length = rng.Below(point.length + 1);
    for (int64_t column = 0; column < point.length; ++column) {
      valid.push_back(column < length);
      padding.push_back(column >= length);
    }
  }
  const std::vector<int64_t> dims = {point.rows, point.length};
  const int64_t which = rng.Below(3);
  if (which != 0) {
    sample.streams["attention_mask"] =
        oracle::FromIntegers(rng.OneIn(2) ? "i64" : "bool", dims, valid);
  }
  if (which != 1) {
    sample.streams["padding_mask"] =
        oracle::FromIntegers(rng.OneIn(2) ? "bool" : "u8", dims, padding);
  }
}

void AdjustBlockDiagonal(const Point& point, Rng& rng, Sample& sample) {
  const oracle::Tensor* mask = Find(sample, "attention_mask");
  const bool is_bias = mask != nullptr && mask->dims.size() == 4 && oracle::IsFloat(mask->dtype);
  Spare(is_bias, "attention_mask", rng, sample);
  if (rng.OneIn(3)) PutIds(point, rng, sample);
  if (!rng.OneIn(3)) return;
  PutTokens("visual_pos_masks", "bool", Content::kMask, point, rng, sample);
  int64_t visual = 0;
  for (const int64_t is : oracle::Integers(sample.streams.at("visual_pos_masks"))) visual += is;
  for (const char* name : {"_deepstack_visual_embeds.0", "_deepstack_visual_embeds.1"}) {
    sample.streams[name] = MakeTensor("f32", {visual, 3}, Content::kBits, rng);
  }
}

void AdjustMagiHf(const Point& point, Rng& rng, Sample& sample) {
  NeedFlatIds(point, rng, sample);
  Spare(true, "loss_mask", rng, sample);
}

void AdjustMagiCustom(const Point& /*point*/, Rng& rng, Sample& sample) {
  if (!rng.OneIn(8)) sample.qkv_format = "thd";
}

void AdjustMimo(const Point& point, Rng& rng, Sample& sample) {
  NeedFlatIds(point, rng, sample);
  if (!rng.OneIn(8)) sample.qkv_format = "thd";
  const auto real = sample.streams.find("seq_lens");
  if (real == sample.streams.end()) return;
  sample.streams.try_emplace("seq_lens_padded", real->second);
  oracle::Tensor& padded = sample.streams.at("seq_lens_padded");
  if (padded.dims.size() == 1) padded.dims.insert(padded.dims.begin(), 1);
}

std::vector<std::vector<Run>> DrawPartition(const Point& point) {
  Rng rng(point.length * 100 + point.num_ranks());
  const int64_t columns = point.length + rng.Below(4);
  std::vector<Run> runs;
  for (int64_t at = 0; at < columns; at += runs.back().length) {
    runs.push_back({at, std::min<int64_t>(1 + rng.Below(5), columns - at)});
  }
  for (size_t i = 1; i < runs.size(); ++i) std::swap(runs[i], runs[rng.Below(i + 1)]);
  std::vector<std::vector<Run>> ranks(point.num_ranks());
  for (const Run& run : runs) ranks[rng.Below(point.num_ranks())].push_back(run);
  return ranks;
}

}  // namespace cpshard::property
