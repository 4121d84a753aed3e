// What comes in: frames, limits, landing. (batch_stream_answers.cc: sharding and what goes out.)
#include "server/stream/batch_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/to_peer.h"

namespace cpshard {
namespace {

constexpr size_t kMaxQueuedAnswers = 64;
const int64_t kRetrySoonMs = absl::ToInt64Milliseconds(kRetrySoon);

BatchError Draining() {
  return {absl::UnavailableError("the server is shutting down; send the batch again"),
          absl::ToInt64Milliseconds(kRetryDrain)};
}

}  // namespace

std::shared_ptr<BatchStream> BatchStream::Make(const StreamContext& context, std::string peer,
                                               std::function<void()> on_output) {
  return std::shared_ptr<BatchStream>(
      new BatchStream(context, std::move(peer), std::move(on_output)));
}

BatchStream::BatchStream(const StreamContext& context, std::string peer,
                         std::function<void()> on_output)
    : context_(context), peer_(std::move(peer)), on_output_(std::move(on_output)) {
  ++context_.counters->streams;
}

BatchStream::~BatchStream() {
  Abandon();
  --context_.counters->streams;
}

void BatchStream::OnMessage(absl::Span<const Bytes> message, absl::Time input) {
  const absl::StatusOr<BatchFrame> frame = DecodeBatchFrame(message);
  EntryPtr small;
  if (frame.ok()) {
    small = OnFrame(*frame, input);
  } else {
    absl::MutexLock lock(&mu_);
    FinishInput(frame.status());
  }
  if (small != nullptr) return Shard(std::move(small), /*one_more_here=*/false);
  on_output_();
}

BatchStream::EntryPtr BatchStream::OnFrame(const BatchFrame& frame, absl::Time input) {
  EntryPtr entry;
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_) return nullptr;
    entry = Find(frame.batch_id);
    if (frame.cancel) {
      dropping_.erase(frame.batch_id);
      if (entry != nullptr) {
        Refuse(frame.batch_id, {absl::CancelledError("the client gave the batch up"), {}}, false);
      }
      return nullptr;
    }
    if (dropping_.contains(frame.batch_id)) {
      if (frame.begin != nullptr || frame.last) dropping_.erase(frame.batch_id);
      if (frame.begin == nullptr) return nullptr;
    }
    if (absl::Status error = Misplaced(entry, frame); !error.ok()) {
      // Of a batch that is received twice both have frames to come.
      const bool more = !frame.last || (entry != nullptr && entry->phase == Phase::kReceiving);
      Refuse(frame.batch_id, {std::move(error), {}}, more);
      return nullptr;
    }
  }
  return entry == nullptr ? Begin(frame, input) : Land(entry, frame, input);
}

absl::Status BatchStream::Misplaced(const EntryPtr& entry, const BatchFrame& frame) const {
  if (entry == nullptr && frame.begin == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame_seq ", frame.frame_seq, " came for a batch that was not begun"));
  }
  if (entry != nullptr && frame.begin != nullptr) {
    return absl::InvalidArgumentError(
        "the batch was begun again before it was answered; an id names one batch at a time");
  }
  if (entry != nullptr && entry->phase != Phase::kReceiving) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame_seq ", frame.frame_seq, " came after the last frame"));
  }
  return absl::OkStatus();
}

