// What the layouts over [B, S] rows share: finding the primary stream, checking the token-aligned
// streams, and collecting the output streams. Used by layouts/*.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/layouts.h"
#include "core/plan/outputs.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"

namespace cpshard {

struct TokenRows {
  const TensorSpec* primary = nullptr;  // input_ids [B, S, ...] or inputs_embeds [B, S, H]
  int64_t rows = 0;                     // B
  int64_t length = 0;                   // S
};

// The primary stream. InvalidArgument: not exactly one of input_ids / inputs_embeds is there.
absl::StatusOr<const TensorSpec*> FindPrimary(const BatchSpec& spec);

// Its rows. InvalidArgument: fewer than two axes.
absl::StatusOr<TokenRows> RowsOf(const TensorSpec& primary);

// The extra streams that the layout does not handle anyway: naming one of those has no effect
// (C21). `cut_primaries`: the names that the layout takes for its primary, none when it leaves that
// whole.
std::vector<ExtraStream> OwnExtras(const SharedOptions& shared,
                                   absl::Span<const absl::string_view> cut_primaries);

// InvalidArgument: an extra stream that is declared but absent - or attention_mask, which the row
// layouts take out of the batch before they look at extra streams.
absl::Status RequireExtras(const BatchSpec& spec, const std::vector<ExtraStream>& extras);

// Every rank gets the batch as it was sent; the layout is that of the primary's axis 1, where it
// has one (contract 4.1).
ShardPlan PlanWhole(const BatchSpec& spec);

// A layout whose rows are all padded on the right, without partition and report.
LayoutPlan TailPadded(const TokenRows& rows, int64_t padded_len);

// Collects the outputs of a layout over rows. The Cut calls check ranks and lengths at once; fills
// are converted in Finish(), once it is known that there are fill columns.
class RowStreams {
 public:
  // `spec` must outlive the object; of the layout the placement counts.
  RowStreams(const BatchSpec& spec, TokenRows rows, const LayoutPlan& layout);

  // Any stream, in the place of the batch's entry of its name: what stands on its fill columns, if
  // it has any, is `fill`, absent = it continues.
  void Add(StreamPlan stream, std::optional<Number> fill);

  // Cuts a stream whose axis 0 is B and axis 1 is S, filling with `fill`.
  absl::Status CutTokens(absl::string_view name, Number fill);
  // The same, sent under another name (a loss mask that stands in for labels).
  absl::Status CutTokensAs(absl::string_view source, absl::string_view name, Number fill,
                           std::optional<Fill::Tail> tail = std::nullopt);

  // Cuts position_ids: axis 2 of a 3-D tensor, else axis 1; [1, S] stands for every row; created
  // as 0 ... S-1 when absent (contract 2.4). `fill` absent = continue each row (contract 2.3).
  absl::Status CutPositions(std::optional<Number> fill);

  // Cuts an extra stream on its own axis. Only its length is checked (D5). Precondition:
  // RequireExtras passed.
  absl::Status CutExtra(const ExtraStream& extra);
  // The same of a stream that the layout makes: axes and fill as the extra says.
  absl::Status AddExtra(StreamPlan stream, const ExtraStream& extra);

  // attention_mask -> padding_mask (contract 2.5, D6): drops the mask, and derives padding_mask
  // unless the batch has one. Then cuts padding_mask, if there is one, filling with True.
  absl::Status CutPaddingMask();

  // padding_mask as it is made of attention_mask. InvalidArgument: that cannot be read (D5, D6), or
  // is not there.
  absl::StatusOr<StreamPlan> PaddingOfAttention() const;

  // What CutPaddingMask refuses, where the mask that it would make is not kept.
  absl::Status CheckAttentionMask() const;

  // The entry is not in the output.
  void Drop(absl::string_view name) { outputs_.Drop(name); }

  // InvalidArgument: [B, S, ...] is not the tensor's shape.
  absl::Status CheckTokens(const TensorSpec& tensor) const;

  // InvalidArgument: the main diagonal of head 0 of a mask [B, H, Q, K] is not [B, S].
  absl::Status CheckDiagonal(const TensorSpec& mask) const;

  // A stream that was cut or added; nullptr: none of that name.
  const StreamPlan* Find(absl::string_view name) const;

  bool has_fill() const { return has_fill_; }
  Outputs& outputs() { return outputs_; }

  // Moves the outputs into the plan. InvalidArgument: a fill that the stream's dtype cannot hold,
  // where there are columns to fill.
  absl::Status Finish(ShardPlan& plan);

 private:
  struct Pending {
    StreamPlan stream;
    std::optional<Number> fill;  // absent = continue
  };

  absl::StatusOr<const TensorSpec*> Require(absl::string_view name) const;
  absl::Status CheckLength(const TensorSpec& tensor, int axis) const;
  absl::Status CheckRows(const TensorSpec& tensor, int axis) const;
  absl::Status SetFill(Pending& pending) const;

  const BatchSpec& spec_;
  TokenRows rows_;
  int64_t padded_len_;
  bool has_fill_ = false;
  std::vector<Pending> pending_;
  Outputs outputs_;
};

}  // namespace cpshard
