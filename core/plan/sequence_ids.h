// Which tokens of a row belong together, by the first stream that says so (contract 4.19). Used by
// targets.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/index_map.h"
#include "core/plan/spec.h"
#include "core/plan/value_view.h"

namespace cpshard {

// Sequences of all rows, as lengths or boundaries state them: they are kept, whatever the runs are.
inline constexpr int64_t kMaxSequences = int64_t{1} << 21;

class SequenceIds {
 public:
  // The name of the stream that Of reads, the first that is there as a tensor: seq_idx,
  // _packed_seq_ids (an id per token), seq_lens_padded, cu_seqlens_padded, cu_seqlens, seq_lens. No
  // name: there is none, and every row is one sequence.
  static std::vector<std::string> Needs(const BatchSpec& spec);

  // Of rows of `length` columns. Precondition: `values` holds what Needs named; it must outlive the
  // object. InvalidArgument, naming stream, row and numbers: not bool or integers, or of a shape
  // that does not belong to the rows; lengths of a row that sum to more than `length`; cu_seqlens*
  // for more than one row, descending, or (cu_seqlens) with another end than `length`; more than
  // kMaxSequences.
  // Columns behind the lengths of a row are a sequence of their own.
  static absl::StatusOr<SequenceIds> Of(const BatchSpec& spec, const PlanValues& values,
                                        int64_t rows, int64_t length);

  bool rows_alike() const { return !per_token_ && sequences_.size() == 1; }

  // Appends the `length` columns of row `row`: column s takes first + s + depth where that is a
  // column of the same sequence, else it is fill. Gives up when `map` has more than `max_runs`
  // runs: then it is of no use.
  void AppendShifted(int64_t row, int64_t depth, int64_t first, size_t max_runs,
                     IndexMap& map) const;

 private:
  using Lengths = std::vector<int64_t>;  // of the sequences of a row, which fill it

  static absl::StatusOr<SequenceIds> OfTokens(const TensorSpec& tensor, const ValueView& ids,
                                              int64_t rows, int64_t length);
  static absl::StatusOr<SequenceIds> OfLengths(const TensorSpec& tensor, const ValueView& lengths,
                                               int64_t rows, int64_t length);
  static absl::StatusOr<SequenceIds> OfBoundaries(const TensorSpec& tensor,
                                                  const ValueView& boundaries, int64_t rows,
                                                  int64_t length);

  int64_t length_ = 0;
  bool per_token_ = false;
  ValueView ids_;                   // where per_token_
  std::vector<Lengths> sequences_;  // else: 1 entry (all rows alike) or one per row
};

}  // namespace cpshard
