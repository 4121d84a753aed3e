#include "client/session/reader_ledger.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/session/incoming_stream.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

std::string TextOf(const StepAddress& at) {
  return absl::StrCat("step ", at.step, " of data stream '", at.stream, "' pass ", at.pass);
}

std::optional<int64_t> EndIn(const ErrorDetails& details) {
  const auto value = details.values.find("end_step");
  int64_t end = 0;
  if (details.reason != "END_OF_STREAM" || value == details.values.end() ||
      !absl::SimpleAtoi(value->second, &end)) {
    return std::nullopt;
  }
  return end;
}

// The next step of every data stream can be asked for, whatever is prefetched.
bool MayAsk(size_t asked, int64_t ahead, size_t streams) {
  return asked + (ahead == 0 ? 0 : streams) < static_cast<size_t>(kMaxWants);
}

// Something that time mends.
bool IsPostponement(const absl::Status& status, const ErrorDetails& details) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         (absl::IsAborted(status) && details.reason == "PEER_LEFT");
}

}  // namespace

ReaderLedger::ReaderLedger(OpenSession open, int64_t prefetch)
    : open_(std::move(open)), prefetch_(prefetch) {
  for (const ReaderStream& stream : std::exchange(open_.streams, {})) {
    streams_.emplace(stream.name, std::make_unique<IncomingStream>(stream));
  }
}

ReaderLedger::~ReaderLedger() = default;
ReaderLedger::ReaderLedger(ReaderLedger&&) noexcept = default;
ReaderLedger& ReaderLedger::operator=(ReaderLedger&&) noexcept = default;

IncomingStream* ReaderLedger::Find(const std::string& stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

// --- connection

OpenSession ReaderLedger::OpenMessage() {
  OpenSession open = open_;
  for (const auto& [name, stream] : streams_) {
    open.streams.push_back(stream->State());
    stream->Told();
  }
  return open;
}

absl::Status ReaderLedger::OnOpened(const OpenedSession& opened) {
  if (opened.generation != open_.generation) {
    return absl::FailedPreconditionError(absl::StrCat("group '", open_.group, "': generation ",
                                                      open_.generation, " was to be opened, and ",
                                                      opened.generation, " was"));
  }
  for (const OpenedStream& stream : opened.streams) {
    IncomingStream* ours = Find(stream.name);
    if (ours == nullptr) continue;
    if (absl::Status status = ours->Opened(stream); !status.ok()) return status;
  }
  Disconnected();
  opened_ = true;
  return absl::OkStatus();
}

void ReaderLedger::Disconnected() {
  opened_ = false;
  asked_.clear();
  for (const auto& [name, stream] : streams_) stream->Disconnected();
}

// --- requests

std::vector<ReaderLedger::Request> ReaderLedger::TakeRequests() {
  std::vector<Request> requests;
  if (!opened_) return requests;
  // What makes room at the server comes before what needs it.
  for (const auto& [name, stream] : streams_) {
    for (Request& news : stream->TakeNews()) requests.push_back(std::move(news));
  }
  const int64_t furthest = RoomIsShort() ? 0 : prefetch_;
  for (int64_t ahead = 0; ahead <= furthest; ++ahead) {
    if (!MayAsk(asked_.size(), ahead, streams_.size())) break;
    TakeWants(ahead, &requests);
  }
  return requests;
}

void ReaderLedger::TakeWants(int64_t ahead, std::vector<Request>* requests) {
  const bool only_awaited = RoomIsShort();
  for (const auto& [name, stream] : streams_) {
    if (!MayAsk(asked_.size(), ahead, streams_.size())) return;
    if (only_awaited && awaited_.count(name) == 0) continue;
    const std::optional<int64_t> step = stream->TakeStep(ahead);
    if (!step) continue;
    Want want;
    want.id = next_id_++;
    want.at = {name, stream->pass(), *step};
    const int64_t held = stream->Held(*step);
    if (held > 0) want.from_microbatch = held;
    asked_[want.id] = {want.at, held};
    requests->push_back(std::move(want));
  }
}

bool ReaderLedger::postponed() const {
  for (const auto& [name, stream] : streams_) {
    if (stream->postponed()) return true;
  }
  return false;
}

void ReaderLedger::AskAgain() {
  for (const auto& [name, stream] : streams_) stream->AskAgain();
}

// --- answers

absl::Status ReaderLedger::OnDelivery(ReceivedShard received) {
  const DeliveryHead& head = received.head;
  const auto asked = asked_.find(head.id);
  if (asked == asked_.end()) {
    // Its request is answered, or of a pass that was left, or of a connection that is gone.
    if (head.id > 0 && head.id < next_id_) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(TextOf(head.at), " came for request ", head.id, ", which was not made"));
  }
  Asked& request = asked->second;
  if (head.at != request.at) {
    return absl::InternalError(absl::StrCat("request ", head.id, " is for ", TextOf(request.at),
                                            ", and ", TextOf(head.at), " came"));
  }
  if (head.microbatch < 0 || head.microbatch > request.next_microbatch) {
    return absl::InternalError(absl::StrCat(TextOf(head.at), ": microbatch ", head.microbatch,
                                            " came before microbatch ", request.next_microbatch));
  }
  // A server that has not sent what is here begins anew.
  if (!std::exchange(request.begun, true)) request.next_microbatch = head.microbatch;
  if (head.microbatch < request.next_microbatch) return absl::OkStatus();
  IncomingStream* stream = Find(request.at.stream);
  const bool last = head.last;
  if (absl::Status status = stream->Receive(std::move(received)); !status.ok()) return status;
  ++request.next_microbatch;
  if (last) asked_.erase(asked);
  return absl::OkStatus();
}

