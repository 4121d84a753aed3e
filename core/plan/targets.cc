#include "core/plan/targets.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/element.h"
#include "core/plan/partition.h"
#include "core/plan/sequence_ids.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr absl::string_view kPositions = "position_ids";
constexpr absl::string_view kNames[] = {"target_input_ids.", "target_position_ids.", "targets.",
                                        "valid_masks."};

// What the stage reads: rows [rows, length] of the batch as it was sent.
struct Inputs {
  int64_t rows = 0, length = 0;
  const TensorSpec* ids = nullptr;
  const TensorSpec* labels = nullptr;
  const TensorSpec* positions = nullptr;  // nullptr: not sent

  // [1, S] stands for every row.
  bool shares_positions() const {
    return positions != nullptr && positions->dims.size() == 2 && positions->dims[0] != rows;
  }
};

std::string Describe(const TensorSpec& tensor) {
  return absl::StrCat("stream '", tensor.name, "' ", DimsString(tensor.dims));
}

absl::Status CheckOptions(const TargetsOptions& options, const BatchSpec& spec) {
  if (options.num_depths < 1 || options.num_depths > kMaxTargetDepths) {
    return absl::InvalidArgumentError(absl::StrCat("targets.num_depths ", options.num_depths,
                                                   " must be 1 to ", kMaxTargetDepths));
  }
  for (int64_t depth = 0; depth < options.num_depths; ++depth) {
    for (absl::string_view prefix : kNames) {
      const std::string name = absl::StrCat(prefix, depth);
      if (!spec.Has(name)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the batch has '", name, "', which the option targets makes; leave one of them out"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const TensorSpec*> Require(absl::string_view name, const BatchSpec& spec) {
  const TensorSpec* tensor = spec.FindTensor(name);
  if (tensor != nullptr && tensor->dims.size() == 2) return tensor;
  return absl::InvalidArgumentError(
      absl::StrCat("the option targets needs '", name, "' as a tensor [B, S]",
                   tensor == nullptr ? std::string() : "; it is " + DimsString(tensor->dims)));
}

absl::Status CheckPositions(const BatchSpec& spec, const Inputs& inputs) {
  if (!spec.Has(kPositions)) return absl::OkStatus();
  if (inputs.positions == nullptr) {
    return absl::InvalidArgumentError(
        "'position_ids' is a scalar; the option targets needs a tensor");
  }
  const std::vector<int64_t>& dims = inputs.positions->dims;
  const bool two = dims.size() == 2 && (dims[0] == inputs.rows || dims[0] == 1);
  const bool three = dims.size() == 3 && dims[1] == inputs.rows;
  if ((two || three) && dims.back() == inputs.length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(*inputs.positions), " does not belong to ", Describe(*inputs.ids),
                   "; send [", inputs.rows, ", ", inputs.length, "], [1, ", inputs.length,
                   "] or [n, ", inputs.rows, ", ", inputs.length, "], or none for 0 ... S-1"));
}

absl::Status TooManyRuns(absl::string_view what, int64_t number) {
  return absl::InvalidArgumentError(
      absl::StrCat("the option targets: ", what, " ", number, ", over the limit of ",
                   kMaxTargetRuns, "; send fewer rows or sequences, or ask for fewer depths"));
}

absl::StatusOr<Inputs> InputsOf(const BatchSpec& spec) {
  Inputs inputs;
  CPSHARD_ASSIGN_OR_RETURN(inputs.ids, Require("input_ids", spec));
  CPSHARD_ASSIGN_OR_RETURN(inputs.labels, Require("labels", spec));
  if (inputs.ids->dims != inputs.labels->dims) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*inputs.labels), " and ", Describe(*inputs.ids),
                     " must have the same shape for the option targets"));
  }
  inputs.rows = inputs.ids->dims[0];
  inputs.length = inputs.ids->dims[1];
  inputs.positions = spec.FindTensor(kPositions);
  CPSHARD_RETURN_IF_ERROR(CheckPositions(spec, inputs));
  if (inputs.rows > kMaxTargetRuns) return TooManyRuns("rows are", inputs.rows);
  return inputs;
}

