#include "tests/property/checks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/oracle/tensors.h"
#include "tests/property/stitching.h"

namespace cpshard::property {

Executor& TheExecutor() {
  static Executor& executor = *MakeCpuExecutor().release();
  return executor;
}

BufferPool& ThePool() {
  static BufferPool& pool = *new BufferPool;
  return pool;
}

namespace {

bool IsRank(const ScalarEntry& scalar) {
  return scalar.name == "cp_rank" || scalar.name.ends_with("cp_context.rank");
}

bool IsStart(const ScalarEntry& scalar) {
  return scalar.name.ends_with("seq_start") || scalar.name.ends_with("local_sequence_start");
}

// All but the rank itself and where its columns begin.
std::vector<ScalarEntry> SharedScalars(const RankShard& shard) {
  std::vector<ScalarEntry> scalars = shard.batch.scalars;
  std::erase_if(scalars,
                [](const ScalarEntry& scalar) { return IsRank(scalar) || IsStart(scalar); });
  return scalars;
}

// What a rank is told of itself is what its layout says.
std::string OwnScalarsFault(const RankShard& shard) {
  int64_t slots = 0;
  for (const Run& run : shard.layout.runs) slots += run.length;
  for (const ScalarEntry& scalar : shard.batch.scalars) {
    const int64_t start = slots > 0 ? shard.layout.runs.front().source : 0;
    const bool wrong = (IsRank(scalar) && scalar.value != Scalar(shard.layout.cp_rank)) ||
                       (IsStart(scalar) && scalar.value != Scalar(start));
    if (wrong) return absl::StrCat(scalar.name, " is not that of its layout");
  }
  return "";
}

// The spec of a stream, without the length that ranks may differ in.
TensorSpec SharedSpec(const LayoutCase& layout, const RankShard& shard, size_t stream) {
  TensorSpec spec = shard.batch.tensors[stream].spec;
  const StreamCut& cut = shard.cuts[stream];
  const bool may_differ = layout.uneven || spec.name.starts_with(kDeepStack);
  if (may_differ && cut.extent == Extent::kLocal) spec.dims[cut.seq_axis] = 0;
  return spec;
}

std::string ScalarsFault(const Batch& got, const std::map<std::string, oracle::Scalar>& want) {
  std::map<std::string, Scalar> wanted;
  for (const auto& [name, scalar] : want) {
    std::visit([&, &name = name](const auto& value) { wanted[name] = value; }, scalar);
  }
  for (const ScalarEntry& scalar : got.scalars) {
    const auto found = wanted.find(scalar.name);
    if (found == wanted.end())
      return absl::StrCat(scalar.name, " should be gone, or is there twice");
    if (found->second != scalar.value) return absl::StrCat(scalar.name, " has another value");
    wanted.erase(found);
  }
  return wanted.empty() ? "" : absl::StrCat(wanted.begin()->first, " is missing");
}

using Shape = std::vector<int64_t>;

std::string LayoutFault(const ShardLayout& got, const oracle::Shard& want) {
  if (got.original_seq_len != want.original_seq_len) return "original_seq_len";
  if (got.padded_seq_len != want.padded_seq_len) return "padded_seq_len";
  if (ColumnsOf(got) != want.columns) return "columns";
  const auto values = [](const std::optional<IntArray>& array) {
    return array ? std::optional(array->values) : std::nullopt;
  };
  if (values(got.input_row_shape) != want.input_row_shape) return "input_row_shape";
  if (values(got.local_token_global_indices) != want.local_token_global_indices) return "indices";
  const auto& indices = got.local_token_global_indices;
  if (indices && indices->shape != Shape{static_cast<int64_t>(want.columns.size())}) {
    return "shape of the indices";
  }
  return got.input_token_stream_positions ? "stream positions" : "";
}

}  // namespace

std::string TensorFault(const std::string& name, const oracle::Tensor& got,
                        const oracle::Tensor& want) {
  if (got == want) return "";
  std::string text = absl::StrCat(name, ": got ", got.dtype, " ", DimsString(got.dims), ", want ",
                                  want.dtype, " ", DimsString(want.dims));
  const auto [a, b] =
      std::mismatch(got.bytes.begin(), got.bytes.end(), want.bytes.begin(), want.bytes.end());
  if (a == got.bytes.end() && b == want.bytes.end()) return text;
  return absl::StrCat(text, ", bytes differ from ", a - got.bytes.begin(), " on");
}

absl::StatusOr<ShardResult> ShardSample(const LayoutCase& layout, const Sample& sample,
                                        const Point& point, const std::vector<int64_t>& ranks) {
  return ShardBatch(layout.SharderFor(sample, point), ToProduct(sample), point.cp_size, ranks,
                    Limits{}, TheExecutor(), ThePool());
}

std::string CoverageFault(const LayoutCase& layout, const Shards& shards) {
  int64_t slots = 0;  // where the contract reports no layout: chunks
  for (const RankShard& shard : shards) {
    for (const Run& run : shard.layout.runs) slots += run.length;
  }
  const int64_t padded = shards.front().layout.padded_seq_len.value_or(slots);
  const std::vector<int64_t> once(padded, 1);
  std::vector<int64_t> times(padded, 0);
  for (const RankShard& shard : shards) {
    if (layout.whole) times.assign(padded, 0);
    for (const int64_t column : ColumnsOf(shard.layout)) {
      if (column < 0 || column >= padded) return absl::StrCat("there is no column ", column);
      ++times[column];
    }
    if (layout.whole && times != once) return "a rank does not hold all columns once";
  }
  if (layout.whole || times == once) return "";
  return absl::StrCat("a column is held by no rank or by several: ", DimsString(times));
}

std::string AgreementFault(const LayoutCase& of, const Shards& shards) {
  const RankShard& first = shards.front();
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const RankShard& shard = shards[rank];
    ShardLayout layout = shard.layout;
    if (layout.cp_rank != static_cast<int64_t>(rank)) return "a layout names another rank";
    if (layout.cp_size != static_cast<int64_t>(shards.size())) return "cp_size is not the ranks";
    layout.cp_rank = first.layout.cp_rank;
    layout.runs = first.layout.runs;
    if (layout.local_token_global_indices && first.layout.local_token_global_indices) {
      layout.local_token_global_indices->values = first.layout.local_token_global_indices->values;
      if (of.uneven) {
        layout.local_token_global_indices->shape = first.layout.local_token_global_indices->shape;
      }
    }
    if (!(layout == first.layout)) return absl::StrCat("layout of rank ", rank, " is another");
    if (shard.cuts != first.cuts) return absl::StrCat("cuts of rank ", rank, " are others");
    if (SharedScalars(shard) != SharedScalars(first)) return "scalars differ";
    if (const std::string fault = OwnScalarsFault(shard); !fault.empty()) return fault;
    if (shard.batch.tensors.size() != first.batch.tensors.size()) return "streams are missing";
    for (size_t i = 0; i < shard.batch.tensors.size(); ++i) {
      const TensorSpec spec = SharedSpec(of, shard, i);
      if (!(spec == SharedSpec(of, first, i))) {
        return absl::StrCat(spec.name, " of rank ", rank, " has another shape than on rank 0");
      }
    }
  }
  return "";
}

