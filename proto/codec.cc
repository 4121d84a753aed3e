#include "proto/codec.h"

#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/entry_codec.h"

namespace cpshard {
namespace {

// What the body's tag and length may add to a message: never more than this.
constexpr int64_t kBodyHeader = 16;

absl::Status TooLarge(absl::string_view what, int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the ", what, " of ", bytes, " bytes is over the ", kMaxUnaryBytes,
                   " of a unary call; send large batches through ShardBatches"));
}

std::optional<int64_t> ToCpSize(bool present, uint32_t value) {
  return present ? std::optional<int64_t>(value) : std::nullopt;
}

// The window does not own the body: it is the message's, which outlives the request.
Buffer BodyOf(const std::string& body) {
  auto* data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(body.data()));
  return Buffer(nullptr, data, body.size());
}

// What a server may send: its limits are its own, and it may emit streams beside the caller's. Only
// sizes that cannot be are refused.
Limits ReplyLimits() {
  return {.max_tensors = 1 << 20,
          .max_dims = 1 << 10,
          .max_name_bytes = kMaxMessageBytes,
          .max_ranks = std::numeric_limits<uint32_t>::max(),
          .max_batch_bytes = int64_t{1} << 40};
}

template <typename Message>
absl::StatusOr<Request> DecodeRequest(const Message& message, const Limits& limits,
                                      bool specs_alone) {
  if (static_cast<int64_t>(message.ByteSizeLong()) > kMaxUnaryBytes) {
    return TooLarge("request", message.ByteSizeLong());
  }
  Request request{Options(message.options())};
  request.cp_size = ToCpSize(message.has_cp_size(), message.cp_size());
  CPSHARD_ASSIGN_OR_RETURN(request.spec, DecodeSpecs(message.entries()));
  request.spec.cp_size = request.cp_size;
  CPSHARD_RETURN_IF_ERROR(ValidateSpec(request.spec, limits));
  const std::vector<int64_t> asked(message.ranks().begin(), message.ranks().end());
  CPSHARD_ASSIGN_OR_RETURN(request.ranks, ResolveRanks(asked, request.spec.num_ranks()));
  CPSHARD_ASSIGN_OR_RETURN(request.batch,
                           DecodeTensors(message.entries(), request.spec, BodyOf(message.body()),
                                         Sharing::kNone, specs_alone));
  return request;
}

// The wire has 32 bits for it; what does not fit is refused here, not cut off.
absl::StatusOr<uint32_t> ToWire(absl::string_view what, int64_t value) {
  if (value >= 0 && value <= int64_t{std::numeric_limits<uint32_t>::max()}) {
    return static_cast<uint32_t>(value);
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " ", value, " is out of range"));
}

template <typename Message>
absl::Status EncodeHead(const Options& options, std::optional<int64_t> cp_size,
                        absl::Span<const int64_t> ranks, Message* message) {
  *message->mutable_options() = options.message();
  if (cp_size) {
    CPSHARD_ASSIGN_OR_RETURN(const uint32_t size, ToWire("cp_size", *cp_size));
    message->set_cp_size(size);
  }
  for (int64_t rank : ranks) {
    CPSHARD_ASSIGN_OR_RETURN(const uint32_t value, ToWire("rank", rank));
    message->add_ranks(value);
  }
  return absl::OkStatus();
}

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

// Calls fn(stream index, rank index, spec, offset, own bytes) for every output in the order of the
// body, `own bytes` being false where it shares those of the rank before. Returns the body's size.
template <typename Fn>
int64_t ForOutputs(const ShardPlan& plan, absl::Span<const int64_t> ranks, Fn fn) {
  int64_t end = 0;
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    const StreamPlan& stream = plan.streams[s];
    int64_t offset = 0;
    for (size_t k = 0; k < ranks.size(); ++k) {
      const TensorSpec spec = OutputSpec(plan, stream, ranks[k]);
      const bool own_bytes = stream.extent == Extent::kLocal || k == 0;
      if (own_bytes) {
        offset = end;
        end = AlignBody(end + NumBytes(spec));
      }
      fn(s, k, spec, offset, own_bytes);
    }
  }
  return end;
}

// A lower bound of the reply's size, without building it: the entries of the first rank times the
// ranks, and the body.
int64_t ReplyBound(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  int64_t entries = 0;
  for (const StreamPlan& stream : plan.streams) {
    v1::Entry entry;
    EncodeSpec(OutputSpec(plan, stream, ranks.front()), &entry);
    entries += static_cast<int64_t>(entry.ByteSizeLong());
  }
  for (const ScalarEntry& scalar : plan.scalars) {
    v1::Entry entry;
    EncodeScalar(scalar, &entry);
    entries += static_cast<int64_t>(entry.ByteSizeLong());
  }
  const int64_t body =
      ForOutputs(plan, ranks, [](size_t, size_t, const TensorSpec&, int64_t, bool) {});
  return entries * static_cast<int64_t>(ranks.size()) + body;
}

}  // namespace

