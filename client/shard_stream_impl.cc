#include "client/shard_stream_impl.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/outgoing_batch.h"
#include "core/plan/spec.h"
#include "proto/slices.h"

namespace cpshard {
namespace {

constexpr int64_t kSmallestAnswerBound = int64_t{64} << 20;

// Runs on when somebody sets the clock.
absl::Time Now() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The shards are within the server's max_batch_bytes; large layouts come on top. A server that does
// not state it (0) has that of this build.
int64_t LargestAnswer(const Limits& limits) {
  const int64_t batch =
      limits.max_batch_bytes > 0 ? limits.max_batch_bytes : Limits().max_batch_bytes;
  return std::clamp(batch, kSmallestAnswerBound, std::numeric_limits<int64_t>::max() / 2) * 2;
}

}  // namespace

// --- callers

std::shared_ptr<PendingBatch> ShardStream::Impl::Submit(Batch batch, const Options& options,
                                                        std::optional<int64_t> cp_size,
                                                        std::vector<int64_t> ranks) {
  absl::StatusOr<OutgoingBatch> laid_out =
      LayOutBatch(std::move(batch), options, cp_size, std::move(ranks));
  if (!laid_out.ok()) {
    auto refused = std::make_shared<PendingBatch>();
    refused->Resolve(laid_out.status());
    return refused;
  }
  // The batch's number is known only when it is in the ledger.
  auto number = std::make_shared<uint64_t>(0);
  auto pending = std::make_shared<PendingBatch>([weak = weak_from_this(), number] {
    const std::shared_ptr<Impl> stream = weak.lock();
    if (stream == nullptr) return;  // its end has closed the batch
    stream->Update([&](BatchLedger& ledger) { ledger.Cancel(*number); });
  });
  Update([&](BatchLedger& ledger) {
    *number = ledger.Add(pending, std::make_shared<OutgoingBatch>(*std::move(laid_out)), Now());
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
  std::shared_ptr<StreamCall> call;
  bool hang_up = false, wake_keeper = false;
  {
    absl::MutexLock lock(&mutex_);
    change(ledger_);
    closed = ledger_.TakeClosed();
    call = call_;
    hang_up = ledger_.ShouldHangUp();
    wake_keeper = closing_ || ledger_.NextEvent(Now()) < keeper_wakes_;
  }
  if (wake_keeper) wakeup_->Wake();
  for (ClosedBatch& batch : closed) {
    if (batch.pending != nullptr) batch.pending->Resolve(std::move(batch.answer));
  }
  if (call == nullptr) return;
  if (hang_up) {
    call->Cancel();
  } else {
    call->Wake();
  }
}

void ShardStream::Impl::Close() {
  Update([this](BatchLedger& ledger) {
    closing_ = true;
    ledger.CloseAll(absl::CancelledError(absl::StrCat(
        "the stream to ", address_.text, " was closed before the batch was answered")));
  });
  keeper_.join();
  std::shared_ptr<StreamCall> call;
  {
    absl::MutexLock lock(&mutex_);
    call = call_;
  }
  if (call != nullptr) call->Cancel();
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](std::shared_ptr<StreamCall>* call) { return *call == nullptr; }, &call_));
  }
  connection_.reset();
}

// --- the keeper

void ShardStream::Impl::Keep() {
  while (Rest(-1, absl::InfiniteDuration())) {
    if (WantsConnection()) MakeConnection();
  }
}

bool ShardStream::Impl::WantsConnection() {
  absl::MutexLock lock(&mutex_);
  return call_ == nullptr && ledger_.WantsConnection(Now());
}

// Until there is something to do, `fd` can be written, or `patience` has passed. False: the stream
// is being closed.
bool ShardStream::Impl::Rest(int fd, absl::Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    if (closing_) return false;
    const absl::Time now = Now();
    keeper_wakes_ = ledger_.NextEvent(now);
    patience = std::min(patience, keeper_wakes_ - now);
  }
  wakeup_->Sleep(fd, patience);
  Update([this](BatchLedger& ledger) {
    keeper_wakes_ = absl::InfinitePast();
    ledger.Expire(Now());
  });
  absl::MutexLock lock(&mutex_);
  return !closing_;
}

void ShardStream::Impl::MakeConnection() {
  Update([](BatchLedger& ledger) { ledger.Connecting(); });
  absl::StatusOr<Greeted> greeted = Greet(
      address_, *wakeup_, [this](int fd, absl::Duration patience) { return Rest(fd, patience); });
  if (!greeted.ok()) {
    Update([&](BatchLedger& ledger) {
      ledger.Disconnected(greeted.status(), "cannot connect", Now());
    });
    return;
  }
  connection_ = greeted->connection;
  const ServerInfo& server = greeted->server;
  answers_.SetBound(LargestAnswer(server.limits));
  const auto call = StreamCall::Make(connection_, shared_from_this());
  Update([&](BatchLedger& ledger) {
    ledger.Connected(server.stream_limits, server.max_chunk_bytes);
    call_ = call;
  });
  call->Start();
}

// --- the call

std::optional<grpc::ByteBuffer> ShardStream::Impl::NextMessage() {
  std::optional<FrameToSend> next;
  {
    absl::MutexLock lock(&mutex_);
    next = ledger_.NextFrame(Now());
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
    ledger_.Heard(Now());
  }
  if (frame->draining) {
    Update([](BatchLedger& ledger) { ledger.Drain(); });
    return absl::OkStatus();
  }
  if (frame->error) {
    answers_.Drop(frame->batch_id);
    Update([&](BatchLedger& ledger) { ledger.Refused(frame->batch_id, *frame->error, Now()); });
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

void ShardStream::Impl::OnEnd(const absl::Status& status) {
  answers_.DropAll();
  std::shared_ptr<StreamCall> ended;
  Update([&](BatchLedger& ledger) {
    ledger.Disconnected(status, "connection lost", Now());
    ended = std::move(call_);
  });
}

}  // namespace cpshard