void ReaderLedger::OnRequestStatus(uint64_t id, const absl::Status& status) {
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return;
  const StepAddress at = asked->second.at;
  asked_.erase(asked);
  IncomingStream* stream = Find(at.stream);
  const ErrorDetails details = DetailsOf(status).value_or(ErrorDetails{});
  const std::optional<int64_t> end = EndIn(details);
  if (absl::IsDeadlineExceeded(status)) {
    stream->AskAtOnce(at.step);
  } else if (IsPostponement(status, details)) {
    stream->Postpone(at.step);
  } else if (absl::IsOutOfRange(status) && end) {
    stream->End(at.step, *end);
  } else if (status.ok()) {
    stream->Fail(absl::InternalError(absl::StrCat(TextOf(at), " was answered without shards")));
  } else {
    stream->Fail(status);
  }
}

void ReaderLedger::OnNoMemory(uint64_t id) {
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return;
  const StepAddress at = asked->second.at;
  asked_.erase(asked);
  IncomingStream* const ours = Find(at.stream);
  ours->Postpone(at.step);
  LetGoBehind(at.stream, at.step);
  if (awaited_.count(at.stream) == 0 || !ours->IsFront(at.step)) return;
  lack_memory_.insert(at.stream);
  for (const auto& [name, other] : streams_) {
    const int64_t keeps = awaited_.count(name) > 0 ? 1 : 0;
    if (name != at.stream) LetGoBehind(name, other->front() - 1 + keeps);
  }
}

// Of a step that was partly here the rest, which is under way, is not taken any more.
void ReaderLedger::LetGoBehind(const std::string& stream, int64_t step) {
  Find(stream)->LetGoBehind(step);
  std::erase_if(asked_, [&](const auto& asked) {
    const Asked& request = asked.second;
    return request.at.stream == stream && request.at.step > step && request.begun;
  });
}

bool ReaderLedger::RoomIsShort() const {
  for (const std::string& stream : lack_memory_) {
    if (!Ready(stream)) return true;
  }
  return false;
}

bool ReaderLedger::Lands(uint64_t id) const {
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return id == 0 || id >= next_id_;  // for OnDelivery to refuse
  const StepAddress& at = asked->second.at;
  return !RoomIsShort() || (awaited_.count(at.stream) > 0 && Find(at.stream)->IsFront(at.step));
}

// --- the trainer

void ReaderLedger::StopAwaiting(const std::string& stream) {
  awaited_.erase(stream);
  lack_memory_.erase(stream);
}

void ReaderLedger::StartPass(const std::string& stream) {
  if (IncomingStream* ours = Find(stream)) ours->StartPass();
}

bool ReaderLedger::Ready(const std::string& stream) const {
  const IncomingStream* ours = Find(stream);
  return ours == nullptr || ours->Ready();
}

std::variant<ReceivedStep, EndOfPass, absl::Status> ReaderLedger::Next(const std::string& stream) {
  lack_memory_.erase(stream);
  if (IncomingStream* ours = Find(stream)) return ours->Next();
  return absl::NotFoundError(
      absl::StrCat("this session was opened without a data stream '", stream, "'"));
}

void ReaderLedger::Consumed(const std::string& stream) {
  if (IncomingStream* ours = Find(stream)) ours->Consume();
}

void ReaderLedger::ClosePass(const std::string& stream, bool finished) {
  IncomingStream* ours = Find(stream);
  if (ours == nullptr) return;
  const int64_t pass = ours->pass();
  ours->ClosePass(finished);
  if (ours->pass() == pass) return;
  std::erase_if(asked_, [&](const auto& asked) { return asked.second.at.stream == stream; });
}

ReaderStream ReaderLedger::StateOf(const std::string& stream) const {
  if (const IncomingStream* ours = Find(stream)) return ours->State();
  ReaderStream unknown;
  unknown.name = stream;
  return unknown;
}

}  // namespace cpshard