// The batch with position_ids for every row, as the layout sees it.
BatchSpec Normalised(const BatchSpec& spec, const Inputs& inputs) {
  BatchSpec normalised = spec;
  if (inputs.positions == nullptr) {
    normalised.tensors.push_back(
        {std::string(kPositions), DType::kI64, {inputs.rows, inputs.length}});
  } else if (inputs.shares_positions()) {
    for (TensorSpec& tensor : normalised.tensors) {
      if (tensor.name == kPositions) tensor.dims[0] = inputs.rows;
    }
  }
  return normalised;
}

// --- what the layout planned for positions that were not sent like that --------------------------

// Streams of plan.others[result] come whole to every rank, row by row.
int AddWholeRows(const Inputs& inputs, ShardPlan& plan) {
  LayoutPlan layout;
  layout.rows = inputs.rows;
  layout.source_len = layout.padded_len = inputs.length;
  layout.placement = {IndexMap::Identity(inputs.length)};
  layout.partition = WholePartition(inputs.length, plan.num_ranks());
  plan.others.push_back(std::move(layout));
  return static_cast<int>(plan.others.size()) - 1;
}

void Generate(const Inputs& inputs, const ShardPlan& plan, StreamPlan& stream) {
  Generated generated;
  std::vector<Segment>& row = generated.rows.emplace_back();
  if (stream.axis == 0) {  // one flat stream of rows
    row.assign(inputs.rows, {0, 1, inputs.length});
  } else if (stream.fill.kind == Fill::Kind::kContinue) {
    row = {{0, 1, LayoutsOf(plan, stream).front().padded_len}};  // the same ramp, only longer
    generated.over_padded_columns = true;
    stream.fill = {};
  } else {
    row = {{0, 1, inputs.length}};
  }
  stream.value.from = std::move(generated);
}

void Repeat(const Inputs& inputs, StreamPlan& stream) {
  ViewOf& view = std::get<ViewOf>(stream.value.from);
  if (stream.axis != 0) {
    view.how = ViewOf::How::kBroadcastRow;
    return;
  }
  IndexMap& columns = view.columns.emplace_back();
  for (int64_t row = 0; row < inputs.rows; ++row) columns.Append({0, inputs.length});
}

// Views of the positions that the layout saw become what can be made of the ones that were sent.
void MakePositions(const Inputs& inputs, ShardPlan& plan) {
  if (inputs.positions != nullptr && !inputs.shares_positions()) return;
  for (StreamPlan& stream : plan.streams) {
    const ViewOf* view = std::get_if<ViewOf>(&stream.value.from);
    if (view == nullptr || view->source != kPositions) continue;
    if (stream.extent == Extent::kWhole) {
      stream.layout = AddWholeRows(inputs, plan);
      stream.extent = Extent::kLocal;
    }
    if (inputs.positions == nullptr) {
      Generate(inputs, plan, stream);
    } else {
      Repeat(inputs, stream);
    }
  }
}

// --- the targets ---------------------------------------------------------------------------------

// One map a row, or one for all; of a flat stream of rows one for all its columns.
using Maps = std::vector<IndexMap>;

class TargetStreams {
 public:
  // The streams go by the layout of labels in `plan`.
  TargetStreams(const Inputs& inputs, const SequenceIds& ids, ShardPlan& plan)
      : inputs_(inputs), ids_(ids), plan_(plan) {
    const auto labels = std::find_if(plan.streams.begin(), plan.streams.end(),
                                     [](const StreamPlan& s) { return s.name == "labels"; });
    if (labels != plan.streams.end() && labels->extent == Extent::kLocal) {
      flat_ = labels->axis == 0;
      layout_ = labels->layout;
    } else {
      layout_ = AddWholeRows(inputs, plan);
    }
    StreamPlan any;
    any.layout = layout_;
    for (const LayoutPlan& layout : LayoutsOf(plan, any)) {
      for (const IndexMap& local : layout.partition) cuts_ += local.runs().size();
    }
  }

