// The only code that turns messages into values and back. Every function that reads what a peer
// sent validates it first: nothing is allocated for a message that is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/batch/batch.h"
#include "core/exec/executor.h"
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"
#include "core/plan/shard_layout.h"
#include "core/plan/spec.h"
#include "proto/options.h"
#include "proto/replies.h"

namespace cpshard {

namespace v1 {
class GetServerInfoReply;
class PlanLayoutReply;
class PlanLayoutRequest;
class ShardBatchReply;
class ShardBatchRequest;
class ShardLayout;
}  // namespace v1

// A ShardBatch or PlanLayout request, read and validated.
struct Request {
  Options options;
  std::optional<int64_t> cp_size;
  std::vector<int64_t> ranks;  // resolved: never empty
  BatchSpec spec;
  Batch batch;  // tensors are windows on the message's body, which must outlive it
  ExecutorKind executor = ExecutorKind::kAuto;
};

struct PlanRequest {
  Request request;
  PlanQuestions questions;
};

// To be asked before a request is parsed, for it may take much more memory than it has bytes.
// ResourceExhausted, naming ShardBatches: so many bytes are over kMaxUnaryBytes.
absl::Status CheckRequestBytes(int64_t bytes);

// InvalidArgument: an unknown dtype, a scalar without a value, an entry that is both; nbytes that
// disagree with dims; an offset that is not a multiple of 64, leaves the body or overlaps another
// tensor; an executor that is none; what ValidateSpec and ResolveRanks refuse.
// ResourceExhausted: the message is over kMaxUnaryBytes.
absl::StatusOr<Request> DecodeShardBatchRequest(const v1::ShardBatchRequest& message,
                                                const Limits& limits);

// The same for PlanLayout. A tensor with nbytes 0 is a spec alone: it is in `spec`, and in `batch`
// only if it has no elements.
absl::StatusOr<PlanRequest> DecodePlanLayoutRequest(const v1::PlanLayoutRequest& message,
                                                    const Limits& limits);

// ResourceExhausted, naming ShardBatches: the request would be over kMaxUnaryBytes (both encoders).
// InvalidArgument: a cp_size or rank that has no place on the wire (both encoders).
absl::Status EncodeShardBatchRequest(const Batch& batch, const Options& options,
                                     std::optional<int64_t> cp_size,
                                     absl::Span<const int64_t> ranks, ExecutorKind executor,
                                     v1::ShardBatchRequest* message);

// Tensors named in `values` travel with their bytes, where the batch has them; so do those in
// `wanted`, in their order, as long as the request stays within kMaxUnaryBytes; others as specs.
// Returns the wanted ones that were left out although the batch has their bytes.
absl::StatusOr<std::vector<std::string>> EncodePlanLayoutRequest(
    const Batch& batch, const Options& options, std::optional<int64_t> cp_size,
    absl::Span<const int64_t> ranks, absl::Span<const std::string> values,
    absl::Span<const std::string> wanted, const PlanQuestions& questions,
    v1::PlanLayoutRequest* message);

// Shards straight into the body of the reply. The size is checked before the body is allocated, and
// most of it before the layouts are made.
// ResourceExhausted, naming ShardBatches: the reply would be over kMaxUnaryBytes.
absl::Status WriteShardBatchReply(const ShardPlan& plan, const Batch& batch,
                                  absl::Span<const int64_t> ranks, Executor& executor,
                                  BufferPool& pool, v1::ShardBatchReply* message);

// Takes the body out of the message; the tensors are windows on it.
// InvalidArgument: what DecodeShardBatchRequest refuses, seen from the other side.
absl::StatusOr<ShardResult> DecodeShardBatchReply(v1::ShardBatchReply* message);

// To be asked before the plan is summarized. ResourceExhausted: the reply will be over
// kMaxUnaryBytes, as the layouts alone are.
absl::Status CheckPlanLayoutReply(const ShardPlan& plan, absl::Span<const int64_t> ranks);

// Documents that would not fit are left out, with a notice. ResourceExhausted: the reply would be
// over kMaxUnaryBytes without them.
absl::Status EncodePlanLayoutReply(const PlanSummary& summary, v1::PlanLayoutReply* message);
absl::StatusOr<PlanSummary> DecodePlanLayoutReply(const v1::PlanLayoutReply& message);

void EncodeServerInfo(const ServerInfo& info, v1::GetServerInfoReply* message);
ServerInfo DecodeServerInfo(const v1::GetServerInfoReply& message);

void EncodeLayout(const ShardLayout& layout, v1::ShardLayout* message);
// InvalidArgument: a cp_rank that is not below cp_size; array shapes that disagree with values.
absl::StatusOr<ShardLayout> DecodeLayout(const v1::ShardLayout& message);

}  // namespace cpshard
