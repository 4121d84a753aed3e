#include "tests/conformance/index_maps.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/values.h"

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

Answer AnswerOf(const absl::StatusOr<std::vector<IndexMap>>& partition, DType dtype) {
  CPSHARD_RETURN_IF_ERROR(partition.status());
  std::vector<RankAnswer> answers(partition->size());
  for (size_t rank = 0; rank < partition->size(); ++rank) {
    const IndexMap& map = (*partition)[rank];
    answers[rank].batch.tensors.push_back(IntTensor("indices", dtype, {map.size()}, map.Expand()));
  }
  return answers;
}

}  // namespace

absl::StatusOr<LibraryCall> ReadIndexMap(const Input& input, Args& args) {
  CPSHARD_ASSIGN_OR_RETURN(const int64_t padded_len, args.TakeInt("padded_seq_len"));
  if (padded_len < 0) return absl::InvalidArgumentError("args.padded_seq_len is negative");
  const int64_t ranks = input.cp_size.value_or(1);
  CPSHARD_RETURN_IF_ERROR(CheckExpandable("padded_seq_len", padded_len, ranks));
  const Json* map = args.Take("map");
  for (const NamedPartition& partition : kPartitions) {
    if (map == nullptr || *map != std::string(partition.name)) continue;
    return LibraryCall([make = partition.make, padded_len, ranks](Executor&) {
      return AnswerOf(make(padded_len, ranks), DType::kI64);
    });
  }
  return absl::InvalidArgumentError("args.map must be identity, contiguous or round_robin");
}

absl::StatusOr<LibraryCall> ReadTeIndexMap(const Input& input, Args& args) {
  const Json* list = args.Take("cu_seqlens_padded");
  std::optional<std::vector<int64_t>> boundaries;
  if (list != nullptr) boundaries = ReadInts(*list);
  if (!boundaries) {
    return absl::InvalidArgumentError("args.cu_seqlens_padded must be a list of integers");
  }
  CPSHARD_ASSIGN_OR_RETURN(const int64_t total_tokens, args.TakeInt("total_tokens"));
  const int64_t ranks = input.cp_size.value_or(1);
  CPSHARD_RETURN_IF_ERROR(CheckExpandable("total_tokens", total_tokens, ranks));
  return LibraryCall([boundaries = *std::move(boundaries), total_tokens, ranks](Executor&) {
    return AnswerOf(TePartition(boundaries, total_tokens, ranks), DType::kI32);
  });
}

}  // namespace cpshard::conformance
