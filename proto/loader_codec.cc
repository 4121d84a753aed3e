// What a loader says and what it is told.
#include <utility>

#include "absl/status/status.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/session.pb.h"
#include "proto/field_checks.h"
#include "proto/frame_parts.h"
#include "proto/replies.h"
#include "proto/session_codec.h"
#include "proto/session_parts.h"
#include "proto/status_codec.h"

namespace cpshard {
namespace {

absl::StatusOr<Welcome> DecodeWelcome(const v1::Welcome& message) {
  FieldChecks checks("welcome");
  checks.Name("instance", message.instance());
  CPSHARD_RETURN_IF_ERROR(checks.status());
  return Welcome{message.instance()};
}

absl::StatusOr<Position> DecodePosition(const v1::Position& message) {
  Position position;
  position.generation = message.generation();
  position.stream = message.stream();
  position.pass = message.pass();
  position.epoch = message.epoch();
  position.from_step = message.from_step();
  position.landed.assign(message.landed().begin(), message.landed().end());
  if (message.has_state()) position.state = DecodeState(message.state());
  position.released = message.released();
  CPSHARD_RETURN_IF_ERROR(Check(position));
  return position;
}

absl::StatusOr<LoaderCredit> DecodeCredit(const v1::LoaderCredit& message) {
  LoaderCredit credit{DecodeAddress(message.at()), message.epoch(), message.bytes()};
  CPSHARD_RETURN_IF_ERROR(Check(credit));
  return credit;
}

absl::StatusOr<AckMessage> DecodeAck(const v1::Ack& message) {
  AckMessage ack{DecodeAddress(message.at()), message.epoch(), message.microbatch(), {}};
  FieldChecks checks("ack");
  checks.Address(ack.at);
  checks.Number("epoch", ack.epoch);
  checks.Number("microbatch", ack.microbatch);
  CPSHARD_RETURN_IF_ERROR(checks.status());
  if (message.has_status()) ack.status = DecodeStatus(message.status());
  return ack;
}

absl::StatusOr<Released> DecodeReleased(const v1::Released& message) {
  Released released{message.stream(), message.pass(), message.epoch(), message.before()};
  CPSHARD_RETURN_IF_ERROR(Check(released));
  return released;
}

absl::StatusOr<PassDone> DecodePassDone(const v1::PassDone& message) {
  PassDone done{message.stream(), message.pass(), message.finished()};
  CPSHARD_RETURN_IF_ERROR(Check(done));
  return done;
}

struct NoticeEncoder {
  v1::LoaderNotice* message;

