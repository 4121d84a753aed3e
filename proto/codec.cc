#include "proto/codec.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/entry_codec.h"
#include "proto/executor_codec.h"
#include "proto/head_codec.h"
#include "proto/layout_arrays.h"
#include "proto/shard_codec.h"
#include "proto/totals_codec.h"

namespace cpshard {
namespace {

// What the body's tag and length may add to a message: never more than this.
constexpr int64_t kBodyHeader = 16;
// ... and those of any other message within it.
constexpr int64_t kFieldHeader = 8;

using Bytes = absl::Span<const std::byte>;

absl::Status TooLarge(absl::string_view what, int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the ", what, " of ", bytes, " bytes is over the ", kMaxUnaryBytes,
                   " of a unary call; send large batches through ShardBatches"));
}

// The window does not own the body: it is the message's, which outlives the request.
Buffer BodyOf(const std::string& body) {
  auto* data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(body.data()));
  return Buffer(nullptr, data, body.size());
}

template <typename Message>
absl::StatusOr<Request> DecodeRequest(const Message& message, const Limits& limits,
                                      bool specs_alone) {
  CPSHARD_RETURN_IF_ERROR(CheckRequestBytes(static_cast<int64_t>(message.ByteSizeLong())));
  Request request;
  CPSHARD_RETURN_IF_ERROR(DecodeHead(message, limits, &request));
  CPSHARD_ASSIGN_OR_RETURN(request.batch,
                           DecodeTensors(message.entries(), request.spec, BodyOf(message.body()),
                                         Sharing::kNone, specs_alone));
  return request;
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
        end = AlignUp(end + NumBytes(spec));
      }
      fn(s, k, spec, offset, own_bytes);
    }
  }
  return end;
}

int64_t MinLayoutBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  int64_t bytes = 0;
  for (int64_t rank : ranks) bytes += MinLayoutBytes(plan, rank);
  return bytes;
}

absl::Status LayoutsTooLarge(size_t ranks, int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the layouts of ", ranks, " ranks have ", bytes, " bytes, over the ", kMaxUnaryBytes,
      " of a unary call; ask for fewer ranks, or send the batch through ShardBatches"));
}

// A lower bound of the reply's size, without building it: the entries of a rank without slots times
// the ranks (some may have none), the layouts and the body.
int64_t ReplyBound(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  int64_t entries = 0;
  for (const StreamPlan& stream : plan.streams) {
    TensorSpec output = OutputSpec(plan, stream, ranks.front());
    if (stream.extent == Extent::kLocal) output.dims[OutputAxis(plan, stream)] = 0;
    v1::Entry entry;
    EncodeSpec(output, &entry);
    entries += static_cast<int64_t>(entry.ByteSizeLong());
  }
  for (const ScalarEntry& scalar : ScalarsOf(plan, ranks.front())) {
    v1::Entry entry;
    EncodeScalar(scalar, &entry);
    entries += static_cast<int64_t>(entry.ByteSizeLong());
  }
  const int64_t body =
      ForOutputs(plan, ranks, [](size_t, size_t, const TensorSpec&, int64_t, bool) {});
  return entries * static_cast<int64_t>(ranks.size()) + MinLayoutBytes(plan, ranks) + body;
}

// All of them or none, with a notice: a part of them would look like all.
void EncodeDocuments(const std::vector<DocumentCounts>& documents, int64_t room,
                     v1::PlanLayoutReply* message) {
  for (const DocumentCounts& document : documents) {
    EncodeDocument(document, message->add_documents());
    room -= static_cast<int64_t>(message->documents().rbegin()->ByteSizeLong()) + kFieldHeader;
    if (room >= 0) continue;
    message->clear_documents();
    v1::Notice* notice = message->add_notices();
    notice->set_code("documents_left_out");
    notice->set_text(absl::StrCat("the numbers of each of the ", documents.size(),
                                  " documents do not fit a reply of ", kMaxUnaryBytes, " bytes"));
    return;
  }
}

// The most that an entry takes in a request.
int64_t EntryBytes(const TensorSpec& spec) {
  v1::Entry entry;
  EncodeSpec(spec, &entry);
  entry.set_offset(kMaxUnaryBytes);
  entry.set_nbytes(kMaxUnaryBytes);
  return static_cast<int64_t>(entry.ByteSizeLong()) + kFieldHeader;
}

int64_t EntryBytes(const ScalarEntry& scalar) {
  v1::Entry entry;
  EncodeScalar(scalar, &entry);
  return static_cast<int64_t>(entry.ByteSizeLong()) + kFieldHeader;
}