absl::StatusOr<Request> DecodeShardBatchRequest(const v1::ShardBatchRequest& message,
                                                const Limits& limits) {
  return DecodeRequest(message, limits, /*specs_alone=*/false);
}

absl::StatusOr<Request> DecodePlanLayoutRequest(const v1::PlanLayoutRequest& message,
                                                const Limits& limits) {
  return DecodeRequest(message, limits, /*specs_alone=*/true);
}

absl::Status EncodeShardBatchRequest(const Batch& batch, const Options& options,
                                     std::optional<int64_t> cp_size,
                                     absl::Span<const int64_t> ranks,
                                     v1::ShardBatchRequest* message) {
  CPSHARD_RETURN_IF_ERROR(EncodeHead(options, cp_size, ranks, message));
  int64_t end = 0;
  for (const Tensor& tensor : batch.tensors) {
    v1::Entry* entry = message->add_entries();
    EncodeSpec(tensor.spec, entry);
    entry->set_offset(end);
    entry->set_nbytes(tensor.buffer.size());
    end = AlignBody(end + static_cast<int64_t>(tensor.buffer.size()));
  }
  for (const ScalarEntry& scalar : batch.scalars) EncodeScalar(scalar, message->add_entries());
  const int64_t total = static_cast<int64_t>(message->ByteSizeLong()) + end + kBodyHeader;
  if (total > kMaxUnaryBytes) return TooLarge("request", total);
  std::string* body = message->mutable_body();
  body->reserve(end);
  for (const Tensor& tensor : batch.tensors) {
    body->append(reinterpret_cast<const char*>(tensor.buffer.data()), tensor.buffer.size());
    body->resize(AlignBody(static_cast<int64_t>(body->size())));
  }
  return absl::OkStatus();
}

absl::Status EncodePlanLayoutRequest(const BatchSpec& spec, const Options& options,
                                     absl::Span<const int64_t> ranks,
                                     v1::PlanLayoutRequest* message) {
  CPSHARD_RETURN_IF_ERROR(EncodeHead(options, spec.cp_size, ranks, message));
  for (const TensorSpec& tensor : spec.tensors) EncodeSpec(tensor, message->add_entries());
  for (const ScalarEntry& scalar : spec.scalars) EncodeScalar(scalar, message->add_entries());
  return absl::OkStatus();
}

absl::Status WriteShardBatchReply(const ShardPlan& plan, const Batch& batch,
                                  absl::Span<const int64_t> ranks, Executor& executor,
                                  BufferPool& pool, v1::ShardBatchReply* message) {
  if (const int64_t bound = ReplyBound(plan, ranks); bound > kMaxUnaryBytes) {
    return TooLarge("reply", bound);
  }
  const uint64_t digest = DigestOf(batch);
  for (int64_t rank : ranks) {
    EncodeLayout(LayoutFor(plan, rank, digest), message->add_shards()->mutable_layout());
  }
  std::vector<int64_t> offsets;  // -1 = nothing to write
  const int64_t end = ForOutputs(
      plan, ranks, [&](size_t s, size_t k, const TensorSpec& spec, int64_t offset, bool own_bytes) {
        offsets.push_back(own_bytes && NumBytes(spec) > 0 ? offset : -1);
        v1::Entry* entry = message->mutable_shards(k)->add_entries();
        EncodeSpec(spec, entry);
        EncodeCut({plan.streams[s].extent, plan.streams[s].axis}, entry);
        entry->set_offset(offset);
        entry->set_nbytes(NumBytes(spec));
      });
  for (size_t k = 0; k < ranks.size(); ++k) {
    for (const ScalarEntry& scalar : plan.scalars) {
      EncodeScalar(scalar, message->mutable_shards(k)->add_entries());
    }
  }
  EncodeNotices(plan.notices, message->mutable_notices());
  const int64_t total = static_cast<int64_t>(message->ByteSizeLong()) + end + kBodyHeader;
  if (total > kMaxUnaryBytes) return TooLarge("reply", total);

  std::string* body = message->mutable_body();
  body->resize(end);
  std::vector<std::byte*> dests;
  for (int64_t offset : offsets) {
    dests.push_back(offset < 0 ? nullptr : reinterpret_cast<std::byte*>(body->data()) + offset);
  }
  return WriteShards(plan, batch, ranks, dests, executor, pool);
}

