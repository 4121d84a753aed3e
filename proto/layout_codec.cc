#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/types.pb.h"
#include "proto/codec.h"

namespace cpshard {
namespace {

void EncodeArray(const IntArray& array, v1::Int64Array* message) {
  message->mutable_shape()->Add(array.shape.begin(), array.shape.end());
  message->mutable_values()->Add(array.values.begin(), array.values.end());
}

absl::StatusOr<IntArray> DecodeArray(const v1::Int64Array& message, absl::string_view name) {
  int64_t count = 1;
  for (int64_t dim : message.shape()) {
    if (dim < 0) return absl::InvalidArgumentError(absl::StrCat(name, " has a negative dim ", dim));
    CPSHARD_ASSIGN_OR_RETURN(count, CheckedMultiply(count, dim, name));
  }
  if (count != message.values_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", message.values_size(), " values for a shape of ", count));
  }
  return IntArray{{message.shape().begin(), message.shape().end()},
                  {message.values().begin(), message.values().end()}};
}

}  // namespace

void EncodeLayout(const ShardLayout& layout, v1::ShardLayout* message) {
  if (layout.local_token_global_indices) {
    EncodeArray(*layout.local_token_global_indices, message->mutable_local_token_global_indices());
  }
  if (layout.original_seq_len) message->set_original_seq_len(*layout.original_seq_len);
  if (layout.padded_seq_len) message->set_padded_seq_len(*layout.padded_seq_len);
  if (layout.input_row_shape) {
    EncodeArray(*layout.input_row_shape, message->mutable_input_row_shape());
  }
  if (layout.input_token_stream_positions) {
    EncodeArray(*layout.input_token_stream_positions,
                message->mutable_input_token_stream_positions());
  }
  message->set_cp_rank(layout.cp_rank);
  message->set_cp_size(layout.cp_size);
  message->set_batch_digest(layout.batch_digest);
  for (const Run& run : layout.runs) {
    v1::Run* to = message->add_runs();
    to->set_source(run.source);
    to->set_length(run.length);
  }
}

absl::StatusOr<ShardLayout> DecodeLayout(const v1::ShardLayout& message) {
  ShardLayout layout;
  if (message.has_local_token_global_indices()) {
    CPSHARD_ASSIGN_OR_RETURN(
        layout.local_token_global_indices,
        DecodeArray(message.local_token_global_indices(), "local_token_global_indices"));
  }
  if (message.has_original_seq_len()) layout.original_seq_len = message.original_seq_len();
  if (message.has_padded_seq_len()) layout.padded_seq_len = message.padded_seq_len();
  if (message.has_input_row_shape()) {
    CPSHARD_ASSIGN_OR_RETURN(layout.input_row_shape,
                             DecodeArray(message.input_row_shape(), "input_row_shape"));
  }
  if (message.has_input_token_stream_positions()) {
    CPSHARD_ASSIGN_OR_RETURN(
        layout.input_token_stream_positions,
        DecodeArray(message.input_token_stream_positions(), "input_token_stream_positions"));
  }
  layout.cp_rank = message.cp_rank();
  layout.cp_size = message.cp_size();
  if (layout.cp_rank >= layout.cp_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a layout has cp_rank ", layout.cp_rank, " of cp_size ", layout.cp_size));
  }
  layout.batch_digest = message.batch_digest();
  for (const v1::Run& run : message.runs()) layout.runs.push_back({run.source(), run.length()});
  return layout;
}

}  // namespace cpshard