std::string ShardFault(const RankShard& got, const oracle::Shard& want) {
  std::string fault = LayoutFault(got.layout, want);
  if (fault.empty()) fault = ScalarsFault(got.batch, want.scalars);
  if (!fault.empty()) return fault;
  if (got.batch.tensors.size() != got.cuts.size()) return "cuts are not one per stream";
  for (const Tensor& tensor : got.batch.tensors) {
    const auto wanted = want.outputs.find(tensor.spec.name);
    if (wanted == want.outputs.end()) return absl::StrCat(tensor.spec.name, " should be gone");
    fault = TensorFault(wanted->first, FromProduct(tensor), wanted->second);
    if (!fault.empty()) return fault;
  }
  for (const auto& [name, stream] : want.outputs) {
    if (got.batch.FindTensor(name) == nullptr) return absl::StrCat(name, " is missing");
  }
  return "";
}

std::string DifferenceFault(const Shards& a, const Shards& b, const std::string& except) {
  if (a.size() != b.size()) return "numbers of ranks differ";
  for (size_t rank = 0; rank < a.size(); ++rank) {
    if (!(a[rank].layout == b[rank].layout)) return absl::StrCat("layouts of rank ", rank);
    if (a[rank].batch.tensors.size() != b[rank].batch.tensors.size()) return "numbers of streams";
    for (const Tensor& tensor : a[rank].batch.tensors) {
      const std::string& name = tensor.spec.name;
      if (name == except) continue;
      const Tensor* other = b[rank].batch.FindTensor(name);
      if (other == nullptr) return absl::StrCat(name, " is in one of them only");
      const std::string fault = TensorFault(name, FromProduct(tensor), FromProduct(*other));
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

namespace {

// Of the elements of [B, S, ...] those of tokens that `kept` (one per token; empty: all) keeps.
int64_t LabelsThatCount(const oracle::Tensor& labels, const std::vector<bool>& kept) {
  const int64_t size = ItemSize(*ParseDType(labels.dtype));
  const int64_t elements = labels.bytes.size() / size;
  int64_t count = 0;
  for (int64_t i = 0; i < elements; ++i) {
    const size_t at = i * size;
    int64_t value = labels.bytes[at + size - 1] >= 0x80 ? -1 : 0;  // the sign, then the low bytes
    std::memcpy(&value, labels.bytes.data() + at, size);
    const int64_t tokens = kept.size();
    if (value != -100 && (tokens == 0 || kept[i / (elements / tokens)])) ++count;
  }
  return count;
}

// Which of the caller's tokens the layout did not drop; empty = all.
std::vector<bool> KeptTokens(const ShardLayout& layout) {
  std::vector<bool> kept;
  if (!layout.input_token_stream_positions) return kept;
  for (const int64_t position : layout.input_token_stream_positions->values) {
    kept.push_back(position >= 0);
  }
  return kept;
}

}  // namespace

std::string LabelCountFault(const Sample& sample, const Shards& shards) {
  auto sent = sample.streams.find("labels");
  if (sent == sample.streams.end()) sent = sample.streams.find("loss_mask");
  if (sent == sample.streams.end()) return "";
  const DType dtype = *ParseDType(sent->second.dtype);
  if (!IsInteger(dtype) || IsUnsigned(dtype)) return "";  // round robin pads floats with 0 (T8)
  int64_t count = 0;
  for (const RankShard& shard : shards) {
    const Tensor* labels = shard.batch.FindTensor("labels");
    if (labels == nullptr) return "";
    count += LabelsThatCount(FromProduct(*labels), {});
    const StreamCut& cut = shard.cuts[labels - shard.batch.tensors.data()];
    if (cut.extent == Extent::kWhole) break;  // the others have the same
  }
  const int64_t want = LabelsThatCount(sent->second, KeptTokens(shards.front().layout));
  return count == want ? "" : absl::StrCat(count, " labels count, ", want, " were sent");
}

namespace {

int64_t Sum(const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (const int64_t value : values) sum += value;
  return sum;
}

// Contract section 8: -1000 in unused places; 5.4: without lengths, whatever is not the pad id.
int64_t RealTokens(const Sample& sample) {
  int64_t count = 0;
  const auto lengths = sample.streams.find("seq_lens");
  if (lengths != sample.streams.end()) {
    for (const int64_t length : oracle::Integers(lengths->second)) {
      count += std::max<int64_t>(length, 0);
    }
    return count;
  }
  for (const int64_t id : oracle::Integers(sample.streams.at("input_ids"))) {
    count += id == sample.padding_token_id ? 0 : 1;
  }
  return count;
}

}  // namespace

std::string PaddingFault(const Sample& sample, const Shards& shards) {
  int64_t count = 0;
  for (const RankShard& shard : shards) {
    const Tensor* mask = shard.batch.FindTensor("padding_mask");
    if (mask == nullptr || mask->spec.dtype != DType::kBool) return "there is no padding_mask";
    count += NumElements(mask->spec) - Sum(oracle::Integers(FromProduct(*mask)));
  }
  const int64_t want = RealTokens(sample);
  return count == want ? "" : absl::StrCat(count, " slots are no padding, ", want, " are real");
}

}  // namespace cpshard::property