BatchStream::EntryPtr BatchStream::Begin(const BatchFrame& frame, absl::Time input) {
  auto entry = std::make_shared<Entry>();
  entry->id = frame.batch_id;
  entry->begun = entry->moved = input;
  std::optional<BatchError> error;
  absl::StatusOr<BatchBegin> begin = DecodeBatchBegin(*frame.begin, context_.limits);
  absl::Status refused = begin.status();
  if (begin.ok()) {
    const absl::StatusOr<Executor*> executor = context_.executors->Named(begin->executor);
    refused = executor.status();
    entry->executor = executor.value_or(nullptr);
  }
  if (!refused.ok()) {
    error = BatchError{std::move(refused), {}};
  } else if (!(error = Charge(entry, begin->total_bytes))) {
    auto batch = ArrivingBatch::Make(*std::move(begin), context_.limits);
    absl::Status status = batch.status();
    if (batch.ok()) {
      entry->batch = *std::move(batch);
      absl::MutexLock lock(&mu_);
      error = Reserve(entry);
    }
    if (status.ok() && !error) status = entry->batch->TakeMemory(*context_.pool);
    if (!status.ok()) error = BatchError{ToPeer(status), {}};
  }
  if (!error) return Land(entry, frame, input);
  absl::MutexLock lock(&mu_);
  if (!entry->dead) Refuse(frame.batch_id, *std::move(error), !frame.last);
  return nullptr;
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
  if (end_ || abandoned_) {  // since the frame was looked at
    entry->dead = true;
    return BatchError{absl::CancelledError("the stream has ended"), {}};
  }
  entry->charge = {bytes, 1};
  charged_.bytes += bytes;
  ++charged_.batches;
  entries_[entry->id] = entry;
  ++context_.counters->batches;
  return std::nullopt;
}

// Asks for what the batch needs and does not have yet.
std::optional<BatchError> BatchStream::Reserve(const EntryPtr& entry) {
  const int64_t missing = entry->batch->memory_bytes() - entry->reserved;
  if (entry->dead || missing <= 0) return std::nullopt;
  if (entry->batch->total_bytes() > static_cast<int64_t>(context_.pool->max_bytes())) {
    return std::nullopt;  // the pool says so, and that it stays so
  }
  if (!context_.shares->Reserve(peer_, missing, entry->reserved)) {
    return BatchError{absl::ResourceExhaustedError(absl::StrCat(
                          "batches of this connection hold ", context_.shares->held(peer_),
                          " bytes of memory; ", missing, " more would pass its share of ",
                          context_.shares->max_bytes(), ": wait for answers")),
                      kRetrySoonMs};
  }
  entry->reserved += missing;
  return std::nullopt;
}

BatchStream::EntryPtr BatchStream::Land(const EntryPtr& entry, const BatchFrame& frame,
                                        absl::Time input) {
  absl::Status status = entry->batch->Land(frame);
  if (status.ok() && frame.last) status = entry->batch->CheckComplete();
  absl::MutexLock lock(&mu_);
  if (entry->dead) {  // given up meanwhile; what is still to come of it is dropped
    if (frame.last) dropping_.erase(entry->id);
    return nullptr;
  }
  if (frame.body.size > 0) entry->moved = input;
  std::optional<BatchError> error;
  if (!status.ok()) error = BatchError{ToPeer(status), {}};
  if (!error) error = Reserve(entry);  // a plan that came with these bytes may need more
  if (error) {
    Refuse(entry->id, *std::move(error), !frame.last);
    return nullptr;
  }
  if (!frame.last) return nullptr;
  entry->phase = Phase::kReady;
  ready_.push_back(entry);
  return StartSharding(/*one_here=*/true);
}

void BatchStream::OnInputEnd() {
  {
    absl::MutexLock lock(&mu_);
    if (end_ || abandoned_) return;
    for (const EntryPtr& entry : Receiving()) {
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
  for (const EntryPtr& entry : Receiving()) Remove(entry);
}

bool BatchStream::WantsInput() const {
  absl::MutexLock lock(&mu_);
  return !end_ && !abandoned_ && outgoing_.size() < kMaxQueuedAnswers;
}

std::vector<BatchStream::EntryPtr> BatchStream::Receiving() const {
  std::vector<EntryPtr> receiving;
  for (const auto& [id, entry] : entries_) {
    if (entry->phase == Phase::kReceiving) receiving.push_back(entry);
  }
  return receiving;
}

BatchStream::EntryPtr BatchStream::Find(uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second;
}

}  // namespace cpshard
