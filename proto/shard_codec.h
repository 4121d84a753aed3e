// Shards and notices as all replies carry them. Used inside proto/ only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/shard.h"
#include "cpshard/v1/service.pb.h"

namespace cpshard {

void EncodeNotices(const std::vector<Notice>& notices,
                   google::protobuf::RepeatedPtrField<v1::Notice>* messages);
std::vector<Notice> DecodeNotices(const google::protobuf::RepeatedPtrField<v1::Notice>& messages);

// The entry of a stream as a rank receives it.
void EncodeOutput(const TensorSpec& spec, const StreamCut& cut, int64_t offset, v1::Entry* entry);

// What a server may send: its limits are its own, and it may emit streams beside the caller's. Only
// sizes that cannot be are refused.
Limits ReplyLimits();

// A shard whose tensors are windows on `body`. InvalidArgument: a layout, spec, place or cut that
// cannot be.
absl::StatusOr<RankShard> DecodeShard(const v1::Shard& shard, const Buffer& body);

}  // namespace cpshard
