#include "tests/property/checks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/exec/gather.h"

namespace cpshard::property {
namespace {

Executor& TheExecutor() {
  static Executor& executor = *MakeCpuExecutor().release();
  return executor;
}

BufferPool& ThePool() {
  static BufferPool& pool = *new BufferPool;
  return pool;
}

std::vector<int64_t> ColumnsOf(const ShardLayout& layout) {
  std::vector<int64_t> columns;
  for (const Run& run : layout.runs) {
    for (int64_t i = 0; i < run.length; ++i) columns.push_back(run.source + i);
  }
  return columns;
}

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

int64_t ProductOf(const std::vector<int64_t>& dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= dims[i];
  return product;
}

// The first `length` columns of `axis`, taken slot by slot from the oracle's shards.
oracle::Tensor Stitched(const std::vector<oracle::Shard>& shards, const std::string& name, int axis,
                        int64_t length) {
  oracle::Tensor full = shards.front().outputs.at(name);
  const int64_t outer = ProductOf(full.dims, 0, axis);
  const int64_t inner =
      ProductOf(full.dims, axis + 1, full.dims.size()) * ItemSize(*ParseDType(full.dtype));
  full.dims[axis] = length;
  full.bytes.assign(outer * length * inner, 0);
  for (const oracle::Shard& shard : shards) {
    const auto slots = static_cast<int64_t>(shard.columns.size());
    const std::vector<uint8_t>& bytes = shard.outputs.at(name).bytes;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t slot = 0; slot < slots; ++slot) {
        if (shard.columns[slot] >= length) continue;
        std::copy_n(bytes.begin() + (o * slots + slot) * inner, inner,
                    full.bytes.begin() + (o * length + shard.columns[slot]) * inner);
      }
    }
  }
  return full;
}

// The stream as the caller sent it, under whatever name; nullopt = it was derived.
std::optional<oracle::Tensor> AsSent(const Sample& sample, const std::string& name, int64_t rows) {
  const bool promoted = name == "labels" && !sample.streams.contains("labels");
  const auto sent = sample.streams.find(promoted ? "loss_mask" : name);
  if (sent == sample.streams.end()) return std::nullopt;
  oracle::Tensor stream = sent->second;
  const bool is_shared_row =
      name == "position_ids" && stream.dims.size() == 2 && stream.dims[0] == 1 && rows > 1;
  if (!is_shared_row) return stream;
  stream.dims[0] = rows;
  const std::vector<uint8_t> row = stream.bytes;
  for (int64_t b = 1; b < rows; ++b) {
    stream.bytes.insert(stream.bytes.end(), row.begin(), row.end());
  }
  return stream;
}

std::string GatherStreamFault(const Shards& shards, const std::string& name, bool trim,
                              const oracle::Tensor& want) {
  const auto got = GatherStream(shards, name, {.trim = trim}, TheExecutor(), ThePool());
  if (!got.ok()) return absl::StrCat("gather of ", name, ": ", got.status().ToString());
  return TensorFault(absl::StrCat(trim ? "trimmed " : "gathered ", name), FromProduct(*got), want);
}

}  // namespace

absl::StatusOr<ShardResult> ShardSample(const LayoutCase& layout, const Sample& sample,
                                        const Point& point, const std::vector<int64_t>& ranks) {
  return ShardBatch(layout.SharderFor(sample), ToProduct(sample), point.cp_size, ranks, Limits{},
                    TheExecutor(), ThePool());
}

std::string CoverageFault(const LayoutCase& layout, const Shards& shards) {
  const int64_t padded = shards.front().layout.padded_seq_len.value_or(0);
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

std::string AgreementFault(const Shards& shards) {
  const RankShard& first = shards.front();
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const RankShard& shard = shards[rank];
    ShardLayout layout = shard.layout;
    if (layout.cp_rank != static_cast<int64_t>(rank)) return "a layout names another rank";
    if (layout.cp_size != static_cast<int64_t>(shards.size())) return "cp_size is not the ranks";
    layout.cp_rank = first.layout.cp_rank;
    layout.runs = first.layout.runs;
    if (!(layout == first.layout)) return absl::StrCat("layout of rank ", rank, " is another");
    if (shard.cuts != first.cuts) return absl::StrCat("cuts of rank ", rank, " are others");
    if (shard.batch.scalars != first.batch.scalars) return "scalars differ";
    if (shard.batch.tensors.size() != first.batch.tensors.size()) return "streams are missing";
    for (size_t i = 0; i < shard.batch.tensors.size(); ++i) {
      const TensorSpec& spec = shard.batch.tensors[i].spec;
      if (!(spec == first.batch.tensors[i].spec)) {
        return absl::StrCat(spec.name, " of rank ", rank, " has another shape than on rank 0");
      }
    }
  }
  return "";
}

