#include "core/plan/token_rows.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

absl::Status NotATensor(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is a scalar; the layout needs a tensor"));
}

std::string Describe(const TensorSpec& tensor) {
  return absl::StrCat("stream '", tensor.name, "' ", DimsString(tensor.dims));
}

}  // namespace

absl::StatusOr<const TensorSpec*> FindPrimary(const BatchSpec& spec) {
  const bool ids = spec.Has("input_ids");
  const bool embeds = spec.Has("inputs_embeds");
  if (ids == embeds) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch needs exactly one of 'input_ids' and 'inputs_embeds'; it has ",
                     ids ? "both" : "neither"));
  }
  const absl::string_view name = ids ? "input_ids" : "inputs_embeds";
  const TensorSpec* primary = spec.FindTensor(name);
  if (primary == nullptr) return NotATensor(name);
  return primary;
}

absl::StatusOr<TokenRows> RowsOf(const TensorSpec& primary) {
  if (primary.dims.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(primary),
                                                   " needs the axes [B, S, ...]; it has ",
                                                   primary.dims.size(), " of them"));
  }
  return TokenRows{&primary, primary.dims[0], primary.dims[1]};
}

std::vector<ExtraStream> OwnExtras(const SharedOptions& shared,
                                   absl::Span<const absl::string_view> cut_primaries) {
  constexpr absl::string_view kRowStreams[] = {"labels", "position_ids", "loss_mask",
                                               "padding_mask"};
  const auto holds = [](absl::Span<const absl::string_view> names, absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<ExtraStream> own;
  for (const ExtraStream& extra : shared.extra_streams) {
    if (!holds(kRowStreams, extra.name) && !holds(cut_primaries, extra.name)) own.push_back(extra);
  }
  return own;
}

absl::Status RequireExtras(const BatchSpec& spec, const std::vector<ExtraStream>& extras) {
  for (const ExtraStream& extra : extras) {
    if (extra.name == "attention_mask") {
      return absl::InvalidArgumentError(
          "extra stream 'attention_mask': the layout takes attention_mask out of the batch first; "
          "send it under another name");
    }
    if (!spec.Has(extra.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("extra stream '", extra.name,
                       "' is declared but the batch has none; send it or leave it out of the "
                       "options"));
    }
  }
  return absl::OkStatus();
}

ShardPlan PlanWhole(const BatchSpec& spec) {
  ShardPlan plan;
  plan.cp_size = spec.cp_size;
  Outputs(spec).MoveInto(plan);
  // inputs_embeds decides when both are there; a primary without a sequence axis: no layout.
  const TensorSpec* primary = spec.FindTensor("inputs_embeds");
  if (!spec.Has("inputs_embeds")) primary = spec.FindTensor("input_ids");
  if (primary == nullptr || primary->dims.size() < 2) return plan;
  const int64_t length = primary->dims[1];
  LayoutPlan layout = TailPadded({primary, primary->dims[0], length}, length);
  layout.partition = WholePartition(length, spec.num_ranks());
  layout.report.original_seq_len = length;
  layout.report.padded_seq_len = length;
  plan.chunks.push_back(std::move(layout));
  return plan;
}

LayoutPlan TailPadded(const TokenRows& rows, int64_t padded_len) {
  LayoutPlan layout;
  layout.rows = rows.rows;
  layout.source_len = rows.length;
  layout.padded_len = padded_len;
  IndexMap placement = IndexMap::Identity(rows.length);
  placement.Append({kFill, padded_len - rows.length});
  layout.placement.push_back(std::move(placement));
  return layout;
}

RowStreams::RowStreams(const BatchSpec& spec, TokenRows rows, const LayoutPlan& layout)
    : spec_(spec), rows_(rows), padded_len_(layout.padded_len), outputs_(spec) {
  for (const IndexMap& placement : layout.placement) {
    for (const Run& run : placement.runs()) has_fill_ = has_fill_ || run.source == kFill;
  }
}

absl::StatusOr<const TensorSpec*> RowStreams::Require(absl::string_view name) const {
  if (const TensorSpec* tensor = spec_.FindTensor(name)) return tensor;
  if (spec_.FindScalar(name) != nullptr) return NotATensor(name);
  return absl::InvalidArgumentError(absl::StrCat("the batch has no stream '", name, "'"));
}

absl::Status RowStreams::CheckLength(const TensorSpec& tensor, int axis) const {
  if (tensor.dims[axis] == rows_.length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(tensor), " has length ", tensor.dims[axis], " on axis ", axis,
                   ", expected ", rows_.length, " as in ", Describe(*rows_.primary)));
}

