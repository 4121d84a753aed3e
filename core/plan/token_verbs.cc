#include "core/plan/token_verbs.h"

#include "absl/strings/str_cat.h"

namespace cpshard {

absl::Status ToStatus(const Refusal& refusal) {
  switch (refusal.kind) {
    case Refusal::Kind::kArgument:
    case Refusal::Kind::kNoAxis:
      return absl::InvalidArgumentError(refusal.text);
    case Refusal::Kind::kOtherLayout:
    case Refusal::Kind::kNoLayout:
      break;
  }
  return absl::FailedPreconditionError(refusal.text);
}

namespace token_verbs {

using Kind = Refusal::Kind;

Refusal NoSuchAxis(const std::string& sizes, int64_t axis) {
  return {Kind::kNoAxis, absl::StrCat("a tensor of shape ", sizes, " has no axis ", axis)};
}

Refusal TooLong(const std::string& what, const std::string& a, const std::string& b) {
  return {Kind::kArgument, absl::StrCat(what, ": ", a, " * ", b, " is beyond int64")};
}

Refusal NoMap() {
  return {Kind::kNoLayout,
          "the layout is data-dependent: it arrives with the shard, and there is none before the "
          "first shard; shard a batch first"};
}

Refusal NotTheCaptured(const std::string& columns, const std::string& captured) {
  return {Kind::kOtherLayout, absl::StrCat("the layout's indices cover ", captured,
                                           " columns over all ranks, the tensor makes ", columns,
                                           ": it does not match the batch that was sharded last")};
}

Refusal NotDivisible(const std::string& columns, int64_t divisor) {
  return {Kind::kArgument,
          absl::StrCat("the length must be divisible by cp_size (contiguous), or divisible by 2 * "
                       "cp_size (round robin): got ",
                       columns, " and ", divisor, "; pad the tensor first")};
}

Refusal NoFillToShard(const std::string& sizes) {
  return {Kind::kArgument,
          absl::StrCat("a tensor of shape ", sizes,
                       " is in the caller's coordinates, and this "
                       "layout moves its tokens: give the `fill` for the slots between them")};
}

Refusal NoFillToTrim(const std::string& positions) {
  return {Kind::kArgument,
          absl::StrCat("trimming this layout to positions of shape ", positions,
                       " needs a `fill`: some of the caller's slots may have been dropped")};
}

Refusal PositionsWithoutLength(const std::string& positions) {
  return {Kind::kOtherLayout, absl::StrCat("the layout has positions of shape ", positions,
                                           ", but no padded_seq_len that they lie in")};
}

Refusal OtherLength(const std::string& sizes, int64_t axis, const std::string& columns,
                    const std::string& padded, const std::string& original, bool has_fill) {
  return {Kind::kOtherLayout,
          absl::StrCat("a tensor of shape ", sizes, " has ", columns, " tokens on axis ", axis,
                       "; this layout takes padded_seq_len=", padded, ", or original_seq_len=",
                       original, " with a `fill` (", has_fill ? "given" : "not given", ")")};
}

Refusal OriginalBeyondPadded(const std::string& original, const std::string& padded) {
  return {Kind::kOtherLayout, absl::StrCat("the layout's original_seq_len=", original,
                                           " is beyond its padded_seq_len=", padded)};
}

Refusal OtherGatheredLength(const std::string& columns, int64_t axis, const std::string& padded) {
  return {Kind::kOtherLayout,
          absl::StrCat("the gathered length ", columns, " on axis ", axis,
                       " is not the layout's padded_seq_len=", padded,
                       ": the shard is not of the batch that was sharded last, or no collective "
                       "ran; gather without trim, or with its own layout")};
}

Refusal NotOfPositions(const std::string& full, const std::string& positions) {
  return {Kind::kOtherLayout,
          absl::StrCat("a gathered tensor of shape ", full,
                       " cannot be trimmed by positions of "
                       "shape ",
                       positions, ": only [B, P] of the same B can; gather without trim")};
}

Refusal NotOfRowShape(const std::string& full, int64_t axis, const std::string& row_shape) {
  return {Kind::kOtherLayout,
          absl::StrCat("a gathered tensor of shape ", full, " cannot take the row shape ",
                       row_shape, " in place of axis ", axis, " and those before it")};
}

Refusal OriginalBeyondColumns(const std::string& original, const std::string& columns) {
  return {Kind::kOtherLayout, absl::StrCat("original_seq_len=", original, " is not within the ",
                                           columns, " gathered columns")};
}

Refusal NothingToTrimTo() {
  return {Kind::kNoLayout,
          "no shard layout to trim to: it reports neither positions, nor a row shape, nor an "
          "original length; gather without trim"};
}

}  // namespace token_verbs
}  // namespace cpshard
