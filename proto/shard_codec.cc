#include "proto/shard_codec.h"

#include <limits>
#include <utility>

#include "core/plan/status_macros.h"
#include "proto/codec.h"
#include "proto/entry_codec.h"
#include "proto/totals_codec.h"

namespace cpshard {

void EncodeNotices(const std::vector<Notice>& notices,
                   google::protobuf::RepeatedPtrField<v1::Notice>* messages) {
  for (const Notice& notice : notices) {
    v1::Notice* message = messages->Add();
    message->set_code(notice.code);
    message->set_text(notice.text);
  }
}

std::vector<Notice> DecodeNotices(const google::protobuf::RepeatedPtrField<v1::Notice>& messages) {
  std::vector<Notice> notices;
  for (const v1::Notice& message : messages) notices.push_back({message.code(), message.text()});
  return notices;
}

void EncodeOutput(const TensorSpec& spec, const StreamCut& cut, int64_t offset, v1::Entry* entry) {
  EncodeSpec(spec, entry);
  EncodeCut(cut, entry);
  entry->set_offset(offset);
  entry->set_nbytes(NumBytes(spec));
}

Limits ReplyLimits() {
  return {.max_tensors = 1 << 20,
          .max_dims = 1 << 10,
          .max_name_bytes = kMaxMessageBytes,
          .max_ranks = std::numeric_limits<uint32_t>::max(),
          .max_batch_bytes = int64_t{1} << 40};
}

absl::StatusOr<RankShard> DecodeShard(const v1::Shard& shard, const Buffer& body) {
  RankShard rank;
  CPSHARD_ASSIGN_OR_RETURN(rank.layout, DecodeLayout(shard.layout()));
  CPSHARD_ASSIGN_OR_RETURN(const BatchSpec spec, DecodeSpecs(shard.entries()));
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(spec, ReplyLimits()));
  CPSHARD_ASSIGN_OR_RETURN(rank.batch, DecodeTensors(shard.entries(), spec, body, Sharing::kAllowed,
                                                     /*specs_alone=*/false));
  if (shard.has_load()) rank.load = DecodeLoad(shard.load());
  for (const v1::Entry& entry : shard.entries()) {
    if (entry.has_scalar()) continue;
    CPSHARD_ASSIGN_OR_RETURN(const StreamCut cut, DecodeCut(entry));
    rank.cuts.push_back(cut);
  }
  return rank;
}

}  // namespace cpshard
