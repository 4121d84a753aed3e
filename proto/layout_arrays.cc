#include "proto/layout_arrays.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "proto/codec.h"
#include "proto/entry_codec.h"
#include "proto/shard_codec.h"

namespace cpshard {
namespace {

constexpr absl::string_view kPrefix = "_layout.";

// Bounds on the wire.
constexpr int64_t kMaxNumber = 10;               // an int64; the shortest has one byte
constexpr int64_t kMaxRun = 4 + 2 * kMaxNumber;  // two numbers, tags and length
constexpr int64_t kMinRun = 4;                   // a source of 0 is left out
constexpr int64_t kMaxRest = 256;                // a layout without runs and long arrays

bool IsLarge(const ShardLayout& layout) {
  // A value takes a byte or more, so the message of a very large layout need not be built.
  int64_t values = static_cast<int64_t>(2 * layout.runs.size());
  const auto count = [&](const auto& array) {
    if (array) values += static_cast<int64_t>(array->values.size());
  };
  count(layout.local_token_global_indices);
  count(layout.input_row_shape);
  count(layout.input_token_stream_positions);
  if (values > kMaxLayoutBytes) return true;
  v1::ShardLayout message;
  EncodeLayout(layout, &message);
  return static_cast<int64_t>(message.ByteSizeLong()) > kMaxLayoutBytes;
}

int64_t NumRuns(const ShardPlan& plan, int64_t rank) {
  int64_t runs = 0;
  for (const LayoutPlan& layout : plan.chunks) {
    runs += static_cast<int64_t>(layout.partition[rank].runs().size());
  }
  return runs;
}

// Values of the arrays that the layout reports, runs aside; or fewer where those alone are over any
// message, so that sums of the result stay small.
int64_t NumValues(const ShardPlan& plan, int64_t rank) {
  if (plan.chunks.size() != 1) return 0;
  const auto count = [](int64_t values) { return std::min(values, kMaxMessageBytes); };
  const LayoutPlan& layout = plan.chunks.front();
  int64_t values = 0;
  if (layout.report.stream_positions) values += count(layout.rows) * count(layout.source_len);
  if (layout.report.indices != Report::Indices::kNone) values += count(layout.LocalLen(rank));
  return count(values);
}

// Writes the arrays of one answer.
class LayoutArrays {
 public:
  LayoutArrays(ShardBody* body, BufferPool* pool) : body_(*body), pool_(*pool) {}

  // Arrays of the layout become pieces of the body and entries of the shard, and what is left the
  // shard's layout.
  absl::Status Move(ShardLayout layout, v1::Shard* shard);

 private:
  struct Written {
    SharedIntArray array;
    int64_t offset = 0;
  };

  absl::Status Move(const char* name, const SharedIntArray& array, v1::Shard* shard);
  absl::StatusOr<int64_t> Write(const std::vector<int64_t>& values);

