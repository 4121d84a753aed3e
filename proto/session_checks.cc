#include "proto/session_checks.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "proto/field_checks.h"

namespace cpshard {
namespace {

void CheckState(absl::string_view field, const std::string& state, FieldChecks* checks) {
  if (static_cast<int64_t>(state.size()) <= kMaxLoaderStateBytes) return;
  checks->Fail(absl::StrCat(field, " has ", state.size(), " bytes, over the ", kMaxLoaderStateBytes,
                            " of a loader's state"));
}

// `latest`: the step whose resume state it is.
absl::Status CheckResume(const ResumeState& resume, int64_t latest) {
  FieldChecks checks("resume");
  checks.Number("num_loaders", resume.num_loaders, 0, kMaxCount);
  for (const auto& [loader, state] : resume.loaders) {
    if (loader < 0 || loader >= resume.num_loaders) {
      checks.Fail(absl::StrCat("loader ", loader, " is not one of ", resume.num_loaders));
    }
    if (!checks.ok()) break;
    checks.Number(absl::StrCat("step of loader ", loader), state.step, 0, latest);
    if (state.step % resume.num_loaders != loader) {
      checks.Fail(absl::StrCat("step ", state.step, " is not one of loader ", loader, " of ",
                               resume.num_loaders));
    }
    CheckState(absl::StrCat("state of loader ", loader), state.state, &checks);
  }
  return checks.status();
}

absl::Status CheckTotals(const StepTotals& totals) {
  FieldChecks checks("totals");
  checks.Number("num_microbatches", totals.num_microbatches, 1, kMaxCount);
  checks.Number("num_label_tokens", totals.num_label_tokens.value_or(0));
  checks.Number("num_tokens_excl_tail_pad", totals.num_tokens_excl_tail_pad.value_or(0));
  return checks.status();
}

absl::Status CheckStream(const ReaderStream& stream) {
  FieldChecks checks(absl::StrCat("stream '", stream.name, "'"));
  checks.Number("pass", stream.pass);
  checks.Number("next_step", stream.next_step);
  checks.Number("received", stream.received, -1);
  if (stream.finished && !stream.closed) checks.Fail("it is finished, but not closed");
  checks.Number("max_step_bytes", stream.max_step_bytes, stream.finished ? 0 : 1, kMaxStepBytes);
  if (stream.resume) checks.Part(CheckResume(*stream.resume, stream.next_step - 1));
  return checks.status();
}

absl::Status CheckStream(const LoaderStream& stream) {
  FieldChecks checks(absl::StrCat("stream '", stream.name, "'"));
  checks.Number("pass", stream.pass);
  checks.Number("released", stream.released);
  checks.Number("held_from", stream.held_from);
  return checks.status();
}

absl::Status CheckStream(const OpenedStream& stream) {
  FieldChecks checks(absl::StrCat("stream '", stream.name, "'"));
  checks.Number("pass", stream.pass);
  checks.Number("floor", stream.floor.value_or(0));
  if (stream.resume) checks.Part(CheckResume(*stream.resume, kMaxNumber));
  return checks.status();
}

// Names first, so that texts can quote them.
template <typename Stream>
void CheckStreams(const std::vector<Stream>& streams, FieldChecks* checks) {
  checks->Size("streams", streams.size(), kMaxDataStreams);
  std::set<absl::string_view> names;
  for (const Stream& stream : streams) {
    checks->Name("name of a stream", stream.name);
    if (!checks->ok()) return;
    if (!names.insert(stream.name).second) {
      checks->Fail(absl::StrCat("stream '", stream.name, "' is named twice"));
    }
    checks->Part(CheckStream(stream));
  }
}

}  // namespace

absl::Status Check(const OpenSession& open) {
  FieldChecks checks("open_session");
  checks.Name("group", open.group);
  checks.Number("generation", open.generation);
  checks.NameOrNone("attempt", open.attempt);
  checks.Number("cp_size", open.cp_size, 1, kMaxCount);
  checks.Number("readers_per_rank", open.readers_per_rank, 1, kMaxCount);
  checks.NameOrNone("fingerprint", open.fingerprint);
  checks.NameOrNone("job", open.job);
  checks.Number("job_groups", open.job_groups, 1, kMaxCount);
  checks.Size("resume", open.resume.size(), kMaxDataStreams);
  for (const auto& [stream, step] : open.resume) {
    checks.Name("name of a stream in resume", stream);
    if (!checks.ok()) break;
    checks.Number(absl::StrCat("resume of stream '", stream, "'"), step);
  }
  checks.Name("reader", open.reader);
  checks.Number("cp_rank", open.cp_rank, 0, open.cp_size - 1);
  checks.Number("incarnation", open.incarnation);
  CheckStreams(open.streams, &checks);
  return checks.status();
}

absl::Status Check(const OpenedSession& opened) {
  FieldChecks checks("opened_session");
  checks.Name("instance", opened.instance);
  checks.Number("generation", opened.generation);
  CheckStreams(opened.streams, &checks);
  return checks.status();
}

absl::Status Check(const SessionName& session) {
  FieldChecks checks("session");
  checks.Name("group", session.group);
  checks.Number("generation", session.generation);
  checks.Name("reader", session.reader);
  checks.Number("incarnation", session.incarnation);
  return checks.status();
}

absl::Status Check(const Want& want) {
  FieldChecks checks(absl::StrCat("want ", want.id));
  checks.Address(want.at);
  checks.Number("microbatch", want.microbatch.value_or(0), 0, kMaxCount - 1);
  checks.Number("from_microbatch", want.from_microbatch.value_or(0), 0, kMaxCount - 1);
  if (want.microbatch && want.from_microbatch) {
    checks.Fail(absl::StrCat("microbatch ", *want.microbatch,
                             " is asked for alone, and those from ", *want.from_microbatch,
                             " on: leave one of them out"));
  }
  checks.Number("timeout_ms", want.timeout_ms.value_or(0));
  checks.Size("keys", want.keys.size(), kMaxKeys);
  for (const std::string& key : want.keys) checks.Name("a key", key);
  return checks.status();
}

absl::Status Check(const Commit& commit) {
  FieldChecks checks("commit");
  checks.Address(commit.at);
  const StallTime stall = commit.stall.value_or(StallTime());
  checks.Number("stall.loader", stall.loader, 0, kMaxMicros);
  checks.Number("stall.peer", stall.peer, 0, kMaxMicros);
  checks.Number("stall.server", stall.server, 0, kMaxMicros);
  checks.Number("stall.copy", stall.copy, 0, kMaxMicros);
  checks.Number("elapsed_us", commit.elapsed_us, 0, kMaxMicros);
  return checks.status();
}

absl::Status Check(const PassClosed& closed) {
  FieldChecks checks("pass_closed");
  checks.Name("stream", closed.stream);
  checks.Number("pass", closed.pass);
  return checks.status();
}

absl::Status Check(const DeliveryHead& delivery) {
  FieldChecks checks("delivery");
  checks.Address(delivery.at);
  checks.Number("microbatch", delivery.microbatch, 0, kMaxCount - 1);
  if (delivery.totals) checks.Part(CheckTotals(*delivery.totals));
  checks.Number("num_loaders", delivery.num_loaders, 1, kMaxCount);
  checks.Number("owner", delivery.owner, 0, delivery.num_loaders - 1);
  if (delivery.owner_state) CheckState("owner_state", *delivery.owner_state, &checks);
  return checks.status();
}

absl::Status Check(const LoaderHello& hello) {
  FieldChecks checks("hello");
  checks.Name("group", hello.group);
  checks.Number("num_loaders", hello.num_loaders, 1, kMaxCount);
  checks.Number("loader", hello.loader, 0, hello.num_loaders - 1);
  checks.Number("incarnation", hello.incarnation);
  checks.Number("generation_seen", hello.generation_seen);
  CheckStreams(hello.streams, &checks);
  return checks.status();
}

absl::Status Check(const PushHead& push) {
  FieldChecks checks("push");
  checks.Address(push.at);
  checks.Number("epoch", push.epoch);
  checks.Number("microbatch", push.microbatch, 0, kMaxCount - 1);
  if (push.totals) checks.Part(CheckTotals(*push.totals));
  if (push.totals && push.microbatch != 0) {
    checks.Fail(absl::StrCat("totals stand with microbatch ", push.microbatch,
                             "; they are declared with microbatch 0"));
  }
  if (push.state && !push.last_microbatch) {
    checks.Fail(absl::StrCat("a state stands with microbatch ", push.microbatch,
                             ", which is not the last one of its step"));
  }
  if (push.state) CheckState("state", *push.state, &checks);
  return checks.status();
}

absl::Status Check(const EndOfStream& end) {
  FieldChecks checks("end");
  checks.Name("stream", end.stream);
  checks.Number("pass", end.pass);
  checks.Number("epoch", end.epoch);
  checks.Number("end_step", end.end_step);
  return checks.status();
}

absl::Status Check(const Position& position) {
  FieldChecks checks("position");
  checks.Number("generation", position.generation);
  checks.Name("stream", position.stream);
  checks.Number("pass", position.pass);
  checks.Number("epoch", position.epoch);
  checks.Number("from_step", position.from_step);
  checks.Size("landed", position.landed.size(), kMaxCount);
  for (int64_t microbatch : position.landed) checks.Number("landed", microbatch, 0, kMaxCount - 1);
  if (position.state) {
    checks.Number("step of the state", position.state->step, 0, position.from_step - 1);
    CheckState("state", position.state->state, &checks);
  }
  checks.Number("released", position.released);
  return checks.status();
}

absl::Status Check(const LoaderCredit& credit) {
  FieldChecks checks("credit");
  checks.Address(credit.at);
  checks.Number("epoch", credit.epoch);
  checks.Number("bytes", credit.bytes, 0, kMaxStepBytes);
  return checks.status();
}

absl::Status Check(const Released& released) {
  FieldChecks checks("released");
  checks.Name("stream", released.stream);
  checks.Number("pass", released.pass);
  checks.Number("epoch", released.epoch);
  checks.Number("before", released.before);
  return checks.status();
}

absl::Status Check(const PassDone& done) {
  FieldChecks checks("pass_done");
  checks.Name("stream", done.stream);
  checks.Number("pass", done.pass);
  return checks.status();
}

}  // namespace cpshard
