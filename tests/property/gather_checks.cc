#include "absl/strings/str_cat.h"
#include "core/exec/gather.h"
#include "core/oracle/tensors.h"
#include "core/oracle/values.h"
#include "tests/property/checks.h"
#include "tests/property/stitching.h"

namespace cpshard::property {
namespace {

// What comes back of a stream; nullopt = nothing to compare with.
struct Wanted {
  std::optional<oracle::Tensor> padded, trimmed;
};

Wanted OfRows(const std::vector<oracle::Shard>& expected, const std::string& name,
              const StreamCut& cut) {
  const oracle::Shard& first = expected.front();
  if (cut.extent != Extent::kLocal) return {first.outputs.at(name), first.outputs.at(name)};
  return {.padded = Stitched(expected, name, cut.seq_axis, *first.padded_seq_len),
          .trimmed = Stitched(expected, name, cut.seq_axis, *first.original_seq_len)};
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
  oracle::Tensor chunks = StitchedChunks(expected, name, point.rows * point.length);
  if (name != "padding_mask" && chunks.bytes != RowsAsSent(sample, name, point).bytes) {
    return absl::StrCat(name, " of the oracle is not what was sent");
  }
  chunks.dims.front() /= layout.num_chunks;
  chunks.dims.insert(chunks.dims.begin(), layout.num_chunks);
  const auto trimmed = GatherStream(shards, name, {.trim = true}, TheExecutor(), ThePool());
  if (!absl::IsFailedPrecondition(trimmed.status())) {
    return absl::StrCat("trim of chunks of ", name, ": ", trimmed.status().ToString());
  }
  return GatherStreamFault(shards, name, /*trim=*/false, chunks);
}

}  // namespace

std::string GatherFault(const LayoutCase& layout, const Sample& sample, const Point& point,
                        const Shards& shards) {
  if (!layout.restated) return "";
  const auto expected = layout.Expected(sample, point);
  if (expected.empty()) return "";  // refused: that is for others to find
  const Shards backwards(shards.rbegin(), shards.rend());
  for (size_t i = 0; i < shards.front().cuts.size(); ++i) {
    const std::string& name = shards.front().batch.tensors[i].spec.name;
    const StreamCut& cut = shards.front().cuts[i];
    if (name.starts_with(kDeepStack)) continue;  // no tokens
    std::string fault;
    if (cut.extent == Extent::kLocal && layout.num_chunks > 1) {
      fault = ChunksFault(layout, expected, sample, point, shards, name);
    } else {
      const Wanted wanted = layout.packed ? OfDocuments(expected, sample, point, name, cut)
                                          : OfRows(expected, name, cut);
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