std::string ShardFault(const RankShard& got, const oracle::Shard& want) {
  if (got.layout.original_seq_len != want.original_seq_len) return "original_seq_len";
  if (got.layout.padded_seq_len != want.padded_seq_len) return "padded_seq_len";
  if (ColumnsOf(got.layout) != want.columns) return "columns";
  if (got.batch.tensors.size() != got.cuts.size()) return "cuts are not one per stream";
  for (const Tensor& tensor : got.batch.tensors) {
    const auto wanted = want.outputs.find(tensor.spec.name);
    if (wanted == want.outputs.end()) return absl::StrCat(tensor.spec.name, " should be gone");
    const std::string fault = TensorFault(wanted->first, FromProduct(tensor), wanted->second);
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

std::string GatherFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                        const Shards& shards) {
  const auto expected =
      layout.restated ? layout.Expected(sample, point) : std::vector<oracle::Shard>();
  const Shards backwards(shards.rbegin(), shards.rend());
  for (size_t i = 0; i < shards.front().cuts.size(); ++i) {
    const std::string& name = shards.front().batch.tensors[i].spec.name;
    const StreamCut& cut = shards.front().cuts[i];
    std::optional<oracle::Tensor> sent, padded;
    if (cut.extent == Extent::kAsSent) {
      sent = padded = sample.streams.at(name);
    } else {
      const oracle::Tensor& primary =
          sample.streams.at(sample.streams.contains("input_ids") ? "input_ids" : "inputs_embeds");
      sent = AsSent(sample, name, primary.dims[0]);
      if (!expected.empty()) {
        padded = Stitched(expected, name, cut.seq_axis, *expected.front().padded_seq_len);
        if (!sent) sent = Stitched(expected, name, cut.seq_axis, primary.dims[1]);
      }
    }
    std::string fault;
    if (padded) fault = GatherStreamFault(shards, name, /*trim=*/false, *padded);
    if (fault.empty() && sent) fault = GatherStreamFault(backwards, name, /*trim=*/true, *sent);
    if (!fault.empty()) return fault;
  }
  return "";
}

namespace {

int64_t LabelsThatCount(const oracle::Tensor& labels) {
  const int64_t size = ItemSize(*ParseDType(labels.dtype));
  int64_t count = 0;
  for (size_t at = 0; at < labels.bytes.size(); at += size) {
    int64_t value = labels.bytes[at + size - 1] >= 0x80 ? -1 : 0;  // the sign, then the low bytes
    std::memcpy(&value, labels.bytes.data() + at, size);
    if (value != -100) ++count;
  }
  return count;
}

}  // namespace

std::string LabelCountFault(const LayoutCase& layout, const Sample& sample, const Shards& shards) {
  auto sent = sample.streams.find("labels");
  if (sent == sample.streams.end()) sent = sample.streams.find("loss_mask");
  if (sent == sample.streams.end()) return "";
  const DType dtype = *ParseDType(sent->second.dtype);
  if (!IsInteger(dtype) || IsUnsigned(dtype)) return "";  // round robin pads floats with 0 (T8)
  int64_t count = 0;
  for (const RankShard& shard : shards) {
    const Tensor* labels = shard.batch.FindTensor("labels");
    if (labels == nullptr) return "";
    count += LabelsThatCount(FromProduct(*labels));
  }
  const int64_t copies = layout.whole ? static_cast<int64_t>(shards.size()) : 1;
  const int64_t want = LabelsThatCount(sent->second) * copies;
  return count == want ? "" : absl::StrCat(count, " labels count, ", want, " were sent");
}

}  // namespace cpshard::property
