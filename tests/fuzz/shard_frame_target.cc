#include <google/protobuf/stubs/logging.h>

#include <memory>

#include "absl/strings/match.h"
#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "tests/fuzz/spans.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // that an answer may state

void CheckSame(const ShardFrame& frame, const v1::ShardFrame& generic) {
  Must(frame.batch_id == generic.batch_id(), "batch_id");
  Must(frame.frame_seq == generic.frame_seq(), "frame_seq");
  Must(frame.begin.has_value() == generic.has_begin(), "a begin or none");
  if (frame.begin) {
    Must(frame.begin->num_shards == generic.begin().num_shards(), "num_shards");
    Must(static_cast<uint64_t>(frame.begin->total_bytes) == generic.begin().total_bytes(),
         "total_bytes");
    Must(frame.begin->notices.size() == static_cast<size_t>(generic.begin().notices_size()),
         "notices");
    Must(frame.begin->totals.documents == generic.begin().totals().documents(), "totals");
  }
  Must(frame.num_shards == generic.shards_size(), "heads");
  Must(frame.offset == generic.offset(), "offset");
  Must(frame.last == generic.last(), "last");
  Must(frame.credit.has_value() == generic.has_credit(), "credit or none");
  if (frame.credit) {
    Must(static_cast<uint64_t>(frame.credit->bytes) == generic.credit().bytes(), "credit bytes");
    Must(frame.credit->batches == generic.credit().batches(), "credit batches");
  }
  Must(frame.error.has_value() == generic.has_status(), "a status or none");
  if (frame.error) {
    Must(!frame.error->status.ok(), "a status is never OK");
    Must(frame.error->retry_after_ms.has_value() == generic.status().has_retry_after_ms(),
         "retry_after_ms or none");
    Must(absl::EndsWith(frame.error->status.message(), generic.status().message()), "its text");
  }
  Must(frame.draining == generic.draining(), "draining");
  Must(TextOf(frame.body) == generic.body(), "body");
}

// The body again and again, as far as the answer goes.
Buffer AnswerOf(const ShardFrame& frame, const std::string& body) {
  const size_t size = frame.begin->total_bytes;
  auto owner = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size && !body.empty(); ++i) {
    (*owner)[i] = static_cast<std::byte>(body[i % body.size()]);
  }
  std::byte* data = owner->data();
  return Buffer(std::move(owner), data, size);
}

void CheckShards(const ShardFrame& frame, const Buffer& answer) {
  const auto shards = ReadShards({frame}, answer);
  if (!shards.ok()) return;
  Must(static_cast<int64_t>(shards->size()) == frame.begin->num_shards, "a shard per head");
  for (const RankShard& shard : *shards) {
    Must(shard.layout.cp_rank < shard.layout.cp_size, "a rank of the mesh");
    Must(shard.cuts.size() == shard.batch.tensors.size(), "a cut per tensor");
    for (const Tensor& tensor : shard.batch.tensors) {
      Must(!absl::StartsWith(tensor.spec.name, "_layout."), "no arrays among the streams");
      Must(tensor.buffer.size() == static_cast<size_t>(NumBytes(tensor.spec)), "all its bytes");
      if (tensor.buffer.size() == 0) continue;
      const int64_t offset = tensor.buffer.data() - answer.data();
      Must(offset >= 0 && offset % 64 == 0 && offset + tensor.buffer.size() <= answer.size(),
           "windows on the answer");
    }
  }
}

}  // namespace

void ShardFrameTarget(absl::string_view input) {
  static const auto logger = google::protobuf::SetLogHandler(nullptr);
  (void)logger;
  if (input.empty()) return;
  const Spans message(input.substr(1), static_cast<uint8_t>(input[0]));
  const auto frame = DecodeShardFrame(message.get());
  v1::ShardFrame generic;
  const bool parses = generic.ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1));
  const bool can_be = parses && generic.begin().total_bytes() <= kMostBytes &&
                      generic.credit().bytes() <= kMostBytes;
  const bool may_be_over = static_cast<int64_t>(input.size()) > kMaxHeaderBytes;
  Must(frame.ok() == can_be || may_be_over, "refuses what cannot be, and only that");
  if (!frame.ok()) return;
  Must(can_be, "takes only what the generated parser takes");
  CheckSame(*frame, generic);
  (void)DecodeShardFrame(message.get(), FrameOf::kSession);
  if (!frame->begin || frame->begin->total_bytes > 1 << 16) return;
  CheckShards(*frame, AnswerOf(*frame, generic.body()));
}

}  // namespace cpshard::fuzz