  ShardBody& body_;
  BufferPool& pool_;
  std::map<std::string, Written> last_;  // by name
};

IntArray ToArray(const std::vector<Run>& runs) {
  IntArray array{{static_cast<int64_t>(runs.size()), 2}, {}};
  for (const Run& run : runs) array.values.insert(array.values.end(), {run.source, run.length});
  return array;
}

absl::Status LayoutArrays::Move(ShardLayout layout, v1::Shard* shard) {
  const auto move = [&](const char* name, auto& array) {
    const SharedIntArray moved = std::move(array);
    if (!moved) return absl::OkStatus();
    array = IntArray();  // it is there, without values
    return Move(name, moved, shard);
  };
  CPSHARD_RETURN_IF_ERROR(move("local_token_global_indices", layout.local_token_global_indices));
  CPSHARD_RETURN_IF_ERROR(move("input_row_shape", layout.input_row_shape));
  CPSHARD_RETURN_IF_ERROR(
      move("input_token_stream_positions", layout.input_token_stream_positions));
  CPSHARD_RETURN_IF_ERROR(Move("runs", ToArray(std::exchange(layout.runs, {})), shard));
  EncodeLayout(layout, shard->mutable_layout());
  return absl::OkStatus();
}

absl::Status LayoutArrays::Move(const char* name, const SharedIntArray& array, v1::Shard* shard) {
  v1::Entry* entry = shard->add_entries();
  EncodeOutput({absl::StrCat(kPrefix, name), DType::kI64, array->shape}, {.extent = Extent::kWhole},
               0, entry);
  if (array->values.empty()) return absl::OkStatus();
  Written& last = last_[name];
  if (!last.array || !(last.array == array || last.array->values == array->values)) {
    CPSHARD_ASSIGN_OR_RETURN(last.offset, Write(array->values));
    last.array = array;
  }
  entry->set_offset(last.offset);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LayoutArrays::Write(const std::vector<int64_t>& values) {
  const int64_t offset = body_.size;
  const size_t bytes = values.size() * sizeof(int64_t);
  const int64_t aligned = AlignUp(static_cast<int64_t>(bytes));
  CPSHARD_ASSIGN_OR_RETURN(const Buffer piece, pool_.Allocate(aligned));
  std::memcpy(piece.data(), values.data(), bytes);
  std::memset(piece.data() + bytes, 0, aligned - bytes);
  body_.pieces.push_back(piece);
  body_.size += aligned;
  body_.copied_bytes += static_cast<int64_t>(bytes);
  return offset;
}

absl::Status Refused(const Tensor& array, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the layout array '", kPrefix, array.spec.name, "' of dtype ", DTypeName(array.spec.dtype),
      " and shape ", DimsString(array.spec.dims), " ", why));
}

absl::Status RestoreRuns(const Tensor& array, v1::ShardLayout* layout) {
  const std::vector<int64_t>& dims = array.spec.dims;
  if (dims.size() != 2 || dims[1] != 2) return Refused(array, "does not list runs, [n, 2]");
  if (layout->runs_size() > 0) return Refused(array, "is in the layout too");
  for (size_t at = 0; at < array.buffer.size(); at += sizeof(int64_t[2])) {
    int64_t run[2];
    std::memcpy(run, array.buffer.data() + at, sizeof(run));
    v1::Run* to = layout->add_runs();
    to->set_source(run[0]);
    to->set_length(run[1]);
  }
  return absl::OkStatus();
}

// The field that an array stands for; nullptr: none.
v1::Int64Array* FieldOf(absl::string_view name, v1::ShardLayout* layout) {
  if (name == "local_token_global_indices") return layout->mutable_local_token_global_indices();
  if (name == "input_row_shape") return layout->mutable_input_row_shape();
  if (name == "input_token_stream_positions") return layout->mutable_input_token_stream_positions();
  return nullptr;
}

absl::Status Restore(const Tensor& array, v1::ShardLayout* layout) {
  if (array.spec.dtype != DType::kI64) return Refused(array, "is not of int64");
  if (NumElements(array.spec) > std::numeric_limits<int>::max()) {
    return Refused(array, "is too large");
  }
  if (array.spec.name == "runs") return RestoreRuns(array, layout);
  v1::Int64Array* field = FieldOf(array.spec.name, layout);
  if (field == nullptr) return Refused(array, "is not known");
  if (field->shape_size() + field->values_size() > 0) return Refused(array, "is in the layout too");
  field->mutable_shape()->Add(array.spec.dims.begin(), array.spec.dims.end());
  field->mutable_values()->Resize(static_cast<int>(NumElements(array.spec)), 0);
  if (array.buffer.size() > 0) {
    std::memcpy(field->mutable_values()->mutable_data(), array.buffer.data(), array.buffer.size());
  }
  return absl::OkStatus();
}

// Takes the entries that are arrays of the layout out of the shard; their names lose the prefix.
Entries TakeArrays(v1::Shard* shard) {
  Entries arrays, others;
  for (v1::Entry& entry : *shard->mutable_entries()) {
    const bool is_array = absl::StartsWith(entry.name(), kPrefix);
    v1::Entry* to = is_array ? arrays.Add() : others.Add();
    to->Swap(&entry);
    if (is_array) to->mutable_name()->erase(0, kPrefix.size());
  }
  shard->mutable_entries()->Swap(&others);
  return arrays;
}

}  // namespace

int64_t MaxLayoutBytes(const ShardPlan& plan, int64_t rank) {
  return kMaxRest + kMaxRun * NumRuns(plan, rank) + kMaxNumber * NumValues(plan, rank);
}

int64_t MinLayoutBytes(const ShardPlan& plan, int64_t rank) {
  // The last run of a chunk and the first of the next may be one.
  const int64_t joined = std::max<int64_t>(plan.chunks.size(), 1) - 1;
  return kMinRun * std::max<int64_t>(NumRuns(plan, rank) - joined, 0) + NumValues(plan, rank);
}

absl::StatusOr<std::vector<std::string>> MoveLargeLayouts(const ShardPlan& plan,
                                                          absl::Span<const int64_t> ranks,
                                                          uint64_t digest, ShardBody* body,
                                                          BufferPool& pool) {
  std::vector<std::string> left;
  LayoutArrays arrays(body, &pool);
  LayoutRecords records(plan, digest);
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (MaxLayoutBytes(plan, ranks[k]) <= kMaxLayoutBytes) continue;
    ShardLayout layout = records.Of(ranks[k]);
    if (!IsLarge(layout)) continue;
    v1::Shard shard;
    CPSHARD_RETURN_IF_ERROR(arrays.Move(std::move(layout), &shard));
    left.resize(ranks.size());
    left[k] = shard.SerializeAsString();
  }
  return left;
}

absl::Status RestoreArrays(const Buffer& answer, v1::Shard* shard) {
  const Entries arrays = TakeArrays(shard);
  CPSHARD_ASSIGN_OR_RETURN(const BatchSpec spec, DecodeSpecs(arrays));
  if (!spec.scalars.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout array '", kPrefix, spec.scalars.front().name, "' is a scalar"));
  }
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(spec, ReplyLimits()));
  CPSHARD_ASSIGN_OR_RETURN(const Batch batch, DecodeTensors(arrays, spec, answer, Sharing::kAllowed,
                                                            /*specs_alone=*/false));
  for (const Tensor& array : batch.tensors) {
    CPSHARD_RETURN_IF_ERROR(Restore(array, shard->mutable_layout()));
  }
  return absl::OkStatus();
}

}  // namespace cpshard