  // Rows without columns have no runs, but maps.
  absl::Status CheckMaps(int64_t depths) const {
    const int64_t maps = NumMaps();
    return maps <= kMaxTargetRuns / depths ? absl::OkStatus()
                                           : TooManyRuns("rows times depths are", maps * depths);
  }

  absl::Status Add(int64_t depth, int64_t ignore_index) {
    CPSHARD_ASSIGN_OR_RETURN(const Maps maps, Shifted(depth));
    const int64_t number = depth - 1;
    StreamPlan ids = Viewed(kNames[0], number, *inputs_.ids, maps);
    StreamPlan targets = Viewed(kNames[2], number, *inputs_.labels, maps);
    CPSHARD_ASSIGN_OR_RETURN(targets.fill.value,
                             ConvertFill(ignore_index, targets.dtype, targets.name));
    plan_.streams.push_back(std::move(ids));
    plan_.streams.push_back(Positions(number, maps));
    plan_.streams.push_back(std::move(targets));
    plan_.streams.push_back(Valid(number, maps));
    return absl::OkStatus();
  }

 private:
  int64_t NumMaps() const { return flat_ || ids_.rows_alike() ? 1 : inputs_.rows; }

  absl::StatusOr<Maps> Shifted(int64_t depth) {
    Maps maps(NumMaps());
    const int64_t rows = flat_ ? inputs_.rows : static_cast<int64_t>(maps.size());
    runs_ += cuts_ * static_cast<int64_t>(maps.size());
    for (int64_t row = 0; row < rows; ++row) {
      IndexMap& map = maps[maps.size() == 1 ? 0 : row];
      const int64_t before = map.runs().size();
      const int64_t left = std::max<int64_t>(kMaxTargetRuns - runs_, 0);
      ids_.AppendShifted(row, depth, flat_ ? row * inputs_.length : 0, before + left, map);
      runs_ += static_cast<int64_t>(map.runs().size()) - before;
      if (runs_ > kMaxTargetRuns) {
        return TooManyRuns(absl::StrCat("runs up to depth ", depth, " are"), runs_);
      }
    }
    return maps;
  }

  // A stream of tokens, 0 where there is no target, without a value.
  StreamPlan Named(std::string name, DType dtype) const {
    StreamPlan stream{std::move(name), dtype};
    stream.layout = layout_;
    stream.fill.kind = Fill::Kind::kConstant;
    if (flat_) {
      stream.dims = {inputs_.rows * inputs_.length};
      stream.axis = 0;
      stream.batch_axis = -1;
    } else {
      stream.dims = {inputs_.rows, inputs_.length};
    }
    return stream;
  }

  StreamPlan Viewed(absl::string_view prefix, int64_t number, const TensorSpec& source,
                    const Maps& maps) const {
    StreamPlan stream = Named(absl::StrCat(prefix, number), source.dtype);
    stream.value.from = ViewOf{source.name, ViewOf::How::kColumns, maps};
    return stream;
  }

  // `value` of the runs that have a source, by the column of the row that this is.
  template <typename Value>
  Generated Made(const Maps& maps, Value value) const {
    Generated generated;
    for (const IndexMap& map : maps) {
      std::vector<Segment>& row = generated.rows.emplace_back();
      row.reserve(map.runs().size());
      for (const Run& run : map.runs()) {
        row.push_back(run.source == kFill ? Segment{0, 0, run.length}
                                          : value(run.source % inputs_.length, run.length));
      }
    }
    return generated;
  }

