#include "tests/conformance/index_maps.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"

namespace cpshard::conformance {
namespace {

using PartitionFn = absl::StatusOr<std::vector<IndexMap>> (*)(int64_t padded_len, int64_t ranks);

struct NamedPartition {
  absl::string_view name;
  PartitionFn make;
};

absl::StatusOr<std::vector<IndexMap>> Whole(int64_t padded_len, int64_t ranks) {
  return WholePartition(padded_len, ranks);
}

constexpr NamedPartition kPartitions[] = {
    {"identity", Whole},
    {"contiguous", ContiguousPartition},
    {"round_robin", RoundRobinPartition},
};

Tensor IndicesOf(const IndexMap& map) {
  auto values = std::make_shared<std::vector<int64_t>>(map.Expand());
  auto* data = reinterpret_cast<std::byte*>(values->data());
  const size_t size = values->size() * sizeof(int64_t);
  return Tensor{{"indices", DType::kI64, {map.size()}}, Buffer(std::move(values), data, size)};
}

Answer Call(PartitionFn make, int64_t padded_len, int64_t ranks) {
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<IndexMap> partition, make(padded_len, ranks));
  std::vector<RankAnswer> answers(partition.size());
  for (size_t rank = 0; rank < partition.size(); ++rank) {
    answers[rank].batch.tensors.push_back(IndicesOf(partition[rank]));
  }
  return answers;
}

}  // namespace

absl::StatusOr<LibraryCall> ReadIndexMap(const Input& input, Args& args) {
  constexpr int64_t kMaxRanks = 4096;
  constexpr int64_t kMaxColumns = int64_t{1} << 24;  // of all ranks together
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded_len, args.TakeInt("padded_seq_len"));
  const int64_t ranks = input.cp_size.value_or(1);
  if (padded_len < 0 || ranks < 1 || ranks > kMaxRanks || padded_len > kMaxColumns / ranks) {
    return absl::InvalidArgumentError(absl::StrCat("padded_seq_len ", padded_len, " and cp_size ",
                                                   ranks, " are beyond what this runner expands"));
  }
  const Json* map = args.Take("map");
  for (const NamedPartition& partition : kPartitions) {
    if (map == nullptr || *map != std::string(partition.name)) continue;
    return LibraryCall(
        [make = partition.make, padded_len, ranks] { return Call(make, padded_len, ranks); });
  }
  return absl::InvalidArgumentError("args.map must be identity, contiguous or round_robin");
}

}  // namespace cpshard::conformance
