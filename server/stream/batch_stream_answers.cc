// What goes out: sharding, answers, refusals. (batch_stream.cc: what comes in.)
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "server/stream/batch_stream.h"
#include "server/to_peer.h"

namespace cpshard {
namespace {

constexpr size_t kMaxDropping = 1024;              // refused batches whose last frame never came
constexpr int64_t kSmallBytes = int64_t{1} << 20;  // batch and answer: not worth another thread

}  // namespace

// --- sharding

BatchStream::EntryPtr BatchStream::StartSharding(bool one_here) {
  EntryPtr here;
  while (!ready_.empty() && sharding_ < context_.max_sharding && here == nullptr) {
    const EntryPtr entry = ready_.front();
    if (entry->dead) {
      ready_.pop_front();
      continue;
    }
    const int64_t bytes = entry->batch->output_bytes();
    const int64_t room = context_.stream_limits.max_inflight_bytes - answer_bytes_;
    if (answer_bytes_ > 0 && bytes > room) break;  // until an answer has left
    ready_.pop_front();
    entry->phase = Phase::kSharding;
    entry->answer = bytes;
    answer_bytes_ += bytes;
    ++sharding_;
    if (one_here && entry->batch->memory_bytes() <= kSmallBytes) {
      here = entry;
    } else {
      context_.run_later([self = shared_from_this(), entry] { self->Shard(entry, true); });
    }
  }
  return here;
}

// Small batches that wait behind this one follow on the same thread, if it may do so.
void BatchStream::Shard(EntryPtr entry, bool one_more_here) {
  while (entry != nullptr) {
    bool dead;
    {
      absl::MutexLock lock(&mu_);
      dead = entry->dead;
    }
    absl::StatusOr<Answer> answer = absl::CancelledError("given up");
    if (!dead) answer = entry->batch->MakeAnswer(*entry->executor, *context_.pool);
    entry->batch.reset();
    const uint64_t id = entry->id;
    {
      absl::MutexLock lock(&mu_);
      --sharding_;
      if (!entry->dead && !answer.ok()) {
        Refuse(entry->id, {ToPeer(answer.status()), {}}, false);
      } else if (!entry->dead) {
        entry->phase = Phase::kAnswering;
        answer_bytes_ += answer->body.copied_bytes - entry->answer;
        entry->answer = answer->body.copied_bytes;
        outgoing_.emplace_back(entry->id, *std::move(answer), entry->charge);
        ++context_.counters->batches_sharded;
      }
      entry = StartSharding(one_more_here);
    }
    on_output_();
    if (WasUnderWayWhenLost(answer.status())) {  // last: the log may block
      LogError("the device was lost with this batch under way",
               {{"peer", peer_}, {"batch_id", absl::StrCat(id)}});
    }
  }
}

// --- output

std::optional<OutFrame> BatchStream::NextFrame(absl::Time now) {
  absl::MutexLock lock(&mu_);
  if (abandoned_) return std::nullopt;
  if (tell_draining_) {
    tell_draining_ = false;
    ShardFrame frame;
    frame.draining = true;
    return OutFrame{EncodeShardFrame(frame, "", 0), {}};
  }
  if (outgoing_.empty()) return std::nullopt;
  OutgoingAnswer& answer = outgoing_.front();
  if (!answer.begun()) output_due_ = now + TimeFor(answer.bytes(), context_.stall);
  OutFrame frame = answer.Next();
  if (answer.done()) {
    output_due_ = absl::InfiniteFuture();  // that the last write gets through is watched elsewhere
    const EntryPtr entry = answer.is_error() ? nullptr : Find(answer.batch_id());
    if (entry != nullptr) Remove(entry);
    outgoing_.pop_front();
    (void)StartSharding(/*one_here=*/false);
  }
  return frame;
}

absl::Time BatchStream::OutputDue() const {
  absl::MutexLock lock(&mu_);
  return output_due_;
}

std::optional<absl::Status> BatchStream::Ended() const {
  absl::MutexLock lock(&mu_);
  if (abandoned_) return absl::CancelledError("the peer is gone");
  if (!end_ || !entries_.empty() || !outgoing_.empty() || tell_draining_) return std::nullopt;
  return end_;
}

void BatchStream::Drain() {
  {
    absl::MutexLock lock(&mu_);
    if (draining_) return;
    draining_ = tell_draining_ = true;
  }
  on_output_();
}

void BatchStream::EndIfIdle(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_ || !entries_.empty()) return;
    FinishInput(status);
  }
  on_output_();
}

// --- giving up

void BatchStream::Expire(absl::Time input) {
  {
    absl::MutexLock lock(&mu_);
    bool any = false;
    for (const EntryPtr& entry : Receiving()) {
      absl::Status late =
          Overdue(entry->charge.bytes, entry->begun, entry->moved, input, context_.stall);
      if (late.ok()) continue;
      any = true;
      Refuse(entry->id, {std::move(late), {}}, true);
    }
    if (!any) return;
  }
  on_output_();
}

void BatchStream::Abandon() {
  std::map<uint64_t, EntryPtr> entries;  // let go outside of the lock
  std::deque<OutgoingAnswer> outgoing;
  std::deque<EntryPtr> ready;
  absl::MutexLock lock(&mu_);
  abandoned_ = true;
  for (const auto& [id, entry] : entries_) {
    entry->dead = true;
    context_.shares->Release(peer_, entry->reserved);
  }
  context_.counters->batches -= static_cast<int64_t>(entries_.size());
  charged_ = {};
  entries.swap(entries_);
  outgoing.swap(outgoing_);
  ready.swap(ready_);
}

void BatchStream::Refuse(uint64_t id, BatchError error, bool more) {
  uint32_t seq = 0;
  const auto sending = std::find_if(outgoing_.begin(), outgoing_.end(), [id](const auto& answer) {
    return answer.batch_id() == id && !answer.is_error();
  });
  if (sending != outgoing_.end()) {
    seq = sending->next_seq();
    if (sending == outgoing_.begin()) output_due_ = absl::InfiniteFuture();
    outgoing_.erase(sending);
  }
  Credit credit;
  if (const EntryPtr entry = Find(id); entry != nullptr) {
    credit = entry->charge;
    Remove(entry);
  }
  outgoing_.emplace_back(id, std::move(error), credit, seq);
  ++context_.counters->batches_refused;
  if (more) dropping_.insert(id);
  if (dropping_.size() > kMaxDropping) {
    FinishInput(absl::ResourceExhaustedError(absl::StrCat(
        "over ", kMaxDropping, " batches were refused and their last frames never came")));
  }
}

void BatchStream::Remove(const EntryPtr& entry) {
  entry->dead = true;
  if (entry->phase == Phase::kReady) entry->batch.reset();  // ready_ may keep the entry for long
  answer_bytes_ -= entry->answer;
  charged_.bytes -= entry->charge.bytes;
  charged_.batches -= entry->charge.batches;
  context_.shares->Release(peer_, entry->reserved);
  --context_.counters->batches;
  entries_.erase(entry->id);
}

int64_t BatchStream::batches() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(entries_.size());
}

int64_t BatchStream::queued_bytes() const {
  absl::MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const OutgoingAnswer& answer : outgoing_) bytes += answer.bytes();
  return bytes;
}

}  // namespace cpshard
