#include "core/plan/merged_entries.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

void RemoveEntry(absl::string_view name, ShardPlan& plan) {
  std::erase_if(plan.streams, [&](const StreamPlan& stream) { return stream.name == name; });
  std::erase_if(plan.scalars, [&](const ScalarPlan& scalar) { return scalar.name == name; });
}

void Add(StreamPlan stream, ShardPlan& plan) {
  RemoveEntry(stream.name, plan);
  // Chunks for one rank drop tensors that are no streams of tokens (contract 5.6).
  if (plan.stacked() && plan.num_ranks() == 1) return;
  plan.streams.push_back(std::move(stream));
}

StreamPlan Whole(const TensorSpec& source, absl::string_view name) {
  StreamPlan stream{std::string(name), source.dtype, source.dims};
  stream.value.from = ViewOf{source.name};
  stream.extent = Extent::kWhole;
  return stream;
}

}  // namespace

absl::Status AddTokenMask(const BatchSpec& spec, absl::string_view name, int64_t id,
                          ShardPlan& plan) {
  const TensorSpec* ids = spec.FindTensor("input_ids");
  if (ids == nullptr || !IsInteger(ids->dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'input_ids' must be integers: the model finds tokens ", id, " in them"));
  }
  StreamPlan mask = Whole(*ids, name);
  mask.dtype = DType::kBool;
  mask.dims = {NumElements(*ids)};
  mask.axis = 0;
  mask.value.op = Op::kEquals;
  mask.value.operand = id;
  Add(std::move(mask), plan);
  return absl::OkStatus();
}

absl::Status AddPromotedGrid(const TensorSpec& grid, absl::string_view name, ShardPlan& plan) {
  if (grid.dims.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", grid.name, "' has no axes; a grid is [n, 2] or [n, 3]"));
  }
  StreamPlan stream = Whole(grid, name);
  if (grid.dims.back() == 2) {
    if (grid.dims.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("stream '", grid.name, "' ", DimsString(grid.dims), " is not [n, 2]"));
    }
    LayoutPlan columns;
    columns.rows = grid.dims[0];
    columns.source_len = 2;
    columns.padded_len = 3;
    columns.placement.emplace_back();
    columns.placement.back().Append({kFill, 1});
    columns.placement.back().Append({0, 2});
    columns.partition = WholePartition(3, plan.num_ranks());
    CPSHARD_ASSIGN_OR_RETURN(const Element one, ConvertFill(int64_t{1}, grid.dtype, name));
    stream.fill = {Fill::Kind::kConstant, one};
    stream.extent = Extent::kPadded;
    stream.layout = static_cast<int>(plan.others.size());
    plan.others.push_back(std::move(columns));
  }
  Add(std::move(stream), plan);
  return absl::OkStatus();
}

absl::Status AddLongestDocument(const ValueView& lengths, std::optional<int64_t> window,
                                absl::string_view name, ShardPlan& plan) {
  int64_t longest = 0;
  for (int64_t i = 0; i < lengths.size(); ++i) longest = std::max(longest, lengths[i]);
  if (window && longest > *window) {
    return absl::InvalidArgumentError(
        absl::StrCat("a document of ", longest, " tokens is longer than sliding_window ", *window,
                     "; pack documents of at most that (the packed row may be longer)"));
  }
  RemoveEntry(name, plan);
  plan.scalars.push_back({std::string(name), {Scalar(longest)}});
  return absl::OkStatus();
}

absl::Status AddSentMask(const BatchSpec& spec, absl::string_view source, absl::string_view name,
                         ShardPlan& plan) {
  const TensorSpec* mask = spec.FindTensor(source);
  if (mask == nullptr) {
    return absl::UnimplementedError(absl::StrCat("the batch has no '", source, "', and '", name,
                                                 "' is not made from token ids here; send ", source,
                                                 " (bool, true at media tokens)"));
  }
  Add(Whole(*mask, name), plan);
  return absl::OkStatus();
}

}  // namespace cpshard
