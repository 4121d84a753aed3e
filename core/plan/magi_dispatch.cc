#include "core/plan/magi_dispatch.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// 1 + 2 + ... + n.
int64_t Triangle(int64_t n) { return n * (n + 1) / 2; }

absl::Status CheckArguments(absl::Span<const int64_t> documents, int64_t total, int64_t chunk_size,
                            int64_t min_chunks_per_rank) {
  constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
  if (chunk_size < 1 || min_chunks_per_rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat("magi: chunk_size ", chunk_size,
                                                   " and min_chunks_per_rank ", min_chunks_per_rank,
                                                   " must be 1 at least"));
  }
  if (total < 1 || total > kInt32Max) {
    return absl::InvalidArgumentError(
        absl::StrCat("magi: a stream of ", total, " tokens; it must have 1 ... ", kInt32Max));
  }
  int64_t sum = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (documents[i] < 0 || documents[i] > total - sum) {
      return absl::InvalidArgumentError(absl::StrCat("magi: document ", i, " has length ",
                                                     documents[i], " where ", total - sum, " of ",
                                                     total, " tokens are left"));
    }
    sum += documents[i];
  }
  if (sum == total) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("magi: the documents sum to ", sum,
                                                 ", not to the ", total,
                                                 " tokens of the stream; pad the last one"));
}

std::vector<IndexMap> PartitionOf(const std::vector<std::vector<int64_t>>& chunks_of_rank,
                                  int64_t chunk_size) {
  std::vector<IndexMap> partition;
  for (const std::vector<int64_t>& chunks : chunks_of_rank) {
    IndexMap local;
    for (const int64_t chunk : chunks) local.Append({chunk * chunk_size, chunk_size});
    partition.push_back(std::move(local));
  }
  return partition;
}

}  // namespace

std::vector<int64_t> CausalAreas(absl::Span<const int64_t> documents, int64_t chunk_size,
                                 int64_t num_chunks) {
  std::vector<int64_t> areas(num_chunks, 0);
  int64_t at = 0;  // column
  for (const int64_t document : documents) {
    for (int64_t offset = 0; offset < document;) {
      const int64_t chunk = at / chunk_size;
      const int64_t take = std::min(document - offset, (chunk + 1) * chunk_size - at);
      areas[chunk] += Triangle(offset + take) - Triangle(offset);
      offset += take;
      at += take;
    }
  }
  return areas;
}

std::vector<std::vector<int64_t>> DealChunks(absl::Span<const int64_t> areas, int64_t ranks) {
  std::vector<int64_t> order(areas.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return areas[a] != areas[b] ? areas[a] > areas[b] : a > b;
  });
  const size_t room = areas.size() / ranks;
  using Load = std::pair<int64_t, int64_t>;  // load, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> least;
  for (int64_t rank = 0; rank < ranks; ++rank) least.push({0, rank});
  std::vector<std::vector<int64_t>> dealt(ranks);
  for (const int64_t chunk : order) {
    while (dealt[least.top().second].size() == room) least.pop();
    const auto [load, rank] = least.top();
    least.pop();
    dealt[rank].push_back(chunk);
    least.push({load + areas[chunk], rank});
  }
  for (std::vector<int64_t>& chunks : dealt) std::sort(chunks.begin(), chunks.end());
  return dealt;
}

absl::StatusOr<MagiDispatch> DispatchCausal(absl::Span<const int64_t> documents, int64_t total,
                                            int64_t cp_size, int64_t chunk_size,
                                            int64_t min_chunks_per_rank) {
  CPSHARD_RETURN_IF_ERROR(CheckArguments(documents, total, chunk_size, min_chunks_per_rank));
  MagiDispatch dispatch;
  const int64_t pieces =
      min_chunks_per_rank > total ? total : std::min(total, min_chunks_per_rank * cp_size);
  const int64_t k = std::min((total + pieces - 1) / pieces, chunk_size);
  dispatch.chunk_size = k;
  const int64_t own_chunks = (total + k - 1) / k;
  if (own_chunks < cp_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("magi: ", total, " tokens are ", own_chunks, " chunks of ", k,
                     ", fewer than cp_size ", cp_size, "; send more tokens, or lower cp_size"));
  }
  if (own_chunks > kMaxMagiChunks) {
    return absl::InvalidArgumentError(absl::StrCat("magi: ", total, " tokens are ", own_chunks,
                                                   " chunks of ", k, "; at most ", kMaxMagiChunks,
                                                   ": raise chunk_size"));
  }
  const int64_t granule = k * cp_size;
  dispatch.pad_size = (granule - total % granule) % granule;
  const int64_t padded = total + dispatch.pad_size;
  if (cp_size == 1) {  // one chunk, of everything
    dispatch.chunks_of_rank = {{0}};
    dispatch.partition = {IndexMap::Identity(padded)};
    return dispatch;
  }
  dispatch.chunks_of_rank = DealChunks(CausalAreas(documents, k, padded / k), cp_size);
  dispatch.partition = PartitionOf(dispatch.chunks_of_rank, k);
  return dispatch;
}

void ReportMagiRows(RowShape rows, int64_t padded_len, Report& report) {
  if (padded_len == rows.rows * rows.columns) {
    report.input_row_shape = rows;
  } else if (rows.rows == 1 && padded_len >= rows.columns) {
    report.original_seq_len = rows.columns;
  }
}

}  // namespace cpshard
