#include "client/session/loader_impl.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/outgoing_batch.h"
#include "core/batch/batch.h"
#include "core/batch/failpoint.h"
#include "core/plan/status_macros.h"
#include "core/plan/with_text.h"
#include "proto/error_details.h"
#include "proto/slices.h"

namespace cpshard {
namespace {

absl::StatusOr<MadeStep> LayOut(SourceStep step) {
  MadeStep made{.totals = step.totals, .state = std::move(step.state)};
  for (Batch& batch : step.microbatches) {
    const uint64_t digest = DigestOf(batch);
    CPSHARD_ASSIGN_OR_RETURN(OutgoingBatch laid_out, LayOutPushedBatch(std::move(batch)));
    const int64_t bytes = laid_out.total_bytes;
    made.microbatches.push_back(
        {std::make_shared<const OutgoingBatch>(std::move(laid_out)), bytes, digest});
  }
  return made;
}

// What a source or a batch is refused with, and where.
absl::Status At(const LoaderLedger::Work& work, const absl::Status& status) {
  return WithText(status, absl::StrCat("step ", work.step, " of data stream '", work.stream,
                                       "' pass ", work.pass, ": ", status.message()));
}

}  // namespace

Loader::Impl::Impl(Address address, std::unique_ptr<WakeupFd> wakeup, const LoaderOptions& options,
                   LoaderHello hello, std::map<std::string, StepSource*> sources)
    : SessionStream(std::move(address), std::move(wakeup), "/cpshard.v1.ShardService/PushBatches"),
      options_(options),
      sources_(std::move(sources)),
      encoder_(options.checksums),
      ledger_(std::move(hello)) {}

void Loader::Impl::StartThreads() {
  Start();
  source_thread_ = std::thread([this] { MakeSteps(); });
}

void Loader::Impl::Join() {
  Close();
  source_thread_.join();
}

absl::Status Loader::Impl::Wait() {
  absl::MutexLock lock(&mutex_);
  while (!ended_) changed_.Wait(&mutex_);
  return *ended_;
}

LoaderStats Loader::Impl::stats() const {
  absl::MutexLock lock(&mutex_);
  LoaderStats stats = stats_;
  stats.held_bytes = ledger_.held_bytes();
  stats.held_steps = ledger_.held_steps();
  return stats;
}

// --- the sources' thread

void Loader::Impl::MakeSteps() {
  while (const std::optional<LoaderLedger::Work> work = AwaitWork()) {
    const absl::Status status = Make(*work);
    if (!status.ok()) End(At(*work, status));
  }
}

// nullopt: the loader has ended.
std::optional<LoaderLedger::Work> Loader::Impl::AwaitWork() {
  absl::MutexLock lock(&mutex_);
  while (!ended_) {
    if (std::optional<LoaderLedger::Work> work = ledger_.NextWork()) return work;
    const bool holds = ledger_.held_steps() > 0;
    const absl::Time begin = SteadyNow();
    changed_.Wait(&mutex_);
    if (holds) stats_.waited += SteadyNow() - begin;
  }
  return std::nullopt;
}

absl::Status Loader::Impl::Make(const LoaderLedger::Work& work) {
  StepSource& source = *sources_.at(work.stream);
  if (work.rewind) {
    CPSHARD_RETURN_IF_ERROR(source.Rewind(work.pass, work.step, work.rewind->state));
    absl::MutexLock lock(&mutex_);
    ++stats_.rewinds;
  }
  CPSHARD_ASSIGN_OR_RETURN(std::optional<SourceStep> step, source.Make(work.pass, work.step));
  if (!step) {
    const int64_t end = source.EndStep(work.pass);
    Update([&] {
      mutex_.AssertHeld();
      ledger_.MadeEnd(work, end);
    });
    return absl::OkStatus();
  }
  CPSHARD_ASSIGN_OR_RETURN(MadeStep made, LayOut(*std::move(step)));
  std::vector<MadeStep> dropped;  // let go of without the lock
  Update([&] {
    mutex_.AssertHeld();
    ledger_.Made(work, std::move(made));
    dropped = ledger_.TakeDropped();
  });
  return absl::OkStatus();
}

// --- the connection

bool Loader::Impl::Postponed() const { return ledger_.postponed(); }

bool Loader::Impl::Owed() const { return unacknowledged_ > 0 || writing_ || hello_; }

void Loader::Impl::TryAgain() { ledger_.PushAgain(); }

std::optional<absl::Status> Loader::Impl::Outcome() const {
  if (!ledger_.failure().ok()) return ledger_.failure();
  if (ledger_.finished()) return absl::OkStatus();
  return std::nullopt;
}

absl::Status Loader::Impl::OnGreeted(const Greeted& greeted) {
  chunk_bytes_ = ChunkBytes(greeted.server.max_chunk_bytes);
  return absl::OkStatus();
}

void Loader::Impl::Connected() {
  ++stats_.connects;
  BatchFrame hello;
  hello.hello = ledger_.HelloMessage();
  hello_ = EncodeBatchFrame(hello, "", 0);
  ledger_.Connected();
}

void Loader::Impl::Disconnected() {
  ledger_.Disconnected();
  hello_.reset();
  cut_off_ = std::exchange(writing_, std::nullopt);
  wrote_body_ = false;
  unacknowledged_ = 0;
}

void Loader::Impl::OnTick() {
  std::optional<Writing> cut_off;
  {
    absl::MutexLock lock(&mutex_);
    cut_off = std::exchange(cut_off_, std::nullopt);
    if (!std::exchange(draining_, false) || ended_) return;
  }
  if (options_.on_drain) options_.on_drain();
}

void Loader::Impl::OnLost(const absl::Status& why) {
  if (options_.on_lost) options_.on_lost(why);
}

// --- what is written

std::optional<grpc::ByteBuffer> Loader::Impl::NextMessage() {
  std::optional<Outgoing> next;
  UpdateFromCall([&] {
    mutex_.AssertHeld();
    if (std::exchange(wrote_body_, false)) clock_.Wrote(SteadyNow());
    if (!ended_) next = TakeOutgoing();
  });
  // The message before this one is written.
  if (const char* const passed = std::exchange(written_, nullptr)) Failpoint(passed);
  if (!next) return std::nullopt;
  written_ = next->frame ? "after_push_frame" : next->is_hello ? "after_hello" : nullptr;
  if (next->frame) return encoder_.Encode(*next->frame, std::move(next->push));
  return ToMessage(next->header, {});
}

std::optional<Loader::Impl::Outgoing> Loader::Impl::TakeOutgoing() {
  if (hello_) {
    return Outgoing{.header = *std::exchange(hello_, std::nullopt), .is_hello = true};
  }
  if (!writing_) {
    std::optional<LoaderLedger::Message> message = ledger_.NextMessage();
    if (!message) return std::nullopt;
    if (auto* const end = std::get_if<EndOfStream>(&*message)) {
      BatchFrame frame;
      frame.end = std::move(*end);
      return Outgoing{.header = EncodeBatchFrame(frame, "", 0)};
    }
    writing_ = {next_wire_id_++, std::get<LoaderLedger::Push>(*std::move(message)), {}};
    ++unacknowledged_;
    ++stats_.pushed;
    const PushHead& head = writing_->push.head;
    const std::tuple pushed(head.at.pass, head.at.step, head.microbatch);
    const auto [last, is_first] = pushed_.try_emplace(head.at.stream, pushed);
    if (!is_first && pushed <= last->second) ++stats_.pushed_again;
    last->second = std::max(last->second, pushed);
  }
  return CutFrame();
}

Loader::Impl::Outgoing Loader::Impl::CutFrame() {
  const LoaderLedger::Push& push = writing_->push;
  Outgoing out;
  out.frame =
      writing_->cursor.Next(writing_->wire_id, push.batch.bytes, chunk_bytes_, options_.checksums);
  out.frame->batch = std::static_pointer_cast<const OutgoingBatch>(push.batch.batch);
  if (out.frame->seq == 0) out.push = push.head;
  wrote_body_ = out.frame->seq > 0 && out.frame->size > 0;
  if (out.frame->last) writing_.reset();
  return out;
}

// --- what is read

absl::Status Loader::Impl::OnMessage(const grpc::ByteBuffer& message) {
  const MessageSlices slices(message);
  const absl::StatusOr<LoaderNotice> notice = DecodeLoaderNotice(slices.spans());
  if (!notice.ok()) {
    return Broken(absl::StrCat("the server sent what is no notice: ", notice.status().message()));
  }
  std::vector<MadeStep> dropped;  // let go of without the lock
  const bool is_ack = std::holds_alternative<AckMessage>(*notice);
  if (is_ack) Failpoint("before_ack");
  Update([&] {
    mutex_.AssertHeld();
    clock_.Heard(SteadyNow());
    OnNotice(*notice);
    dropped = ledger_.TakeDropped();
  });
  if (is_ack) Failpoint("after_ack");
  if (std::holds_alternative<DrainMessage>(*notice)) WakeKeeper();
  return absl::OkStatus();
}

void Loader::Impl::OnNotice(const LoaderNotice& notice) {
  if (const auto* const ack = std::get_if<AckMessage>(&notice)) {
    OnAck(*ack);
  } else if (const auto* const position = std::get_if<Position>(&notice)) {
    unacknowledged_ = 0;  // what was pushed for another epoch is dropped without a word
    ledger_.OnPosition(*position);
  } else if (const auto* const credit = std::get_if<LoaderCredit>(&notice)) {
    ledger_.OnCredit(*credit);
  } else if (const auto* const released = std::get_if<Released>(&notice)) {
    ledger_.OnReleased(*released);
  } else if (const auto* const done = std::get_if<PassDone>(&notice)) {
    unacknowledged_ = 0;
    ledger_.OnPassDone(*done);
  } else if (std::holds_alternative<DrainMessage>(notice)) {
    draining_ = true;
  }
}

void Loader::Impl::OnAck(const AckMessage& ack) {
  if (unacknowledged_ > 0) --unacknowledged_;
  if (const auto details = DetailsOf(ack.status); details && details->retry_after) {
    clock_.PostponeFor(*details->retry_after);
  }
  ledger_.OnAck(ack.at, ack.epoch, ack.microbatch, ack.status);
}

}  // namespace cpshard
