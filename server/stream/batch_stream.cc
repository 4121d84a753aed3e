#include "server/stream/batch_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

constexpr int kMaxSharding = 2;        // batches of one stream on workers, so that others get turns
constexpr size_t kMaxDropping = 1024;  // refused batches whose last frame never came
constexpr size_t kMaxQueuedAnswers = 64;
constexpr int64_t kRetrySoonMs = 100;    // what stands in the way is other batches
constexpr int64_t kRetryDrainMs = 1000;  // ... a restart

BatchError Draining() {
  return {absl::UnavailableError("the server is shutting down; send the batch again"),
          kRetryDrainMs};
}

}  // namespace

std::shared_ptr<BatchStream> BatchStream::Make(const StreamContext& context,
                                               std::function<void()> on_output) {
  return std::shared_ptr<BatchStream>(new BatchStream(context, std::move(on_output)));
}

BatchStream::BatchStream(const StreamContext& context, std::function<void()> on_output)
    : context_(context), on_output_(std::move(on_output)) {
  ++context_.counters->streams;
}

BatchStream::~BatchStream() {
  Abandon();
  --context_.counters->streams;
}

// --- input
// ----------------------------------------------------------------------------------------

void BatchStream::OnMessage(absl::Span<const Bytes> message, absl::Time now) {
  const absl::StatusOr<BatchFrame> frame = DecodeBatchFrame(message);
  if (frame.ok()) {
    OnFrame(*frame, now);
  } else {
    absl::MutexLock lock(&mu_);
    FinishInput(frame.status());
  }
  on_output_();
}

void BatchStream::OnFrame(const BatchFrame& frame, absl::Time now) {
  EntryPtr entry;
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_) return;
    entry = Find(frame.batch_id);
    if (frame.cancel) {
      dropping_.erase(frame.batch_id);
      if (entry != nullptr) {
        Refuse(frame.batch_id, {absl::CancelledError("the client gave the batch up"), {}}, false);
      }
      return;
    }
    if (dropping_.contains(frame.batch_id)) {
      if (frame.begin != nullptr || frame.last) dropping_.erase(frame.batch_id);
      if (frame.begin == nullptr) return;
    }
    absl::Status error;
    if (entry == nullptr && frame.begin == nullptr) {
      error = absl::InvalidArgumentError(
          absl::StrCat("frame_seq ", frame.frame_seq, " came for a batch that was not begun"));
    } else if (entry != nullptr && frame.begin != nullptr) {
      error = absl::InvalidArgumentError(
          "the batch was begun again before it was answered; an id names one batch at a time");
    } else if (entry != nullptr && entry->phase != Phase::kReceiving) {
      error = absl::InvalidArgumentError(
          absl::StrCat("frame_seq ", frame.frame_seq, " came after the last frame"));
    }
    if (!error.ok()) return Refuse(frame.batch_id, {error, {}}, !frame.last);
  }
  if (entry == nullptr) {
    Begin(frame, now);
  } else {
    Land(entry, frame, now);
  }
}

void BatchStream::Begin(const BatchFrame& frame, absl::Time now) {
  auto entry = std::make_shared<Entry>();
  entry->id = frame.batch_id;
  entry->last_frame = now;
  std::optional<BatchError> error;
  absl::StatusOr<BatchBegin> begin = DecodeBatchBegin(*frame.begin, context_.limits);
  if (!begin.ok()) {
    error = BatchError{begin.status(), {}};
  } else if (!(error = Charge(entry, begin->total_bytes))) {
    const int64_t bytes = begin->total_bytes;
    auto batch = ArrivingBatch::Begin(*std::move(begin), context_.limits, *context_.pool);
    if (batch.ok()) {
      entry->batch = *std::move(batch);
    } else {
      error = ErrorOf(batch.status(), bytes);
    }
  }
  if (!error) return Land(entry, frame, now);
  absl::MutexLock lock(&mu_);
  if (!entry->dead) Refuse(frame.batch_id, *std::move(error), !frame.last);
}

std::optional<BatchError> BatchStream::Charge(const EntryPtr& entry, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  if (draining_) return Draining();
  const StreamLimits& limits = context_.stream_limits;
  const bool over = charged_.batches >= limits.max_inflight_batches ||
                    charged_.bytes > limits.max_inflight_bytes - bytes;
  if (over && charged_.batches > 0) {
    return BatchError{
        absl::ResourceExhaustedError(absl::StrCat(
            "the stream has ", charged_.batches, " unanswered batches of ", charged_.bytes,
            " bytes; ", bytes, " more would pass its limits of ", limits.max_inflight_batches,
            " batches and ", limits.max_inflight_bytes, " bytes: wait for answers")),
        kRetrySoonMs};
  }
  entry->charge = {bytes, 1};
  charged_.bytes += bytes;
  ++charged_.batches;
  entries_[entry->id] = entry;
  ++context_.counters->batches;
  return std::nullopt;
}

void BatchStream::Land(const EntryPtr& entry, const BatchFrame& frame, absl::Time now) {
  absl::Status status = entry->batch->Land(frame);
  if (status.ok() && frame.last) status = entry->batch->CheckComplete();
  absl::MutexLock lock(&mu_);
  if (entry->dead) {  // given up meanwhile; what is still to come of it is dropped
    if (frame.last) dropping_.erase(entry->id);
    return;
  }
  entry->last_frame = now;
  if (!status.ok()) return Refuse(entry->id, ErrorOf(status, 0), !frame.last);
  if (!frame.last) return;
  entry->phase = Phase::kReady;
  ready_.push_back(entry);
  StartSharding();
}

