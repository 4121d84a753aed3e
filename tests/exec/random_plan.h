// Plans that no layout makes: rows with placements of their own, parts of any size in any order,
// every kind of stream; and a batch for each. The same seed makes the same plan.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/batch/batch.h"
#include "core/plan/plan.h"

namespace cpshard {

class RandomPlan {
 public:
  explicit RandomPlan(uint32_t seed) : random_(seed) {
    layout_.rows = Upto(4);
    layout_.source_len = 1 + Upto(seed % 5 == 0 ? 700 : 30);
    layout_.padded_len = layout_.source_len + Upto(layout_.source_len);
    const int64_t placements = Upto(1) == 0 ? 1 : layout_.rows;
    for (int64_t row = 0; row < placements; ++row) layout_.placement.push_back(Placement());
    if (layout_.placement.empty()) layout_.placement.push_back(Placement());
    Partition();
    plan.cp_size = static_cast<int64_t>(layout_.partition.size());
    for (int64_t i = 1 + Upto(5); i > 0; --i) AddStream("s" + std::to_string(i));
    plan.chunks = {layout_};
  }

  ShardPlan plan;
  Batch batch;

 private:
  int64_t Upto(int64_t most) { return static_cast<int64_t>(random_() % (most + 1)); }

  // Mostly rows as they stand with fill behind; else runs from anywhere, with fill between.
  IndexMap Placement() {
    IndexMap map;
    if (Upto(2) > 0) map.Append({0, layout_.source_len});
    while (map.size() < layout_.padded_len) {
      const int64_t source = Upto(2) == 0 ? Upto(layout_.source_len - 1) : kFill;
      const int64_t most = source == kFill ? layout_.padded_len : layout_.source_len - source;
      map.Append({source, std::min(1 + Upto(most - 1), layout_.padded_len - map.size())});
    }
    return map;
  }

  // Consecutive parts, each for any rank; then some ranks hold theirs back to front.
  void Partition() {
    std::vector<std::vector<Run>> runs(1 + Upto(4));
    for (int64_t begin = 0; begin < layout_.padded_len;) {
      const int64_t most = layout_.padded_len - begin;
      const int64_t length = 1 + Upto(std::min(most - 1, Upto(1) == 0 ? most : 3));
      runs[Upto(static_cast<int64_t>(runs.size()) - 1)].push_back({begin, length});
      begin += length;
    }
    for (std::vector<Run>& of_rank : runs) {
      if (Upto(2) == 0) std::reverse(of_rank.begin(), of_rank.end());
      IndexMap map;
      for (const Run& run : of_rank) map.Append(run);
      layout_.partition.push_back(std::move(map));
    }
  }

  DType AnyDType() { return kAllDTypes[Upto(kAllDTypes.size() - 1)]; }

  void AddTensor(const TensorSpec& spec) {
    auto owner = std::make_shared<std::vector<std::byte>>(NumBytes(spec));
    const int64_t most = spec.dtype == DType::kBool ? 1 : 255;
    for (std::byte& byte : *owner) byte = static_cast<std::byte>(Upto(most));
    std::byte* data = owner->data();
    const size_t size = owner->size();
    batch.tensors.push_back({spec, Buffer(std::move(owner), data, size)});
  }

  void SetShape(StreamPlan& stream) {
    const int64_t rows = layout_.rows, columns = layout_.source_len;
    switch (Upto(4)) {
      case 0:
        stream.dims = {rows, columns, 1 + Upto(40)};
        break;
      case 1:
        stream.dims = {rows, 2, columns};
        stream.axis = 2;
        break;
      case 2:
        stream.dims = {3, rows, columns, 2};
        stream.axis = 2;
        stream.batch_axis = 1;
        break;
      case 3:
        stream.dims = {columns, 3};
        stream.axis = 0;
        stream.batch_axis = -1;
        break;
      default:
        stream.dims = {rows, columns};
    }
  }

  // Values for every source column, or for every padded one.
  Generated Segments() {
    Generated generated;
    generated.over_padded_columns = Upto(1) == 0;
    const int64_t rows = Upto(1) == 0 || layout_.rows == 0 ? 1 : layout_.rows;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t left = generated.over_padded_columns ? layout_.padded_len : layout_.source_len;
      std::vector<Segment>& segments = generated.rows.emplace_back();
      while (left > 0) {
        segments.push_back({Upto(50), Upto(1), 1 + Upto(left - 1)});
        left -= segments.back().length;
      }
    }
    return generated;
  }

  void AddView(StreamPlan& stream) {
    TensorSpec source{stream.name, stream.dtype, stream.dims};
    ViewOf view{stream.name};
    if (stream.batch_axis == 0 && Upto(4) == 0) {
      view.how = ViewOf::How::kBroadcastRow;
      source.dims[0] = 1;
      if (stream.axis > 1) source.dims[1] = 1;  // one row for all that stands before the columns
    }
    if (Upto(3) == 0) {  // derived
      source.dtype = AnyDType();
      constexpr Op kOps[] = {Op::kNone, Op::kIsZero, Op::kNotPositive, Op::kEquals};
      stream.value.op = kOps[Upto(3)];
    }
    stream.value.from = std::move(view);
    AddTensor(source);
  }

  void AddStream(std::string name) {
    StreamPlan stream;
    stream.name = std::move(name);
    stream.dtype = AnyDType();
    SetShape(stream);
    stream.fill.value.bits = stream.dtype == DType::kBool ? 1 : 0x0706050403020100;
    stream.fill.kind = stream.dtype == DType::kBool || Upto(1) == 0 ? Fill::Kind::kConstant
                                                                    : Fill::Kind::kContinue;
    const int64_t kind = Upto(9);
    if (kind < 2 && stream.batch_axis >= 0) {
      stream.value.from = Segments();
      stream.dtype = DType::kI32;
    } else {
      AddView(stream);
    }
    if (kind == 2) {
      const TensorSpec& sent = batch.tensors.back().spec;
      stream = {stream.name, sent.dtype, sent.dims};
      stream.value.from = ViewOf{stream.name};
      stream.extent = Extent::kWhole;
    } else if (kind == 3) {
      stream.extent = Extent::kPadded;
    } else if (kind == 4) {
      const int64_t values = Upto(30);
      stream = {stream.name, DType::kI32, {values}, 0};
      stream.value.from = Literal{std::vector<int64_t>(values, Upto(1000))};
      stream.extent = Extent::kWhole;
    }
    plan.streams.push_back(std::move(stream));
  }

  std::mt19937 random_;
  LayoutPlan layout_;
};

}  // namespace cpshard
