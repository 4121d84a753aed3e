#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/exec/gather.h"
#include "core/oracle/tensors.h"
#include "core/oracle/values.h"
#include "tests/property/checks.h"

namespace cpshard::property {
namespace {

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

// A stream of packed documents as it comes back in rows: token by token what was sent, one axis
// after the rows, cast as contract 4.7 says (D7).
oracle::Tensor RowsAsSent(const Sample& sample, const std::string& name, const Point& point) {
  oracle::Tensor stream = sample.streams.at(name);
  const int64_t rest = ProductOf(stream.dims, 2, stream.dims.size());
  stream.dims.resize(2);
  if (rest != 1) stream.dims.push_back(rest);
  const bool keeps_dtype = name == "input_ids" && oracle::IsFloat(stream.dtype);
  return point.num_ranks() == 1 || keeps_dtype ? stream : oracle::AsInt64(stream);
}

// What comes back of a stream; nullopt = nothing to compare with.
struct Wanted {
  std::optional<oracle::Tensor> padded, trimmed;
};

Wanted OfRows(const std::vector<oracle::Shard>& expected, const Sample& sample,
              const std::string& name, const StreamCut& cut) {
  if (cut.extent == Extent::kWhole) return {sample.streams.at(name), sample.streams.at(name)};
  const oracle::Tensor& primary =
      sample.streams.at(sample.streams.contains("input_ids") ? "input_ids" : "inputs_embeds");
  Wanted wanted{.trimmed = AsSent(sample, name, primary.dims[0])};
  if (expected.empty()) return wanted;
  wanted.padded = Stitched(expected, name, cut.seq_axis, *expected.front().padded_seq_len);
  if (!wanted.trimmed) wanted.trimmed = Stitched(expected, name, cut.seq_axis, primary.dims[1]);
  return wanted;
}

Wanted OfDocuments(const std::vector<oracle::Shard>& expected, const Sample& sample,
                   const Point& point, const std::string& name, const StreamCut& cut) {
  if (cut.extent == Extent::kWhole) {
    const oracle::Tensor& whole = expected.front().outputs.at(name);
    return {whole, whole};
  }
  Wanted wanted{.padded = Stitched(expected, name, cut.seq_axis, point.rows * point.length)};
  if (cut.seq_axis != 0) return wanted;  // [n, 1, T] does not fold into rows
  const bool derived = name == "padding_mask" || name == "_thd_local_indices";
  wanted.trimmed = derived ? *wanted.padded : RowsAsSent(sample, name, point);
  if (derived) wanted.trimmed->dims = {point.rows, point.length};
  return wanted;
}

std::string GatherStreamFault(const Shards& shards, const std::string& name, bool trim,
                              const oracle::Tensor& want) {
  const auto got = GatherStream(shards, name, {.trim = trim}, TheExecutor(), ThePool());
  if (!got.ok()) return absl::StrCat("gather of ", name, ": ", got.status().ToString());
  return TensorFault(absl::StrCat(trim ? "trimmed " : "gathered ", name), FromProduct(*got), want);
}

// Chunks report no layout, thus nothing to trim to (contract 4.7, T54), but they come back as the
// chunks of the conversion: [C, L, ...] of the ranks as [C, T_c, ...], token by token what was
// sent.
std::string ChunksFault(const LayoutCase& layout, const std::vector<oracle::Shard>& expected,
                        const Sample& sample, const Point& point, const Shards& shards,
                        const std::string& name) {
  std::vector<oracle::Shard> flat = expected;
  for (oracle::Shard& shard : flat) {
    std::vector<int64_t>& dims = shard.outputs.at(name).dims;
    dims[1] *= dims[0];
    dims.erase(dims.begin());
  }
  const int64_t tokens = point.rows * point.length;
  oracle::Tensor chunks = Stitched(flat, name, 0, tokens);
  if (name != "padding_mask" && chunks.bytes != RowsAsSent(sample, name, point).bytes) {
    return absl::StrCat(name, " of the oracle is not what was sent");
  }
  chunks.dims.front() /= layout.num_chunks();
  chunks.dims.insert(chunks.dims.begin(), layout.num_chunks());
  const auto trimmed = GatherStream(shards, name, {.trim = true}, TheExecutor(), ThePool());
  if (!absl::IsFailedPrecondition(trimmed.status())) {
    return absl::StrCat("trim of chunks of ", name, ": ", trimmed.status().ToString());
  }
  return GatherStreamFault(shards, name, /*trim=*/false, chunks);
}

}  // namespace

std::string GatherFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                        const Shards& shards) {
  const auto expected =
      layout.restated ? layout.Expected(sample, point) : std::vector<oracle::Shard>();
  const Shards backwards(shards.rbegin(), shards.rend());
  for (size_t i = 0; i < shards.front().cuts.size(); ++i) {
    const std::string& name = shards.front().batch.tensors[i].spec.name;
    const StreamCut& cut = shards.front().cuts[i];
    std::string fault;
    if (cut.extent == Extent::kLocal && layout.num_chunks() > 1) {
      fault = ChunksFault(layout, expected, sample, point, shards, name);
    } else {
      const Wanted wanted = layout.packed ? OfDocuments(expected, sample, point, name, cut)
                                          : OfRows(expected, sample, name, cut);
      if (wanted.padded) fault = GatherStreamFault(shards, name, /*trim=*/false, *wanted.padded);
      if (fault.empty() && wanted.trimmed) {
        fault = GatherStreamFault(backwards, name, /*trim=*/true, *wanted.trimmed);
      }
    }
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace cpshard::property
