#include "core/plan/sequence_ids.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// In the order in which they are asked.
constexpr absl::string_view kSources[] = {"seq_idx",           "_packed_seq_ids", "seq_lens_padded",
                                          "cu_seqlens_padded", "cu_seqlens",      "seq_lens"};

const TensorSpec* FindSource(const BatchSpec& spec) {
  for (absl::string_view name : kSources) {
    if (const TensorSpec* tensor = spec.FindTensor(name)) return tensor;
  }
  return nullptr;
}

std::string Describe(const TensorSpec& tensor) {
  return absl::StrCat("stream '", tensor.name, "' ", DTypeName(tensor.dtype),
                      DimsString(tensor.dims));
}

// [rows, n], or of one row [n] too.
bool IsOfRows(const TensorSpec& tensor, int64_t rows) {
  const std::vector<int64_t>& dims = tensor.dims;
  return dims.size() == 2 ? dims[0] == rows : dims.size() == 1 && rows == 1;
}

absl::Status CheckAscending(const TensorSpec& tensor, const std::vector<int64_t>& boundaries) {
  for (size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i] >= boundaries[i - 1]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(tensor), ": boundary ", boundaries[i - 1], " is followed by ",
                     boundaries[i], "; boundaries of sequences ascend"));
  }
  return absl::OkStatus();
}

absl::Status TooMany(const TensorSpec& tensor) {
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(tensor), " states more sequences than the ", kMaxSequences,
      " that the option targets takes; send fewer in a batch, or an id per token as seq_idx"));
}

}  // namespace

std::vector<std::string> SequenceIds::Needs(const BatchSpec& spec) {
  const TensorSpec* source = FindSource(spec);
  if (source == nullptr || IsFloating(source->dtype)) return {};
  return {source->name};
}

absl::StatusOr<SequenceIds> SequenceIds::Of(const BatchSpec& spec, const PlanValues& values,
                                            int64_t rows, int64_t length) {
  const TensorSpec* source = FindSource(spec);
  if (source == nullptr) {
    SequenceIds one;
    one.length_ = length;
    one.sequences_ = {{length}};
    return one;
  }
  if (IsFloating(source->dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*source),
                     " tells the option targets which tokens belong together; "
                     "send integers"));
  }
  const ValueView& view = values.at(source->name);
  if (source->name == "seq_idx" || source->name == "_packed_seq_ids") {
    return OfTokens(*source, view, rows, length);
  }
  const bool lengths = source->name == "seq_lens_padded" || source->name == "seq_lens";
  return lengths ? OfLengths(*source, view, rows, length)
                 : OfBoundaries(*source, view, rows, length);
}

absl::StatusOr<SequenceIds> SequenceIds::OfTokens(const TensorSpec& tensor, const ValueView& ids,
                                                  int64_t rows, int64_t length) {
  if (!IsOfRows(tensor, rows) || tensor.dims.back() != length) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(tensor), " has not an id for each token of input_ids; send [", rows,
                     ", ", length, "]"));
  }
  SequenceIds sequences;
  sequences.length_ = length;
  sequences.per_token_ = true;
  sequences.ids_ = ids;
  return sequences;
}

// A negative length is an unused place.
absl::StatusOr<SequenceIds> SequenceIds::OfLengths(const TensorSpec& tensor,
                                                   const ValueView& lengths, int64_t rows,
                                                   int64_t length) {
  if (!IsOfRows(tensor, rows)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(tensor), " does not list the sequences of ", rows, " rows; send [", rows, ", n]"));
  }
  const int64_t width = tensor.dims.back();
  SequenceIds sequences;
  sequences.length_ = length;
  sequences.sequences_.resize(rows);
  int64_t kept = 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t left = length;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t sequence = lengths[row * width + i];
      if (sequence > left) {
        return absl::InvalidArgumentError(absl::StrCat(
            Describe(tensor), " row ", row, ": entry ", i, " is ", sequence, " with ", left,
            " of S = ", length, " columns left; lengths of a row sum to S at most"));
      }
      if (sequence <= 0) continue;
      if (++kept > kMaxSequences) return TooMany(tensor);
      sequences.sequences_[row].push_back(sequence);
      left -= sequence;
    }
    if (left > 0) sequences.sequences_[row].push_back(left);
  }
  return sequences;
}

// Negative ones are unused places; the first of the others is where the row begins.
absl::StatusOr<SequenceIds> SequenceIds::OfBoundaries(const TensorSpec& tensor,
                                                      const ValueView& boundaries, int64_t rows,
                                                      int64_t length) {
  if (rows != 1 || !IsOfRows(tensor, rows)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " divides one row, [n]; for ",
                                                   rows, " rows send 'seq_lens_padded' [", rows,
                                                   ", n]"));
  }
  if (boundaries.size() > kMaxSequences) return TooMany(tensor);
  std::vector<int64_t> used = boundaries.ToVector();
  std::erase_if(used, [](int64_t boundary) { return boundary < 0; });
  SequenceIds sequences;
  sequences.length_ = length;
  if (used.size() < 2) {  // says nothing
    sequences.sequences_ = {{length}};
    return sequences;
  }
  CPSHARD_RETURN_IF_ERROR(CheckAscending(tensor, used));
  if (tensor.name == "cu_seqlens" && used.back() != length) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " ends at ", used.back(),
                                                   ", not at S = ", length,
                                                   "; the sequences must fill the row"));
  }
  Lengths& lengths = sequences.sequences_.emplace_back();
  int64_t begin = 0;
  for (size_t i = 1; i < used.size() && begin < length; ++i) {
    const int64_t end = std::min(used[i], length);
    if (end > begin) lengths.push_back(end - begin);
    begin = end;
  }
  if (begin < length) lengths.push_back(length - begin);
  return sequences;
}

void SequenceIds::AppendShifted(int64_t row, int64_t depth, int64_t first, size_t max_runs,
                                IndexMap& map) const {
  if (!per_token_) {
    for (const int64_t sequence : sequences_[sequences_.size() == 1 ? 0 : row]) {
      const int64_t shown = std::max<int64_t>(sequence - depth, 0);
      map.Append({first + depth, shown});
      map.Append({kFill, sequence - shown});
      first += sequence;
      if (map.runs().size() > max_runs) return;
    }
    return;
  }
  const int64_t begin = row * length_;
  const int64_t last = length_ - depth;  // from here on nothing is `depth` columns ahead
  const auto goes_on = [&](int64_t s) {
    return s < last && ids_[begin + s] == ids_[begin + s + depth];
  };
  for (int64_t s = 0; s < length_ && map.runs().size() <= max_runs;) {
    const bool shown = goes_on(s);
    const int64_t from = s;
    while (s < length_ && goes_on(s) == shown) ++s;
    map.Append({shown ? first + from + depth : kFill, s - from});
  }
}

}  // namespace cpshard