  void operator()(const Welcome& welcome) const {
    message->mutable_welcome()->set_instance(welcome.instance);
  }
  void operator()(const Position& position) const {
    v1::Position* to = message->mutable_position();
    to->set_generation(position.generation);
    to->set_stream(position.stream);
    to->set_pass(position.pass);
    to->set_epoch(position.epoch);
    to->set_from_step(position.from_step);
    to->mutable_landed()->Add(position.landed.begin(), position.landed.end());
    if (position.state) EncodeState(*position.state, to->mutable_state());
    to->set_released(position.released);
  }
  void operator()(const LoaderCredit& credit) const {
    EncodeAddress(credit.at, message->mutable_credit()->mutable_at());
    message->mutable_credit()->set_epoch(credit.epoch);
    message->mutable_credit()->set_bytes(credit.bytes);
  }
  void operator()(const AckMessage& ack) const {
    v1::Ack* to = message->mutable_ack();
    EncodeAddress(ack.at, to->mutable_at());
    to->set_epoch(ack.epoch);
    to->set_microbatch(ack.microbatch);
    if (!ack.status.ok()) EncodeStatus(ack.status, to->mutable_status());
  }
  void operator()(const Released& released) const {
    v1::Released* to = message->mutable_released();
    to->set_stream(released.stream);
    to->set_pass(released.pass);
    to->set_epoch(released.epoch);
    to->set_before(released.before);
  }
  void operator()(const PassDone& done) const {
    v1::PassDone* to = message->mutable_pass_done();
    to->set_stream(done.stream);
    to->set_pass(done.pass);
    to->set_finished(done.finished);
  }
  void operator()(const DrainMessage&) const { message->mutable_drain(); }
};

}  // namespace

void EncodeHello(const LoaderHello& hello, v1::LoaderHello* message) {
  message->set_group(hello.group);
  message->set_loader(hello.loader);
  message->set_num_loaders(hello.num_loaders);
  message->set_incarnation(hello.incarnation);
  message->set_generation_seen(hello.generation_seen);
  for (const LoaderStream& stream : hello.streams) {
    v1::LoaderStream* to = message->add_streams();
    to->set_name(stream.name);
    to->set_pass(stream.pass);
    to->set_released(stream.released);
    to->set_held_from(stream.held_from);
  }
}

absl::StatusOr<LoaderHello> DecodeHello(const v1::LoaderHello& message) {
  LoaderHello hello;
  hello.group = message.group();
  hello.loader = message.loader();
  hello.num_loaders = message.num_loaders();
  hello.incarnation = message.incarnation();
  hello.generation_seen = message.generation_seen();
  for (const v1::LoaderStream& from : message.streams()) {
    hello.streams.push_back({from.name(), from.pass(), from.released(), from.held_from()});
  }
  CPSHARD_RETURN_IF_ERROR(Check(hello));
  return hello;
}

void EncodePush(const PushHead& push, v1::PushHead* message) {
  EncodeAddress(push.at, message->mutable_at());
  message->set_epoch(push.epoch);
  message->set_microbatch(push.microbatch);
  message->set_last_microbatch(push.last_microbatch);
  if (push.totals) EncodeStepTotals(*push.totals, message->mutable_totals());
  if (push.digest) message->set_digest(*push.digest);
  if (push.state) message->set_state(*push.state);
}

absl::StatusOr<PushHead> DecodePush(const v1::PushHead& message) {
  PushHead push;
  push.at = DecodeAddress(message.at());
  push.epoch = message.epoch();
  push.microbatch = message.microbatch();
  push.last_microbatch = message.last_microbatch();
  if (message.has_totals()) push.totals = DecodeStepTotals(message.totals());
  if (message.has_digest()) push.digest = message.digest();
  if (message.has_state()) push.state = message.state();
  CPSHARD_RETURN_IF_ERROR(Check(push));
  return push;
}

void EncodeEnd(const EndOfStream& end, v1::EndOfStream* message) {
  message->set_stream(end.stream);
  message->set_pass(end.pass);
  message->set_epoch(end.epoch);
  message->set_end_step(end.end_step);
}

absl::StatusOr<EndOfStream> DecodeEnd(const v1::EndOfStream& message) {
  EndOfStream end{message.stream(), message.pass(), message.epoch(), message.end_step()};
  CPSHARD_RETURN_IF_ERROR(Check(end));
  return end;
}

absl::StatusOr<LoaderNotice> DecodeLoaderNotice(absl::Span<const Bytes> message) {
  v1::LoaderNotice notice;
  CPSHARD_RETURN_IF_ERROR(ParseMessage(message, "LoaderNotice", kMaxMessageBytes, &notice));
  switch (notice.notice_case()) {
    case v1::LoaderNotice::kWelcome:
      return DecodeWelcome(notice.welcome());
    case v1::LoaderNotice::kPosition:
      return DecodePosition(notice.position());
    case v1::LoaderNotice::kCredit:
      return DecodeCredit(notice.credit());
    case v1::LoaderNotice::kAck:
      return DecodeAck(notice.ack());
    case v1::LoaderNotice::kReleased:
      return DecodeReleased(notice.released());
    case v1::LoaderNotice::kPassDone:
      return DecodePassDone(notice.pass_done());
    case v1::LoaderNotice::kDrain:
      return DrainMessage();
    case v1::LoaderNotice::NOTICE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a LoaderNotice says nothing that this version knows");
}

std::string EncodeLoaderNotice(const LoaderNotice& notice) {
  v1::LoaderNotice message;
  std::visit(NoticeEncoder{&message}, notice);
  return message.SerializeAsString();
}

}  // namespace cpshard
