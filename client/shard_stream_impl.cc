#include "client/shard_stream_impl.h"

#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/outgoing_batch.h"
#include "core/plan/spec.h"
#include "proto/slices.h"

namespace cpshard {

ShardStream::Impl::Impl(Address address, const StreamOptions& options,
                        std::unique_ptr<WakeupFd> wakeup)
    : KeptStream(std::move(address), std::move(wakeup), "/cpshard.v1.ShardService/ShardBatches"),
      pool_({.max_bytes = static_cast<size_t>(options.max_answer_bytes),
             .max_idle_bytes = static_cast<size_t>(options.max_idle_bytes)}),
      executor_(options.executor),
      ledger_(this->address().text, options, std::random_device()()),
      answers_(&pool_),
      encoder_(options.checksums) {}

// --- callers

std::shared_ptr<PendingBatch> ShardStream::Impl::Submit(Batch batch, const Options& options,
                                                        std::optional<int64_t> cp_size,
                                                        std::vector<int64_t> ranks) {
  absl::StatusOr<OutgoingBatch> laid_out =
      LayOutBatch(std::move(batch), options, cp_size, std::move(ranks), executor_);
  if (!laid_out.ok()) {
    auto refused = std::make_shared<PendingBatch>();
    refused->Resolve(laid_out.status());
    return refused;
  }
  const auto self = std::static_pointer_cast<Impl>(shared_from_this());
  // The batch's number is known only when it is in the ledger.
  auto number = std::make_shared<uint64_t>(0);
  auto pending = std::make_shared<PendingBatch>([weak = std::weak_ptr(self), number] {
    const std::shared_ptr<Impl> stream = weak.lock();
    if (stream == nullptr) return;  // its end has closed the batch
    stream->Update([&](BatchLedger& ledger) { ledger.Cancel(*number); });
  });
  Update([&](BatchLedger& ledger) {
    *number =
        ledger.Add(pending, std::make_shared<OutgoingBatch>(*std::move(laid_out)), SteadyNow());
  });
  return pending;
}

StreamStats ShardStream::Impl::stats() {
  StreamStats stats;
  {
    absl::MutexLock lock(&mutex_);
    stats = ledger_.stats();
  }
  stats.buffers_out = static_cast<int64_t>(pool_.stats().buffers_out);
  return stats;
}

template <typename F>
void ShardStream::Impl::Update(F change) {
  std::vector<ClosedBatch> closed;
  bool hang_up = false;
  absl::Time due;
  {
    absl::MutexLock lock(&mutex_);
    change(ledger_);
    closed = ledger_.TakeClosed();
    hang_up = ledger_.ShouldHangUp();
    due = ledger_.NextEvent(SteadyNow());
  }
  WakeKeeperBefore(due);
  for (ClosedBatch& batch : closed) {
    if (batch.pending != nullptr) batch.pending->Resolve(std::move(batch.answer));
  }
  if (hang_up) {
    HangUp();
  } else {
    WakeCall();
  }
}

void ShardStream::Impl::CloseAll() {
  Update([this](BatchLedger& ledger) {
    ledger.CloseAll(absl::CancelledError(absl::StrCat(
        "the stream to ", address().text, " was closed before the batch was answered")));
  });
}

// --- the connection

absl::Time ShardStream::Impl::Tick(absl::Time now) {
  Update([&](BatchLedger& ledger) { ledger.Expire(now); });
  absl::MutexLock lock(&mutex_);
  return ledger_.NextEvent(now);
}

bool ShardStream::Impl::WantsConnection(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  return ledger_.WantsConnection(now);
}

void ShardStream::Impl::OnConnecting() {
  Update([](BatchLedger& ledger) { ledger.Connecting(); });
}

absl::Status ShardStream::Impl::OnGreeted(const Greeted& greeted) {
  server_ = greeted.server;
  const absl::Status knows = CheckKnowsExecutors(executor_, server_.capabilities);
  if (!knows.ok()) {
    Update([&](BatchLedger& ledger) { ledger.CloseAll(knows); });
    return knows;
  }
  answers_.SetBound(LargestAnswer(server_));
  return absl::OkStatus();
}

void ShardStream::Impl::OnUp() {
  Update([this](BatchLedger& ledger) {
    ledger.Connected(server_.stream_limits, server_.max_chunk_bytes);
  });
}

void ShardStream::Impl::OnDown(const absl::Status& status, Stage stage) {
  answers_.DropAll();
  Update([&](BatchLedger& ledger) {
    ledger.Disconnected(status, stage == Stage::kConnected ? "connection lost" : "cannot connect",
                        SteadyNow());
  });
}

// --- the call

std::optional<grpc::ByteBuffer> ShardStream::Impl::NextMessage() {
  std::optional<FrameToSend> next;
  {
    absl::MutexLock lock(&mutex_);
    next = ledger_.NextFrame(SteadyNow());
  }
  if (!next) return std::nullopt;
  return encoder_.Encode(*next);
}

absl::Status ShardStream::Impl::OnMessage(const grpc::ByteBuffer& message) {
  const MessageSlices slices(message);
  absl::StatusOr<ShardFrame> frame = DecodeShardFrame(slices.spans());
  if (!frame.ok()) {
    return absl::InternalError(
        absl::StrCat("the server sent what is no frame: ", frame.status().message()));
  }
  {
    absl::MutexLock lock(&mutex_);
    ledger_.Heard(SteadyNow());
  }
  if (frame->draining) {
    Update([](BatchLedger& ledger) { ledger.Drain(); });
    return absl::OkStatus();
  }
  if (frame->error) {
    answers_.Drop(frame->batch_id);
    Update(
        [&](BatchLedger& ledger) { ledger.Refused(frame->batch_id, *frame->error, SteadyNow()); });
    return absl::OkStatus();
  }
  return OnAnswer(*std::move(frame));
}

absl::Status ShardStream::Impl::OnAnswer(ShardFrame frame) {
  const uint64_t wire_id = frame.batch_id;
  BatchLedger::Interest interest;
  {
    absl::MutexLock lock(&mutex_);
    interest = ledger_.InterestIn(wire_id);
  }
  if (interest == BatchLedger::Interest::kUnknown) {
    return absl::InternalError(
        absl::StrCat("the server answers batch ", wire_id, ", which is not under way"));
  }
  if (interest == BatchLedger::Interest::kGivenUp) {
    answers_.Drop(wire_id);
    if (frame.last) {
      Update([&](BatchLedger& ledger) { ledger.Answered(wire_id, absl::CancelledError()); });
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<ShardResult>> shards = answers_.Take(std::move(frame));
  if (shards.ok()) {
    if (!shards->has_value()) return absl::OkStatus();
    Update([&](BatchLedger& ledger) { ledger.Answered(wire_id, **std::move(shards)); });
    return absl::OkStatus();
  }
  Update([&](BatchLedger& ledger) { ledger.Fail(wire_id, shards.status()); });
  // No memory for this one is no fault of the server; what is broken is not to be trusted further.
  return absl::IsResourceExhausted(shards.status()) ? absl::OkStatus() : shards.status();
}

}  // namespace cpshard