// The batch's entries; the bytes of those tensors for which with_bytes(tensor) go into the body.
template <typename Message, typename WithBytes>
absl::Status EncodeEntries(const Batch& batch, WithBytes with_bytes, Message* message) {
  std::vector<Bytes> pieces;
  int64_t end = 0;
  for (const Tensor& tensor : batch.tensors) {
    v1::Entry* entry = message->add_entries();
    EncodeSpec(tensor.spec, entry);
    if (!with_bytes(tensor)) continue;
    entry->set_offset(end);
    entry->set_nbytes(tensor.buffer.size());
    pieces.push_back({tensor.buffer.data(), tensor.buffer.size()});
    end = AlignUp(end + static_cast<int64_t>(tensor.buffer.size()));
  }
  for (const ScalarEntry& scalar : batch.scalars) EncodeScalar(scalar, message->add_entries());
  const int64_t total = static_cast<int64_t>(message->ByteSizeLong()) + end + kBodyHeader;
  if (total > kMaxUnaryBytes) return TooLarge("request", total);
  std::string* body = message->mutable_body();
  body->reserve(end);
  for (const Bytes& piece : pieces) {
    body->append(reinterpret_cast<const char*>(piece.data()), piece.size());
    body->resize(AlignUp(static_cast<int64_t>(body->size())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequestBytes(int64_t bytes) {
  return bytes > kMaxUnaryBytes ? TooLarge("request", bytes) : absl::OkStatus();
}

absl::StatusOr<Request> DecodeShardBatchRequest(const v1::ShardBatchRequest& message,
                                                const Limits& limits) {
  CPSHARD_ASSIGN_OR_RETURN(const ExecutorKind executor, DecodeExecutor(message.executor()));
  CPSHARD_ASSIGN_OR_RETURN(Request request, DecodeRequest(message, limits, /*specs_alone=*/false));
  request.executor = executor;
  return request;
}

absl::StatusOr<PlanRequest> DecodePlanLayoutRequest(const v1::PlanLayoutRequest& message,
                                                    const Limits& limits) {
  PlanRequest plan;
  CPSHARD_ASSIGN_OR_RETURN(plan.request, DecodeRequest(message, limits, /*specs_alone=*/true));
  plan.questions.document_lengths.assign(message.document_lengths().begin(),
                                         message.document_lengths().end());
  for (const v1::PlaceQuery& query : message.queries()) {
    CPSHARD_ASSIGN_OR_RETURN(PlaceQuery decoded, DecodeQuery(query));
    plan.questions.queries.push_back(std::move(decoded));
  }
  return plan;
}

absl::Status EncodeShardBatchRequest(const Batch& batch, const Options& options,
                                     std::optional<int64_t> cp_size,
                                     absl::Span<const int64_t> ranks, ExecutorKind executor,
                                     v1::ShardBatchRequest* message) {
  CPSHARD_RETURN_IF_ERROR(EncodeHead(options, cp_size, ranks, message));
  message->set_executor(EncodeExecutor(executor));
  return EncodeEntries(
      batch, [](const Tensor&) { return true; }, message);
}

absl::StatusOr<std::vector<std::string>> EncodePlanLayoutRequest(
    const Batch& batch, const Options& options, std::optional<int64_t> cp_size,
    absl::Span<const int64_t> ranks, absl::Span<const std::string> values,
    absl::Span<const std::string> wanted, const PlanQuestions& questions,
    v1::PlanLayoutRequest* message) {
  CPSHARD_RETURN_IF_ERROR(EncodeHead(options, cp_size, ranks, message));
  message->mutable_document_lengths()->Add(questions.document_lengths.begin(),
                                           questions.document_lengths.end());
  for (const PlaceQuery& query : questions.queries) EncodeQuery(query, message->add_queries());
  const auto has = [](absl::Span<const std::string> names, absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  int64_t room = kMaxUnaryBytes - kBodyHeader - static_cast<int64_t>(message->ByteSizeLong());
  for (const Tensor& tensor : batch.tensors) {
    room -= EntryBytes(tensor.spec);
    if (has(values, tensor.spec.name)) room -= AlignUp(tensor.buffer.size());
  }
  for (const ScalarEntry& scalar : batch.scalars) room -= EntryBytes(scalar);
  std::vector<std::string> sent(values.begin(), values.end()), left_out;
  for (const std::string& name : wanted) {
    const Tensor* tensor = batch.FindTensor(name);
    if (tensor == nullptr || has(sent, name)) continue;
    const auto bytes = static_cast<int64_t>(AlignUp(tensor->buffer.size()));
    (bytes <= room ? sent : left_out).push_back(name);
    if (bytes <= room) room -= bytes;
  }
  CPSHARD_RETURN_IF_ERROR(EncodeEntries(
      batch, [&](const Tensor& tensor) { return has(sent, tensor.spec.name); }, message));
  return left_out;
}

absl::Status WriteShardBatchReply(const ShardPlan& plan, const Batch& batch,
                                  absl::Span<const int64_t> ranks, Executor& executor,
                                  BufferPool& pool, v1::ShardBatchReply* message) {
  if (const int64_t bound = ReplyBound(plan, ranks); bound > kMaxUnaryBytes) {
    return TooLarge("reply", bound);
  }
  LayoutRecords records(plan, DigestOf(batch));
  for (int64_t rank : ranks) {
    EncodeLayout(records.Of(rank), message->add_shards()->mutable_layout());
  }
  std::vector<int64_t> offsets;  // -1 = nothing to write
  const int64_t end = ForOutputs(
      plan, ranks, [&](size_t s, size_t k, const TensorSpec& spec, int64_t offset, bool own_bytes) {
        offsets.push_back(own_bytes && NumBytes(spec) > 0 ? offset : -1);
        v1::Entry* entry = message->mutable_shards(k)->add_entries();
        EncodeOutput(spec, CutOf(plan, plan.streams[s]), offset, entry);
      });
  for (size_t k = 0; k < ranks.size(); ++k) {
    for (const ScalarEntry& scalar : ScalarsOf(plan, ranks[k])) {
      EncodeScalar(scalar, message->mutable_shards(k)->add_entries());
    }
  }
  const BatchReport report =
      ReportOf(InspectBatch(plan, SpecOf(batch, plan.cp_size), batch, Detail::kBatch), ranks);
  for (size_t k = 0; k < report.loads.size(); ++k) {
    EncodeLoad(report.loads[k], message->mutable_shards(k)->mutable_load());
  }
  EncodeTotals(report.totals, message->mutable_totals());
  EncodeNotices(report.notices, message->mutable_notices());
  message->set_executor(std::string(executor.name()));
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
  result.totals = DecodeTotals(message->totals());
  result.executor = message->executor();
  for (const v1::Shard& shard : message->shards()) {
    CPSHARD_ASSIGN_OR_RETURN(RankShard rank, DecodeShard(shard, body));
    result.shards.push_back(std::move(rank));
  }
  return result;
}

absl::Status CheckPlanLayoutReply(const ShardPlan& plan, absl::Span<const int64_t> ranks) {
  const int64_t bytes = MinLayoutBytes(plan, ranks);
  return bytes > kMaxUnaryBytes ? LayoutsTooLarge(ranks.size(), bytes) : absl::OkStatus();
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
  if (summary.choice) {
    message->set_chosen(summary.choice->layout);
    message->set_reason(summary.choice->reason);
  }
  if (summary.row_need) message->set_row_need(*summary.row_need);
  if (summary.totals) EncodeTotals(*summary.totals, message->mutable_totals());
  for (const RankLoad& load : summary.loads) EncodeLoad(load, message->add_loads());
  if (summary.pad_costs) EncodePadCosts(*summary.pad_costs, message->mutable_pad_costs());
  for (const Explanation& answer : summary.answers)
    EncodePlaceAnswer(answer, message->add_answers());
  const int64_t total = message->ByteSizeLong();
  if (total > kMaxUnaryBytes) {
    return summary.layouts.empty() ? TooLarge("reply", total)
                                   : LayoutsTooLarge(summary.layouts.size(), total);
  }
  EncodeDocuments(summary.documents, kMaxUnaryBytes - total, message);
  return absl::OkStatus();
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
  if (!message.chosen().empty()) summary.choice = Choice{message.chosen(), message.reason()};
  if (message.has_row_need()) summary.row_need = message.row_need();
  if (message.has_totals()) summary.totals = DecodeTotals(message.totals());
  for (const v1::RankLoad& load : message.loads()) summary.loads.push_back(DecodeLoad(load));
  for (const v1::DocumentTotals& document : message.documents()) {
    summary.documents.push_back(DecodeDocument(document));
  }
  if (message.has_pad_costs()) {
    summary.pad_costs = DecodePadCosts(message.pad_costs());
    summary.pad_costs->rule.choice = summary.choice;
  }
  for (const v1::PlaceAnswer& answer : message.answers()) {
    summary.answers.push_back(DecodePlaceAnswer(answer));
  }
  return summary;
}

}  // namespace cpshard
