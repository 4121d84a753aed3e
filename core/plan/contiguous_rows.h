// Contract 4.2, cut open where other layouts put theirs: all that is contiguous with something
// added goes through here. Used by layouts/*.cc only.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/layouts.h"
#include "core/plan/plan.h"
#include "core/plan/spec.h"
#include "core/plan/token_rows.h"

namespace cpshard {

class ContiguousRows {
 public:
  // The layout of the rows, given what they are.
  using MakeLayout = std::function<absl::StatusOr<LayoutPlan>(const TokenRows& rows)>;

  // Steps 2-5 and what they refuse. Precondition: spec.cp_size. `shared.extra_streams` are the
  // caller's, and `own` those of the layout, which give way to a caller's of the same name; an own
  // one that the batch does not have is left to the layout to add.
  static absl::StatusOr<ContiguousRows> Begin(const BatchSpec& spec, const SharedOptions& shared,
                                              const ContiguousOptions& options,
                                              std::vector<ExtraStream> own = {});

  // The same with columns of another layout's.
  static absl::StatusOr<ContiguousRows> BeginWith(const BatchSpec& spec,
                                                  const SharedOptions& shared, Primary primary,
                                                  std::vector<ExtraStream> own,
                                                  const MakeLayout& make_layout);

  // What rows are padded to (step 5).
  static PadRuleFn Padding(int64_t pad_multiple);

  // Step 6 and 8 but for padding_mask: primary, labels, loss mask, positions, extras.
  absl::Status CutAllButPaddingMask();

  // All of it, where nothing is put in between. Errors as the steps'.
  absl::StatusOr<ShardPlan> Plan();

  // Where padding_mask and the layout's own streams are added.
  RowStreams& streams() { return streams_; }
  const TokenRows& rows() const { return rows_; }
  int64_t padded_len() const { return layout_.padded_len; }

  // What the rows are packed with: LayoutPlan::documents.
  void SetDocuments(std::vector<std::vector<DocumentSpan>> documents) {
    layout_.documents = std::move(documents);
  }

  // Moves streams, scalars and the layout into the plan. InvalidArgument: a pad id is needed and
  // was not given; what RowStreams::Finish refuses.
  absl::Status Finish(ShardPlan& plan);

 private:
  ContiguousRows(const BatchSpec& spec, const SharedOptions& shared, TokenRows rows,
                 LayoutPlan layout)
      : spec_(spec),
        shared_(shared),
        rows_(rows),
        layout_(std::move(layout)),
        streams_(spec, rows, layout_) {}

  absl::Status CutLabels();

  const BatchSpec& spec_;
  const SharedOptions& shared_;
  TokenRows rows_;
  LayoutPlan layout_;
  std::vector<ExtraStream> extras_;
  bool cut_primary_ = true;
  RowStreams streams_;
};

}  // namespace cpshard