  StreamPlan Positions(int64_t number, const Maps& maps) const {
    if (inputs_.positions == nullptr) {
      StreamPlan stream = Named(absl::StrCat(kNames[1], number), DType::kI64);
      stream.value.from = Made(maps, [](int64_t column, int64_t length) {
        return Segment{column, 1, length};
      });
      return stream;
    }
    const TensorSpec& sent = *inputs_.positions;
    StreamPlan stream = Viewed(kNames[1], number, sent, maps);
    if (sent.dims.size() == 3) {
      stream.dims.insert(stream.dims.begin(), sent.dims[0]);
      if (flat_) stream.dims.insert(stream.dims.begin() + 1, 1);
      stream.axis = 2;
      stream.batch_axis = flat_ ? -1 : 1;
    } else if (inputs_.shares_positions() && flat_) {
      std::get<ViewOf>(stream.value.from).columns = {OfOneRow(maps.front())};
    } else if (inputs_.shares_positions()) {
      std::get<ViewOf>(stream.value.from).how = ViewOf::How::kBroadcastRow;
    }
    return stream;
  }

  // The map of a flat stream, taken from the one row that all share.
  IndexMap OfOneRow(const IndexMap& map) const {
    IndexMap columns;
    columns.Reserve(map.runs().size());
    for (const Run& run : map.runs()) {
      // The last column of a row has no target, so that no run goes over its end.
      columns.Append({run.source == kFill ? kFill : run.source % inputs_.length, run.length});
    }
    return columns;
  }

  StreamPlan Valid(int64_t number, const Maps& maps) const {
    StreamPlan stream = Named(absl::StrCat(kNames[3], number), DType::kBool);
    stream.value.from = Made(maps, [](int64_t, int64_t length) { return Segment{1, 0, length}; });
    return stream;
  }

  const Inputs& inputs_;
  const SequenceIds& ids_;
  ShardPlan& plan_;
  bool flat_ = false;     // rows are one stream, [B * S]
  int layout_ = kTokens;  // StreamPlan::layout
  int64_t cuts_ = 0;      // runs of all ranks
  int64_t runs_ = 0;      // so far
};

absl::StatusOr<ShardPlan> Plan(const Sharder& inner, const TargetsOptions& options,
                               const BatchSpec& spec, const PlanValues& values) {
  CPSHARD_RETURN_IF_ERROR(CheckOptions(options, spec));
  CPSHARD_ASSIGN_OR_RETURN(const Inputs inputs, InputsOf(spec));
  CPSHARD_ASSIGN_OR_RETURN(ShardPlan plan, inner.Plan(Normalised(spec, inputs), values));
  CPSHARD_ASSIGN_OR_RETURN(const SequenceIds ids,
                           SequenceIds::Of(spec, values, inputs.rows, inputs.length));
  MakePositions(inputs, plan);
  TargetStreams targets(inputs, ids, plan);
  CPSHARD_RETURN_IF_ERROR(targets.CheckMaps(options.num_depths));
  for (int64_t depth = 1; depth <= options.num_depths; ++depth) {
    CPSHARD_RETURN_IF_ERROR(targets.Add(depth, options.ignore_index));
  }
  return plan;
}

std::vector<std::string> Needs(const Sharder& inner, const BatchSpec& spec) {
  const absl::StatusOr<Inputs> inputs = InputsOf(spec);  // Plan says what is wrong
  std::vector<std::string> needs = inner.Needs(inputs.ok() ? Normalised(spec, *inputs) : spec);
  for (std::string& name : SequenceIds::Needs(spec)) {
    if (std::find(needs.begin(), needs.end(), name) == needs.end()) {
      needs.push_back(std::move(name));
    }
  }
  return needs;
}

}  // namespace

Sharder WithTargets(Sharder inner, TargetsOptions options) {
  return Sharder(
      {.name = "targets",
       .pad_rule = [inner](const BatchSpec& spec,
                           int64_t tokens) { return inner.PadRuleOf(spec, tokens); }},
      {},
      [inner, options](const BatchSpec& spec, const SharedOptions&, const PlanValues& values) {
        return Plan(inner, options, spec, values);
      },
      [inner](const BatchSpec& spec) { return Needs(inner, spec); });
}

}  // namespace cpshard
