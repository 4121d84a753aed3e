// OpenSession and CloseSession.
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/session.pb.h"
#include "proto/executor_codec.h"
#include "proto/field_checks.h"
#include "proto/options.h"
#include "proto/replies.h"
#include "proto/session_checks.h"
#include "proto/session_codec.h"
#include "proto/session_parts.h"

namespace cpshard {
namespace {

constexpr char kInline[] = "inline";

void EncodeReaderStream(const ReaderStream& stream, v1::ReaderStream* message) {
  message->set_name(stream.name);
  message->set_pass(stream.pass);
  message->set_next_step(stream.next_step);
  if (stream.received >= 0) message->set_received(stream.received);
  message->set_closed(stream.closed);
  message->set_finished(stream.finished);
  message->set_max_step_bytes(stream.max_step_bytes);
  if (stream.resume) EncodeResume(*stream.resume, message->mutable_resume());
}

absl::StatusOr<ReaderStream> DecodeReaderStream(const v1::ReaderStream& message) {
  ReaderStream stream;
  stream.name = message.name();
  stream.pass = message.pass();
  stream.next_step = message.next_step();
  if (message.has_received()) {
    stream.received = message.received();
    if (stream.received < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("open_session: stream '", absl::CHexEscape(stream.name), "': received is ",
                       stream.received, "; leave it out where no step has been received"));
    }
  }
  stream.closed = message.closed();
  stream.finished = message.finished();
  stream.max_step_bytes = message.max_step_bytes();
  if (message.has_resume()) stream.resume = DecodeResume(message.resume());
  return stream;
}

// The states of many loaders may be more than a message can have.
absl::Status CheckSize(const v1::OpenSessionRequest& message) {
  const auto size = static_cast<int64_t>(message.ByteSizeLong());
  if (size <= kMaxMessageBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("open_session has ", size, " bytes, over the ", kMaxMessageBytes,
                   " of a message; its resume states need smaller states or fewer loaders"));
}

}  // namespace

absl::StatusOr<OpenSession> DecodeOpenSession(const v1::OpenSessionRequest& message) {
  // Before they are decoded: empty ones have two bytes each, and take hundreds.
  FieldChecks sizes("open_session");
  sizes.Size("streams", message.streams_size(), kMaxDataStreams);
  sizes.Size("resume", message.resume().size(), kMaxDataStreams);
  CPSHARD_RETURN_IF_ERROR(sizes.status());
  OpenSession open;
  open.group = message.group();
  open.generation = message.generation();
  open.attempt = message.attempt();
  open.cp_size = message.cp_size();
  if (message.has_readers_per_rank()) open.readers_per_rank = message.readers_per_rank();
  open.fingerprint = message.fingerprint();
  open.job = message.job();
  if (message.has_job_groups()) open.job_groups = message.job_groups();
  open.resume = {message.resume().begin(), message.resume().end()};
  open.reader = message.reader();
  open.cp_rank = message.cp_rank();
  open.incarnation = message.incarnation();
  for (const v1::ReaderStream& stream : message.streams()) {
    CPSHARD_ASSIGN_OR_RETURN(ReaderStream decoded, DecodeReaderStream(stream));
    open.streams.push_back(std::move(decoded));
  }
  CPSHARD_RETURN_IF_ERROR(Check(open));
  CPSHARD_ASSIGN_OR_RETURN(open.executor, DecodeExecutor(message.executor()));
  const Options options(message.options());
  CPSHARD_RETURN_IF_ERROR(options.MakeSharder().status());
  open.options = options.ToBytes();
  return open;
}

absl::Status EncodeOpenSession(const OpenSession& open, v1::OpenSessionRequest* message) {
  CPSHARD_RETURN_IF_ERROR(Check(open));
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromBytes(open.options));
  message->set_group(open.group);
  message->set_generation(open.generation);
  message->set_attempt(open.attempt);
  message->set_cp_size(open.cp_size);
  message->set_readers_per_rank(open.readers_per_rank);
  *message->mutable_options() = options.message();
  message->set_fingerprint(open.fingerprint);
  message->set_job(open.job);
  message->set_job_groups(open.job_groups);
  message->set_executor(EncodeExecutor(open.executor));
  for (const auto& [stream, step] : open.resume) (*message->mutable_resume())[stream] = step;
  message->set_reader(open.reader);
  message->set_cp_rank(open.cp_rank);
  message->set_incarnation(open.incarnation);
  for (const ReaderStream& stream : open.streams) {
    EncodeReaderStream(stream, message->add_streams());
  }
  return CheckSize(*message);
}

void EncodeOpenedSession(const OpenedSession& opened, v1::OpenSessionReply* message) {
  message->set_instance(opened.instance);
  message->set_generation(opened.generation);
  message->set_executor(opened.executor);
  for (const OpenedStream& stream : opened.streams) {
    v1::OpenedStream* to = message->add_streams();
    to->set_name(stream.name);
    to->set_pass(stream.pass);
    if (stream.floor) to->set_floor(*stream.floor);
    if (stream.resume) EncodeResume(*stream.resume, to->mutable_resume());
  }
  message->mutable_hand_off()->set_mode(kInline);
}

absl::StatusOr<OpenedSession> DecodeOpenedSession(const v1::OpenSessionReply& message) {
  OpenedSession opened;
  opened.instance = message.instance();
  opened.generation = message.generation();
  opened.executor = message.executor();
  for (const v1::OpenedStream& from : message.streams()) {
    OpenedStream stream{from.name(), from.pass(), std::nullopt, std::nullopt};
    if (from.has_floor()) stream.floor = from.floor();
    if (from.has_resume()) stream.resume = DecodeResume(from.resume());
    opened.streams.push_back(std::move(stream));
  }
  CPSHARD_RETURN_IF_ERROR(Check(opened));
  if (message.hand_off().mode() != kInline) {
    return absl::UnimplementedError(absl::StrCat("the server hands shards over by '",
                                                 absl::CHexEscape(message.hand_off().mode()),
                                                 "'; this client takes them '", kInline, "' only"));
  }
  return opened;
}

absl::StatusOr<SessionName> DecodeCloseSession(const v1::CloseSessionRequest& message) {
  return DecodeSessionName(message.session());
}

void EncodeCloseSession(const SessionName& session, v1::CloseSessionRequest* message) {
  EncodeSessionName(session, message->mutable_session());
}

}  // namespace cpshard
