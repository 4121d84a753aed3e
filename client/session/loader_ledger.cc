#include "client/session/loader_ledger.h"

#include <utility>

#include "client/session/outgoing_stream.h"

namespace cpshard {

LoaderLedger::LoaderLedger(LoaderHello hello) : hello_(std::move(hello)) {
  for (const LoaderStream& stream : std::exchange(hello_.streams, {})) {
    streams_.emplace(stream.name, std::make_unique<OutgoingStream>(stream.name, hello_.loader,
                                                                   hello_.num_loaders));
  }
}

LoaderLedger::~LoaderLedger() = default;
LoaderLedger::LoaderLedger(LoaderLedger&&) noexcept = default;
LoaderLedger& LoaderLedger::operator=(LoaderLedger&&) noexcept = default;

OutgoingStream* LoaderLedger::Find(const std::string& stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

void LoaderLedger::Fail(absl::Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

// --- connection

LoaderHello LoaderLedger::HelloMessage() const {
  LoaderHello hello = hello_;
  for (const auto& [name, stream] : streams_) hello.streams.push_back(stream->State());
  return hello;
}

void LoaderLedger::Connected() { connected_ = true; }

void LoaderLedger::Disconnected() {
  connected_ = false;
  for (const auto& [name, stream] : streams_) stream->Disconnected();
}

// --- from the server

void LoaderLedger::OnPosition(const Position& position) {
  OutgoingStream* stream = Find(position.stream);
  if (!connected_ || stream == nullptr || position.generation < hello_.generation_seen) return;
  if (position.generation > hello_.generation_seen) {
    hello_.generation_seen = position.generation;
    for (const auto& [name, other] : streams_) other->ForgetReleased();
  }
  stream->Place(position);
}

void LoaderLedger::OnCredit(const LoaderCredit& credit) {
  OutgoingStream* stream = Find(credit.at.stream);
  if (connected_ && stream != nullptr) stream->Credit(credit, next_order_++);
}

void LoaderLedger::OnAck(const StepAddress& at, int64_t epoch, int64_t microbatch,
                         const absl::Status& status) {
  OutgoingStream* stream = Find(at.stream);
  if (connected_ && stream != nullptr) Fail(stream->Ack(at, epoch, microbatch, status));
}

void LoaderLedger::OnReleased(const Released& released) {
  OutgoingStream* stream = Find(released.stream);
  if (connected_ && stream != nullptr) stream->Release(released);
}

void LoaderLedger::OnPassDone(const PassDone& done) {
  OutgoingStream* stream = Find(done.stream);
  if (connected_ && stream != nullptr) stream->LeavePass(done);
}

std::vector<MadeStep> LoaderLedger::TakeDropped() {
  std::vector<MadeStep> dropped;
  for (const auto& [name, stream] : streams_) {
    for (MadeStep& step : stream->TakeDropped()) dropped.push_back(std::move(step));
  }
  return dropped;
}

// --- the source

std::optional<LoaderLedger::Work> LoaderLedger::NextWork() const {
  if (!failure_.ok() || streams_.empty()) return std::nullopt;
  auto stream = streams_.upper_bound(last_made_);
  for (size_t i = 0; i < streams_.size(); ++i, ++stream) {
    if (stream == streams_.end()) stream = streams_.begin();
    if (std::optional<Work> work = stream->second->NextWork()) return work;
  }
  return std::nullopt;
}

void LoaderLedger::Made(const Work& work, MadeStep made) {
  last_made_ = work.stream;
  if (OutgoingStream* stream = Find(work.stream)) Fail(stream->Made(work, std::move(made)));
}

void LoaderLedger::MadeEnd(const Work& work, int64_t end_step) {
  last_made_ = work.stream;
  if (OutgoingStream* stream = Find(work.stream)) Fail(stream->MadeEnd(work, end_step));
}

// --- pushing

std::optional<LoaderLedger::Message> LoaderLedger::NextMessage() {
  if (!failure_.ok() || !connected_) return std::nullopt;
  OutgoingStream* first = nullptr;
  uint64_t first_order = 0;
  for (const auto& [name, stream] : streams_) {
    if (std::optional<EndOfStream> end = stream->TakeEnd()) return *std::move(end);
    const std::optional<uint64_t> order = stream->NextPush();
    if (order && (first == nullptr || *order < first_order)) {
      first = stream.get();
      first_order = *order;
    }
  }
  if (first == nullptr) return std::nullopt;
  absl::StatusOr<Push> push = first->TakePush();
  if (push.ok()) return *std::move(push);
  Fail(push.status());
  return std::nullopt;
}

bool LoaderLedger::postponed() const {
  for (const auto& [name, stream] : streams_) {
    if (stream->postponed()) return true;
  }
  return false;
}

void LoaderLedger::PushAgain() {
  for (const auto& [name, stream] : streams_) stream->PushAgain();
}

// --- looking

bool LoaderLedger::finished() const {
  for (const auto& [name, stream] : streams_) {
    if (!stream->finished()) return false;
  }
  return true;
}

int64_t LoaderLedger::held_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, stream] : streams_) bytes += stream->held_bytes();
  return bytes;
}

int64_t LoaderLedger::held_steps() const {
  int64_t steps = 0;
  for (const auto& [name, stream] : streams_) steps += stream->held_steps();
  return steps;
}

}  // namespace cpshard