absl::Status RowStreams::CheckRows(const TensorSpec& tensor, int axis) const {
  if (tensor.dims[axis] == rows_.rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " has ", tensor.dims[axis],
                                                 " rows on axis ", axis, ", expected ", rows_.rows,
                                                 " as in ", Describe(*rows_.primary)));
}

void RowStreams::Add(StreamPlan stream, std::optional<Number> fill) {
  pending_.push_back({std::move(stream), fill});
}

const StreamPlan* RowStreams::Find(absl::string_view name) const {
  for (const Pending& pending : pending_) {
    if (pending.stream.name == name) return &pending.stream;
  }
  return nullptr;
}

absl::Status RowStreams::CheckTokens(const TensorSpec& tensor) const {
  if (tensor.dims.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " has ", tensor.dims.size(),
                                                   " axes; a token-aligned stream is [", rows_.rows,
                                                   ", ", rows_.length, ", ...]"));
  }
  CPSHARD_RETURN_IF_ERROR(CheckRows(tensor, 0));
  return CheckLength(tensor, 1);
}

absl::Status RowStreams::CheckDiagonal(const TensorSpec& mask) const {
  const int64_t diagonal = std::min(mask.dims[2], mask.dims[3]);
  if (mask.dims[0] == rows_.rows && mask.dims[1] >= 1 && diagonal == rows_.length) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(mask), " does not belong to ", Describe(*rows_.primary), ": [", rows_.rows,
      ", heads >= 1, Q, K] with min(Q, K) = ", rows_.length, " is needed"));
}

absl::Status RowStreams::CutTokens(absl::string_view name, Number fill) {
  return CutTokensAs(name, name, fill);
}

absl::Status RowStreams::CutTokensAs(absl::string_view source, absl::string_view name, Number fill,
                                     std::optional<Fill::Tail> tail) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* tensor, Require(source));
  CPSHARD_RETURN_IF_ERROR(CheckTokens(*tensor));
  StreamPlan stream{std::string(name), tensor->dtype, tensor->dims};
  stream.value.from = ViewOf{tensor->name};
  stream.fill.tail = tail;
  Drop(source);
  Add(std::move(stream), fill);
  return absl::OkStatus();
}

absl::Status RowStreams::CutPositions(std::optional<Number> fill) {
  if (!spec_.Has("position_ids")) {
    StreamPlan stream{"position_ids", DType::kI64, {rows_.rows, rows_.length}};
    // Continuing 0 ... S-1 is the same ramp, only longer.
    const bool longer = !fill.has_value();
    stream.value.from = Generated{{{{0, 1, longer ? padded_len_ : rows_.length}}}, longer};
    Add(std::move(stream), fill.value_or(int64_t{0}));
    return absl::OkStatus();
  }
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* tensor, Require("position_ids"));
  const std::vector<int64_t>& dims = tensor->dims;
  if (dims.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*tensor), " has ", dims.size(), " axes; send [", rows_.rows, ", ",
                     rows_.length, "], [1, ", rows_.length, "] or three axes for mRoPE"));
  }
  StreamPlan stream{tensor->name, tensor->dtype, dims};
  ViewOf view{tensor->name};
  if (dims.size() == 2 && dims[0] == 1) {
    if (rows_.rows > 1) {
      view.how = ViewOf::How::kBroadcastRow;
      stream.dims[0] = rows_.rows;
    }
  } else if (dims.size() == 3) {
    stream.axis = 2;
    stream.batch_axis = dims[1] == rows_.rows ? 1 : dims[0] == rows_.rows ? 0 : -1;
    if (stream.batch_axis == -1 && dims[1] != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(*tensor), " has neither ", rows_.rows, " rows nor 1 on axis 1, nor ", rows_.rows,
          " on axis 0, as ", Describe(*rows_.primary), " needs"));
    }
  } else {
    CPSHARD_RETURN_IF_ERROR(CheckRows(*tensor, 0));
  }
  CPSHARD_RETURN_IF_ERROR(CheckLength(*tensor, stream.axis));
  stream.value.from = std::move(view);
  Drop(tensor->name);
  Add(std::move(stream), fill);
  return absl::OkStatus();
}