absl::StatusOr<ShardResult> DecodeShardBatchReply(v1::ShardBatchReply* message) {
  auto owner = std::make_shared<std::string>(std::move(*message->mutable_body()));
  const Buffer body(owner, reinterpret_cast<std::byte*>(owner->data()), owner->size());
  ShardResult result;
  result.notices = DecodeNotices(message->notices());
  for (const v1::Shard& shard : message->shards()) {
    RankShard rank;
    CPSHARD_ASSIGN_OR_RETURN(rank.layout, DecodeLayout(shard.layout()));
    CPSHARD_ASSIGN_OR_RETURN(const BatchSpec spec, DecodeSpecs(shard.entries()));
    CPSHARD_RETURN_IF_ERROR(ValidateSpec(spec, ReplyLimits()));
    CPSHARD_ASSIGN_OR_RETURN(rank.batch, DecodeTensors(shard.entries(), spec, body,
                                                       Sharing::kAllowed, /*specs_alone=*/false));
    for (const v1::Entry& entry : shard.entries()) {
      if (entry.has_scalar()) continue;
      CPSHARD_ASSIGN_OR_RETURN(const StreamCut cut, DecodeCut(entry));
      rank.cuts.push_back(cut);
    }
    result.shards.push_back(std::move(rank));
  }
  return result;
}

absl::Status EncodePlanLayoutReply(const PlanSummary& summary, v1::PlanLayoutReply* message) {
  for (const ShardLayout& layout : summary.layouts) EncodeLayout(layout, message->add_layouts());
  for (const StreamSummary& stream : summary.streams) {
    v1::Entry* entry = message->add_streams();
    EncodeSpec(stream.spec, entry);
    EncodeCut(stream.cut, entry);
  }
  for (const std::string& name : summary.needs) message->add_needs(name);
  message->set_rows(summary.rows);
  message->set_pad_columns(summary.pad_columns);
  message->set_padded_columns(summary.padded_columns);
  message->set_shard_bytes(summary.shard_bytes);
  EncodeNotices(summary.notices, message->mutable_notices());
  const int64_t total = message->ByteSizeLong();
  if (total <= kMaxUnaryBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the layouts of ", summary.layouts.size(), " ranks have ", total,
                   " bytes, over the ", kMaxUnaryBytes, " of a unary call; ask for fewer ranks"));
}

absl::StatusOr<PlanSummary> DecodePlanLayoutReply(const v1::PlanLayoutReply& message) {
  PlanSummary summary;
  for (const v1::ShardLayout& layout : message.layouts()) {
    CPSHARD_ASSIGN_OR_RETURN(ShardLayout decoded, DecodeLayout(layout));
    summary.layouts.push_back(std::move(decoded));
  }
  CPSHARD_ASSIGN_OR_RETURN(BatchSpec spec, DecodeSpecs(message.streams()));
  if (spec.tensors.size() != static_cast<size_t>(message.streams_size())) {
    return absl::InvalidArgumentError("the plan's streams include a scalar");
  }
  for (int i = 0; i < message.streams_size(); ++i) {
    CPSHARD_ASSIGN_OR_RETURN(const StreamCut cut, DecodeCut(message.streams(i)));
    summary.streams.push_back({std::move(spec.tensors[i]), cut});
  }
  summary.needs.assign(message.needs().begin(), message.needs().end());
  summary.rows = message.rows();
  summary.pad_columns = message.pad_columns();
  summary.padded_columns = message.padded_columns();
  summary.shard_bytes = message.shard_bytes();
  summary.notices = DecodeNotices(message.notices());
  return summary;
}

void EncodeServerInfo(const ServerInfo& info, v1::GetServerInfoReply* message) {
  message->set_version(info.version);
  message->set_instance_id(info.instance_id);
  v1::Limits* limits = message->mutable_limits();
  limits->set_max_unary_bytes(kMaxUnaryBytes);
  limits->set_max_message_bytes(kMaxMessageBytes);
  limits->set_max_batch_bytes(info.limits.max_batch_bytes);
  limits->set_max_tensors(info.limits.max_tensors);
  limits->set_max_dims(info.limits.max_dims);
  limits->set_max_name_bytes(info.limits.max_name_bytes);
  limits->set_max_ranks(info.limits.max_ranks);
  for (const std::string& layout : info.layouts) message->add_layouts(layout);
  for (const std::string& capability : info.capabilities) message->add_capabilities(capability);
  message->set_executor(info.executor);
}

ServerInfo DecodeServerInfo(const v1::GetServerInfoReply& message) {
  ServerInfo info;
  info.version = message.version();
  info.instance_id = message.instance_id();
  info.limits.max_batch_bytes = message.limits().max_batch_bytes();
  info.limits.max_tensors = message.limits().max_tensors();
  info.limits.max_dims = message.limits().max_dims();
  info.limits.max_name_bytes = message.limits().max_name_bytes();
  info.limits.max_ranks = message.limits().max_ranks();
  info.layouts.assign(message.layouts().begin(), message.layouts().end());
  info.capabilities.assign(message.capabilities().begin(), message.capabilities().end());
  info.executor = message.executor();
  return info;
}

}  // namespace cpshard
