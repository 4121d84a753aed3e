#include "client/session/rank_impl.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/batch/failpoint.h"
#include "core/plan/status_macros.h"
#include "proto/error_details.h"
#include "proto/slices.h"

namespace cpshard {
namespace {

// After so long a server says who is waited for; the request is made again.
constexpr int64_t kWantTimeoutMs = 2000;
constexpr absl::Duration kOpenTime = absl::Seconds(15);

ExpectedRanks Expected(const RankOptions& options) {
  return {.ranks = {options.cp_rank}, .num_ranks = options.cp_size};
}

}  // namespace

Rank::Impl::Impl(Address address, std::unique_ptr<WakeupFd> wakeup, RankOptions options,
                 OpenSession open)
    : SessionStream(std::move(address), std::move(wakeup), "/cpshard.v1.ShardService/PullShards"),
      options_(std::move(options)),
      session_{open.group, open.generation, open.reader, open.incarnation},
      expected_(Expected(options_)),
      pool_({.max_bytes = static_cast<size_t>(options_.max_bytes),
             .max_idle_bytes = static_cast<size_t>(options_.max_bytes)}),
      answers_(&pool_),
      ledger_(std::move(open), options_.prefetch) {}

// --- the connection

bool Rank::Impl::Postponed() const { return ledger_.postponed(); }

bool Rank::Impl::Owed() const { return !asked_.empty(); }

void Rank::Impl::TryAgain() { ledger_.AskAgain(); }

// A session that another instance of the server does not know is opened there.
bool Rank::Impl::IsFinal(const absl::Status& status, Stage stage) const {
  if (stage == Stage::kConnected && absl::IsNotFound(status)) return false;
  return !MayPass(status);
}

absl::Status Rank::Impl::OnGreeted(const Greeted& greeted) {
  CPSHARD_RETURN_IF_ERROR(CheckKnowsExecutors(options_.executor, greeted.server.capabilities));
  answers_.SetBound(LargestAnswer(greeted.server));
  OpenSession open;
  {
    absl::MutexLock lock(&mutex_);
    open = ledger_.OpenMessage();
  }
  CPSHARD_ASSIGN_OR_RETURN(const auto call, CallOpenSession(greeted.connection->channel(), open,
                                                            kOpenTime, [this] { WakeKeeper(); }));
  CPSHARD_ASSIGN_OR_RETURN(const OpenedSession opened, AwaitAnswer(*call));
  Failpoint("after_open");
  CPSHARD_RETURN_IF_ERROR(CheckExecutor(open.executor, opened.executor));
  absl::MutexLock lock(&mutex_);
  stats_.executor = opened.executor;
  return ledger_.OnOpened(opened);
}

void Rank::Impl::Connected() {
  ++stats_.opens;
  requests_ = {EncodePullRequest(session_)};
}

void Rank::Impl::Disconnected() {
  ledger_.Disconnected();
  requests_.clear();
  asked_.clear();
  landing_.clear();
}

void Rank::Impl::OnDown(const absl::Status& status, Stage stage) {
  answers_.DropAll();
  arriving_.clear();
  SessionStream::OnDown(status, stage);
}

void Rank::Impl::OnLost(const absl::Status& why) {
  if (options_.on_lost) options_.on_lost(why);
}

// --- what is written

std::optional<grpc::ByteBuffer> Rank::Impl::NextMessage() {
  std::string message;
  UpdateFromCall([&] {
    mutex_.AssertHeld();
    if (ended_) return;
    if (requests_.empty()) TakeRequests();
    if (requests_.empty()) return;
    message = std::move(requests_.front());
    requests_.pop_front();
  });
  if (message.empty()) return std::nullopt;
  return ToMessage(message, {});
}

// What the trainer has waited since the server was told.
void Rank::Impl::AddStall(Commit* commit) {
  const absl::Time now = SteadyNow();
  const auto part = [](absl::Duration all, absl::Duration told) {
    return std::max<int64_t>(0, absl::ToInt64Microseconds(all - told));
  };
  const Stall& all = stats_.all;
  commit->stall = {part(all.loader, told_.loader), part(all.peer, told_.peer),
                   part(all.server, told_.server), part(all.copy, told_.copy)};
  commit->elapsed_us = part(now - told_at_, absl::ZeroDuration());
  told_ = all;
  told_at_ = now;
}

void Rank::Impl::TakeRequests() {
  for (ReaderLedger::Request& request : ledger_.TakeRequests()) {
    if (auto* const commit = std::get_if<Commit>(&request)) AddStall(commit);
    if (auto* const want = std::get_if<Want>(&request)) {
      want->timeout_ms = kWantTimeoutMs;
      want->keys = options_.keys;
      asked_[want->id] = want->at;
    }
    requests_.push_back(std::visit(
        [](auto& one) { return EncodePullRequest(PullRequest(std::move(one))); }, request));
  }
}

// --- what is read

absl::Status Rank::Impl::OnMessage(const grpc::ByteBuffer& message) {
  const MessageSlices slices(message);
  absl::StatusOr<ShardFrame> frame = DecodeShardFrame(slices.spans(), FrameOf::kSession);
  if (!frame.ok()) {
    return Broken(absl::StrCat("the server sent what is no frame: ", frame.status().message()));
  }
  {
    absl::MutexLock lock(&mutex_);
    clock_.Heard(SteadyNow());
  }
  if (frame->draining) return absl::OkStatus();  // what is complete still comes
  if (!frame->error) return OnAnswer(*std::move(frame));
  answers_.Drop(frame->batch_id);
  arriving_.erase(frame->batch_id);
  Update([&] {
    mutex_.AssertHeld();
    OnRefused(frame->batch_id, frame->error->status);
  });
  return absl::OkStatus();
}

void Rank::Impl::OnRefused(uint64_t id, const absl::Status& status) {
  if (const auto asked = asked_.find(id); asked != asked_.end()) {
    word_[asked->second] = status;
    landing_.erase(asked->second);
    asked_.erase(asked);
  }
  if (const auto details = DetailsOf(status); details && details->retry_after) {
    clock_.PostponeFor(*details->retry_after);
  }
  ledger_.OnRequestStatus(id, status);
}

absl::Status Rank::Impl::OnAnswer(ShardFrame frame) {
  const uint64_t id = frame.batch_id;
  if (frame.frame_seq == 0) {
    if (!frame.delivery) return Broken(absl::StrCat("answer ", id, " says of no step"));
    const DeliveryHead& head = *frame.delivery;
    arriving_[id] = {head};
    UpdateQuietly([&] {
      mutex_.AssertHeld();
      if (ledger_.Lands(id)) landing_.insert(head.at);
    });
  }
  const auto arriving = arriving_.find(id);
  if (arriving == arriving_.end()) {
    return Broken(absl::StrCat("answer ", id, " begins with frame ", frame.frame_seq));
  }
  const bool last = frame.last;
  if (!arriving->second.dropped && !Lands(id)) {
    answers_.Drop(id);
    arriving->second.dropped = true;
    OnNoMemory(id, absl::ResourceExhaustedError("the memory of this rank (max_bytes) is kept for "
                                                "the steps that it waits for"));
  }
  if (arriving->second.dropped) {
    if (last) arriving_.erase(arriving);
    return absl::OkStatus();
  }
  const int64_t bytes = frame.body.size;
  const absl::Time begin = SteadyNow();
  absl::StatusOr<std::optional<ShardResult>> shards = answers_.Take(std::move(frame));
  {
    absl::MutexLock lock(&mutex_);
    copied_ += SteadyNow() - begin;
    stats_.received_bytes += bytes;
  }
  if (absl::IsResourceExhausted(shards.status())) {
    arriving->second.dropped = true;
    if (last) arriving_.erase(arriving);
    OnNoMemory(id, shards.status());
    return absl::OkStatus();
  }
  if (!shards.ok()) return Broken(shards.status().message());
  if (!shards->has_value()) return absl::OkStatus();
  const DeliveryHead head = std::move(arriving->second.head);
  arriving_.erase(arriving);
  return OnShards(head, **std::move(shards));
}

bool Rank::Impl::Lands(uint64_t id) const {
  absl::MutexLock lock(&mutex_);
  return ledger_.Lands(id);
}

// The steps behind it must not keep a step from coming.
void Rank::Impl::OnNoMemory(uint64_t id, const absl::Status& status) {
  Update([&] {
    mutex_.AssertHeld();
    if (NeverFits(status)) {
      OnRefused(id, absl::FailedPreconditionError(
                        absl::StrCat("raise max_bytes of this rank: ", status.message())));
      return;
    }
    ledger_.OnNoMemory(id);
    OnRefused(id, status);
  });
}

absl::Status Rank::Impl::OnShards(const DeliveryHead& head, ShardResult shards) {
  if (const absl::Status check = expected_.Check(shards); !check.ok()) {
    return Broken(check.message());
  }
  ReceivedShard received{head, std::make_shared<RankShard>(std::move(shards.shards.front())),
                         std::move(shards.executor)};
  absl::Status status;
  Update([&] {
    mutex_.AssertHeld();
    landing_.erase(head.at);
    if (head.last) {
      asked_.erase(head.id);
      word_.erase(head.at);
    }
    status = ledger_.OnDelivery(std::move(received));
  });
  Failpoint("after_delivery");
  return status.ok() ? status : Broken(status.message());
}

}  // namespace cpshard