absl::Status RowStreams::CutExtra(const ExtraStream& extra) {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* tensor, Require(extra.name));
  StreamPlan stream{tensor->name, tensor->dtype, tensor->dims};
  stream.value.from = ViewOf{tensor->name};
  CPSHARD_RETURN_IF_ERROR(AddExtra(std::move(stream), extra));
  Drop(tensor->name);
  return absl::OkStatus();
}

absl::Status RowStreams::AddExtra(StreamPlan stream, const ExtraStream& extra) {
  const TensorSpec tensor{stream.name, stream.dtype, stream.dims};
  const int64_t axes = tensor.dims.size();
  const int64_t axis = extra.seq_axis < 0 ? extra.seq_axis + axes : extra.seq_axis;
  if (axis < 0 || axis >= axes) {
    return absl::InvalidArgumentError(
        absl::StrCat("extra ", Describe(tensor), " has no axis ", extra.seq_axis, " (seq_axis)"));
  }
  stream.axis = static_cast<int>(axis);
  CPSHARD_RETURN_IF_ERROR(CheckLength(tensor, stream.axis));
  stream.batch_axis = axis > 0 && tensor.dims[0] == rows_.rows ? 0 : -1;
  Add(std::move(stream), extra.pad.value_or(int64_t{0}));
  return absl::OkStatus();
}

absl::Status RowStreams::CutPaddingMask() {
  Drop("attention_mask");
  if (spec_.Has("padding_mask")) return CutTokens("padding_mask", int64_t{1});
  if (!spec_.Has("attention_mask")) return absl::OkStatus();
  CPSHARD_ASSIGN_OR_RETURN(StreamPlan mask, PaddingOfAttention());
  Add(std::move(mask), int64_t{1});
  return absl::OkStatus();
}

absl::Status RowStreams::CheckAttentionMask() const {
  if (spec_.Has("padding_mask") || !spec_.Has("attention_mask")) return absl::OkStatus();
  return PaddingOfAttention().status();
}

absl::StatusOr<StreamPlan> RowStreams::PaddingOfAttention() const {
  CPSHARD_ASSIGN_OR_RETURN(const TensorSpec* mask, Require("attention_mask"));
  StreamPlan stream{"padding_mask", DType::kBool, {rows_.rows, rows_.length}};
  if (mask->dims.size() != 4) {
    CPSHARD_RETURN_IF_ERROR(CheckTokens(*mask));
    stream.dims = mask->dims;
    stream.value.from = ViewOf{mask->name};
    stream.value.op = Op::kIsZero;
    return stream;
  }
  if (IsInteger(mask->dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*mask), " of dtype ", DTypeName(mask->dtype),
                     ": a 4-D integer mask has no agreed meaning; send bool (True = attend) or "
                     "an additive floating mask, or a 2-D mask"));
  }
  CPSHARD_RETURN_IF_ERROR(CheckDiagonal(*mask));
  stream.value.from = ViewOf{mask->name, ViewOf::How::kHeadZeroDiagonal};
  stream.value.op = mask->dtype == DType::kBool ? Op::kIsZero : Op::kNotZero;
  return stream;
}

absl::Status RowStreams::Finish(ShardPlan& plan) {
  for (Pending& pending : pending_) {
    if (has_fill_) CPSHARD_RETURN_IF_ERROR(SetFill(pending));
    outputs_.Add(std::move(pending.stream));
  }
  outputs_.MoveInto(plan);
  return absl::OkStatus();
}

absl::Status RowStreams::SetFill(Pending& pending) const {
  StreamPlan& stream = pending.stream;
  if (stream.extent == Extent::kWhole || stream.layout != kTokens) return absl::OkStatus();
  const Generated* generated = std::get_if<Generated>(&stream.value.from);
  if (generated != nullptr && generated->over_padded_columns) return absl::OkStatus();
  if (pending.fill) {
    CPSHARD_ASSIGN_OR_RETURN(stream.fill.value,
                             ConvertFill(*pending.fill, stream.dtype, stream.name));
    stream.fill.kind = Fill::Kind::kConstant;
    return stream.fill.tail
               ? ConvertFill(stream.fill.tail->value, stream.dtype, stream.name).status()
               : absl::OkStatus();
  }
  if (stream.dtype == DType::kBool) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", stream.name, "' of dtype bool cannot be continued over padding (",
                     rows_.length, " -> ", padded_len_, " columns); send integers"));
  }
  stream.fill.kind = Fill::Kind::kContinue;
  return absl::OkStatus();
}

}  // namespace cpshard
