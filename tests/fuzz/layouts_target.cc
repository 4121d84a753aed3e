#include <algorithm>
#include <numeric>
#include <vector>

#include "core/exec/gather.h"
#include "proto/json.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

// Slots of a rank as its runs tell, where they are few; else a guess that does not fit.
int64_t LocalLen(const ShardLayout& layout) {
  int64_t length = 0;
  for (const Run& run : layout.runs) {
    if (run.length < 0 || run.length > 64) return 3;
    length += run.length;
  }
  return std::min<int64_t>(length, 4096);
}

// A tensor per rank, its local axis as long as the layout says - of so many chunks, stacked on the
// axis before it.
std::vector<Tensor> PartsFor(const std::vector<ShardLayout>& layouts, std::vector<int64_t> dims,
                             int axis, BufferPool& pool, int64_t chunks = 1) {
  std::vector<Tensor> parts;
  for (const ShardLayout& layout : layouts) {
    dims[axis] = LocalLen(layout) / chunks;
    Tensor part{{"x", DType::kI16, dims}, {}};
    part.buffer = *pool.Allocate(NumBytes(part.spec));
    for (size_t i = 0; i < part.buffer.size(); ++i) {
      part.buffer.data()[i] = static_cast<std::byte>(i);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void GatherAll(const std::vector<ShardLayout>& layouts, const std::vector<Tensor>& parts,
               int64_t axis, Executor& executor, BufferPool& pool) {
  for (bool trim : {false, true}) {
    for (bool with_fill : {false, true}) {
      GatherOptions options{.seq_axis = axis, .trim = trim};
      if (with_fill) options.fill = Number(int64_t{-7});
      const auto full = Gather(layouts, parts, options, executor, pool);
      if (!full.ok()) continue;
      Must(full->buffer.size() == static_cast<size_t>(NumBytes(full->spec)), "size of a gather");
      for (int64_t dim : full->spec.dims) {
        Must(dim >= 0 && (full->buffer.size() == 0 || dim <= NumElements(full->spec)),
             "shape of a gather");
      }
      // Every byte is written: a sanitizer sees those that are not there.
      (void)std::accumulate(full->bytes().begin(), full->bytes().end(), 0,
                            [](int sum, std::byte b) { return sum + std::to_integer<int>(b); });
    }
  }
}

}  // namespace

void LayoutsTarget(absl::string_view input) {
  static auto& pool = *new BufferPool({.max_bytes = 64 << 20, .max_idle_bytes = 1 << 20});
  static auto& executor = *MakeCpuExecutor().release();
  const auto layouts = LayoutsFromJson(input);
  if (!layouts.ok()) return;
  const auto again = LayoutsFromJson(LayoutsToJson(*layouts));
  Must(again.ok() && *again == *layouts, "layouts survive their JSON form");
  if (layouts->size() > 64) return;
  GatherAll(*layouts, PartsFor(*layouts, {2, 0}, 1, pool), 1, executor, pool);
  GatherAll(*layouts, PartsFor(*layouts, {1, 0, 3}, 1, pool), -2, executor, pool);
  GatherAll(*layouts, PartsFor(*layouts, {0}, 0, pool), 0, executor, pool);
  GatherAll(*layouts, PartsFor(*layouts, {2, 0}, 1, pool, 2), 1, executor, pool);
}

}  // namespace cpshard::fuzz
