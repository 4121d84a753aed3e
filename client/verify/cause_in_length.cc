#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/verify/cause.h"
#include "client/verify/elements.h"
#include "core/plan/status_macros.h"

namespace cpshard::verify {
namespace {

// Whether theirs holds the numbers of `whole`, in any shape.
absl::StatusOr<bool> Holds(const Tensor& theirs, const Tensor& whole, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(const std::optional<Tensor> same,
                           Restated(theirs, whole.spec.dtype, whole.spec.dims, pool));
  return same && SameTensor(*same, whole);
}

absl::StatusOr<std::optional<Cause>> NotCut(const Reference& reference, const StreamPlan& stream,
                                            const Tensor& theirs) {
  CPSHARD_ASSIGN_OR_RETURN(const Tensor uncut, reference.Uncut(stream));
  CPSHARD_ASSIGN_OR_RETURN(const bool padded, Holds(theirs, uncut, reference.pool()));
  if (padded) return Cause{"not_cut", "the whole padded stream, not cut"};
  const Tensor* sent = reference.batch().FindTensor(stream.name);
  if (sent == nullptr) return std::nullopt;
  CPSHARD_ASSIGN_OR_RETURN(const bool as_sent, Holds(theirs, *sent, reference.pool()));
  if (!as_sent) return std::nullopt;
  return Cause{"not_cut", "the stream as the batch has it, neither padded nor cut"};
}

// The two parts have the same shape but for the length of the sequence axis.
bool DifferInLengthAlone(const Tensor& ours, const Tensor& theirs, int axis) {
  if (ours.spec.dims.size() != theirs.spec.dims.size()) return false;
  std::vector<int64_t> dims = theirs.spec.dims;
  dims[axis] = ours.spec.dims[axis];
  return dims == ours.spec.dims;
}

// Whether all rows begin alike, over the shorter length.
bool SameBeginnings(const Tensor& ours, const Tensor& theirs, int axis) {
  const absl::Span<const int64_t> dims(ours.spec.dims);
  const int64_t outer = Product(dims.first(axis));
  const int64_t slot_bytes = Product(dims.subspan(axis + 1)) * ItemSize(ours.spec.dtype);
  const int64_t our_bytes = dims[axis] * slot_bytes;
  const int64_t their_bytes = theirs.spec.dims[axis] * slot_bytes;
  if (std::min(our_bytes, their_bytes) == 0) return false;  // says nothing
  for (int64_t row = 0; row < outer; ++row) {
    if (std::memcmp(ours.buffer.data() + row * our_bytes, theirs.buffer.data() + row * their_bytes,
                    std::min(our_bytes, their_bytes)) != 0) {
      return false;
    }
  }
  return true;
}

// Whether our slots from `begin` on hold padding alone.
bool OnlyPaddingFrom(const Reference& reference, const StreamAxes& axes, const Tensor& ours,
                     int64_t rank, int64_t begin) {
  for (int64_t element = 0; element < NumElements(ours.spec); element += axes.inner()) {
    const ElementPlace place = axes.At(rank, element);
    if (place.slot >= begin && !reference.IsPadding(place.column)) return false;
  }
  return true;
}

std::string LengthText(const Reference& reference, const StreamPlan& stream, int64_t rank,
                       const Tensor& ours, const Tensor& theirs, int axis) {
  const int64_t our_length = ours.spec.dims[axis], their_length = theirs.spec.dims[axis];
  if (!SameBeginnings(ours, theirs, axis)) {
    return absl::StrCat(their_length, " slots where ours has ", our_length);
  }
  if (their_length > our_length) {
    return absl::StrCat("equal in our ", our_length, " slots; theirs has ",
                        their_length - our_length, " more");
  }
  const bool padding =
      OnlyPaddingFrom(reference, StreamAxes(reference.plan(), stream), ours, rank, their_length);
  return absl::StrCat(
      "equal in their ", their_length, " slots; ours has ", our_length - their_length, " more, ",
      padding ? "all padding: theirs is trimmed, or padded to less" : "with tokens among them");
}

}  // namespace

absl::StatusOr<Cause> CauseInLength(const Reference& reference, const StreamPlan& stream,
                                    int64_t rank, const Tensor& ours, const Tensor& theirs) {
  if (stream.extent != Extent::kWhole) {
    CPSHARD_ASSIGN_OR_RETURN(std::optional<Cause> cause, NotCut(reference, stream, theirs));
    if (cause) return *std::move(cause);
  }
  const int axis = OutputAxis(reference.plan(), stream);
  if (stream.extent == Extent::kLocal && stream.layout == kTokens &&
      DifferInLengthAlone(ours, theirs, axis)) {
    CPSHARD_ASSIGN_OR_RETURN(const std::optional<Tensor> same,
                             Restated(theirs, ours.spec.dtype, theirs.spec.dims, reference.pool()));
    if (same) {
      return Cause{"length", LengthText(reference, stream, rank, ours, *same, axis)};
    }
  }
  if (ours.spec.dims != theirs.spec.dims) return Cause{"shape", "another shape"};
  return Cause{"dtype", "numbers that our dtype does not hold"};
}

}  // namespace cpshard::verify
