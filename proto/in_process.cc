#include "proto/in_process.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/exec/shard.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/entry_codec.h"
#include "proto/head_codec.h"
#include "proto/shard_codec.h"
#include "proto/totals_codec.h"

namespace cpshard {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

void WriteShape(const IntArray& array, v1::Int64Array* message) {
  message->mutable_shape()->Add(array.shape.begin(), array.shape.end());
}

void WriteLayout(const ShardLayout& layout, Arrays arrays, v1::ShardLayout* message) {
  if (arrays == Arrays::kValues) return EncodeLayout(layout, message);
  ShardLayout rest;  // what is no array of tokens
  rest.original_seq_len = layout.original_seq_len;
  rest.padded_seq_len = layout.padded_seq_len;
  rest.input_row_shape = layout.input_row_shape;
  rest.cp_rank = layout.cp_rank;
  rest.cp_size = layout.cp_size;
  rest.batch_digest = layout.batch_digest;
  EncodeLayout(rest, message);
  if (layout.local_token_global_indices) {
    WriteShape(*layout.local_token_global_indices, message->mutable_local_token_global_indices());
  }
  if (layout.input_token_stream_positions) {
    WriteShape(*layout.input_token_stream_positions,
               message->mutable_input_token_stream_positions());
  }
}

template <typename Message>
absl::StatusOr<std::string> Serialize(const Message& message) {
  const auto size = static_cast<int64_t>(message.ByteSizeLong());
  if (size <= kMaxInt) return message.SerializeAsString();
  return absl::ResourceExhaustedError(
      absl::StrCat("a message of ", size, " bytes; ask for fewer ranks, or without the arrays"));
}

}  // namespace

absl::StatusOr<Request> ReadPlanRequest(absl::string_view bytes, const Limits& limits) {
  v1::PlanLayoutRequest message;
  if (static_cast<int64_t>(bytes.size()) > kMaxInt ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", bytes.size(), " bytes of the request are no PlanLayoutRequest"));
  }
  Request request;
  CPSHARD_RETURN_IF_ERROR(DecodeHead(message, limits, &request));
  request.batch.scalars = request.spec.scalars;
  return request;
}

absl::StatusOr<std::string> WritePlanReply(PlanSummary summary, Arrays arrays) {
  const std::vector<ShardLayout> layouts = std::exchange(summary.layouts, {});
  v1::PlanLayoutReply message;
  CPSHARD_RETURN_IF_ERROR(EncodePlanLayoutReply(summary, &message));
  for (const ShardLayout& layout : layouts) {
    WriteLayout(layout, arrays, message.add_layouts());
  }
  return Serialize(message);
}

absl::StatusOr<std::string> WriteShard(const ShardPlan& plan, const ShardLayout& layout,
                                       const std::optional<RankLoad>& load, Arrays arrays) {
  v1::Shard message;
  WriteLayout(layout, arrays, message.mutable_layout());
  for (const StreamPlan& stream : plan.streams) {
    EncodeOutput(OutputSpec(plan, stream, layout.cp_rank), CutOf(plan, stream), /*offset=*/0,
                 message.add_entries());
  }
  for (const ScalarEntry& scalar : ScalarsOf(plan, layout.cp_rank)) {
    EncodeScalar(scalar, message.add_entries());
  }
  if (load) EncodeLoad(*load, message.mutable_load());
  return Serialize(message);
}

}  // namespace cpshard