void BatchStream::OnInputEnd() {
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_) return;
    std::vector<EntryPtr> incomplete;
    for (const auto& [id, entry] : entries_) {
      if (entry->phase == Phase::kReceiving) incomplete.push_back(entry);
    }
    for (const EntryPtr& entry : incomplete) {
      Refuse(entry->id,
             {absl::InvalidArgumentError(absl::StrCat(
                  "the stream ended in the middle of the batch: ", entry->batch->landed_bytes(),
                  " of ", entry->batch->total_bytes(), " bytes, no last frame")),
              {}},
             false);
    }
    FinishInput(absl::OkStatus());
  }
  on_output_();
}

// Batches that are not complete end with the stream.
void BatchStream::FinishInput(absl::Status status) {
  if (end_ || abandoned_) return;
  end_ = std::move(status);
  dropping_.clear();
  std::vector<EntryPtr> incomplete;
  for (const auto& [id, entry] : entries_) {
    if (entry->phase == Phase::kReceiving) incomplete.push_back(entry);
  }
  for (const EntryPtr& entry : incomplete) Remove(entry);
}

bool BatchStream::WantsInput() const {
  absl::MutexLock lock(&mu_);
  return !end_ && !abandoned_ && outgoing_.size() < kMaxQueuedAnswers;
}

// --- sharding
// -------------------------------------------------------------------------------------

void BatchStream::StartSharding() {
  while (!ready_.empty() && sharding_ < kMaxSharding &&
         copied_bytes_ <= context_.stream_limits.max_inflight_bytes) {
    const EntryPtr entry = ready_.front();
    ready_.pop_front();
    if (entry->dead) continue;
    entry->phase = Phase::kSharding;
    ++sharding_;
    context_.run_later([self = shared_from_this(), entry] { self->Shard(entry); });
  }
}

void BatchStream::Shard(const EntryPtr& entry) {
  bool dead;
  {
    absl::MutexLock lock(&mu_);
    dead = entry->dead;
  }
  absl::StatusOr<Answer> answer = absl::CancelledError("given up");
  int64_t bytes = 0;
  if (!dead) {
    bytes = entry->batch->total_bytes() + entry->batch->output_bytes();
    answer = entry->batch->MakeAnswer(*context_.executor, *context_.pool);
  }
  entry->batch.reset();
  {
    absl::MutexLock lock(&mu_);
    --sharding_;
    if (!entry->dead && !answer.ok()) {
      Refuse(entry->id, ErrorOf(answer.status(), bytes), false);
    } else if (!entry->dead) {
      entry->phase = Phase::kAnswering;
      copied_bytes_ += answer->body.copied_bytes;
      outgoing_.emplace_back(entry->id, *std::move(answer), entry->charge);
      ++context_.counters->batches_sharded;
    }
    StartSharding();
  }
  on_output_();
}

BatchError BatchStream::ErrorOf(const absl::Status& status, int64_t bytes) const {
  // Only memory is ever exhausted here; it comes back, unless it never was enough.
  const bool may_fit = absl::IsResourceExhausted(status) && context_.pool->Fits(bytes);
  return {status, may_fit ? std::optional<int64_t>(kRetrySoonMs) : std::nullopt};
}

// --- output
// ---------------------------------------------------------------------------------------

std::optional<OutFrame> BatchStream::NextFrame() {
  absl::MutexLock lock(&mu_);
  if (abandoned_) return std::nullopt;
  if (tell_draining_) {
    tell_draining_ = false;
    ShardFrame frame;
    frame.draining = true;
    return OutFrame{EncodeShardFrame(frame, "", 0), {}, 0};
  }
  if (outgoing_.empty()) return std::nullopt;
  OutgoingAnswer& answer = outgoing_.front();
  OutFrame frame = answer.Next();
  if (answer.done()) {
    copied_bytes_ -= answer.copied_bytes();
    if (const EntryPtr entry = Find(answer.batch_id()); entry != nullptr && !answer.is_error()) {
      Remove(entry);
    }
    outgoing_.pop_front();
    StartSharding();
  }
  return frame;
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
// ------------------------------------------------------------------------------------

void BatchStream::Expire(absl::Time now, absl::Time reading_since) {
  {
    absl::MutexLock lock(&mu_);
    std::vector<EntryPtr> silent;
    for (const auto& [id, entry] : entries_) {
      const absl::Time since = std::max(entry->last_frame, reading_since);
      if (entry->phase == Phase::kReceiving && now - since >= context_.stall) {
        silent.push_back(entry);
      }
    }
    for (const EntryPtr& entry : silent) {
      Refuse(entry->id,
             {absl::DeadlineExceededError(
                  absl::StrCat("the batch was begun, but no frame of it came for ",
                               absl::FormatDuration(context_.stall))),
              {}},
             true);
    }
    if (silent.empty()) return;
  }
  on_output_();
}

void BatchStream::Abandon() {
  std::map<uint64_t, EntryPtr> entries;  // let go outside of the lock
  std::deque<OutgoingAnswer> outgoing;
  std::deque<EntryPtr> ready;
  absl::MutexLock lock(&mu_);
  abandoned_ = true;
  for (const auto& [id, entry] : entries_) entry->dead = true;
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
    copied_bytes_ -= sending->copied_bytes();
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
  charged_.bytes -= entry->charge.bytes;
  charged_.batches -= entry->charge.batches;
  --context_.counters->batches;
  entries_.erase(entry->id);
}

BatchStream::EntryPtr BatchStream::Find(uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second;
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
