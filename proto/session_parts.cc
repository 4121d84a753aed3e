#include "proto/session_parts.h"

#include "core/plan/status_macros.h"
#include "proto/session_checks.h"

namespace cpshard {

void EncodeAddress(const StepAddress& at, v1::StepAddress* message) {
  message->set_stream(at.stream);
  message->set_pass(at.pass);
  message->set_step(at.step);
}

StepAddress DecodeAddress(const v1::StepAddress& message) {
  return {message.stream(), message.pass(), message.step()};
}

void EncodeState(const LoaderState& state, v1::LoaderState* message) {
  message->set_step(state.step);
  message->set_state(state.state);
}

LoaderState DecodeState(const v1::LoaderState& message) {
  return {message.step(), message.state()};
}

void EncodeResume(const ResumeState& resume, v1::ResumeState* message) {
  message->set_num_loaders(resume.num_loaders);
  for (const auto& [loader, state] : resume.loaders) {
    EncodeState(state, &(*message->mutable_loaders())[loader]);
  }
}

ResumeState DecodeResume(const v1::ResumeState& message) {
  ResumeState resume;
  resume.num_loaders = message.num_loaders();
  for (const auto& [loader, state] : message.loaders()) {
    resume.loaders[loader] = DecodeState(state);
  }
  return resume;
}

void EncodeStepTotals(const StepTotals& totals, v1::StepTotals* message) {
  message->set_num_microbatches(totals.num_microbatches);
  if (totals.num_label_tokens) message->set_num_label_tokens(*totals.num_label_tokens);
  if (totals.num_tokens_excl_tail_pad) {
    message->set_num_tokens_excl_tail_pad(*totals.num_tokens_excl_tail_pad);
  }
}

StepTotals DecodeStepTotals(const v1::StepTotals& message) {
  StepTotals totals;
  totals.num_microbatches = message.num_microbatches();
  if (message.has_num_label_tokens()) totals.num_label_tokens = message.num_label_tokens();
  if (message.has_num_tokens_excl_tail_pad()) {
    totals.num_tokens_excl_tail_pad = message.num_tokens_excl_tail_pad();
  }
  return totals;
}

void EncodeStall(const StallTime& stall, v1::StallTime* message) {
  message->set_loader(stall.loader);
  message->set_peer(stall.peer);
  message->set_server(stall.server);
  message->set_copy(stall.copy);
}

StallTime DecodeStall(const v1::StallTime& message) {
  return {message.loader(), message.peer(), message.server(), message.copy()};
}

void EncodeSessionName(const SessionName& session, v1::SessionName* message) {
  message->set_group(session.group);
  message->set_generation(session.generation);
  message->set_reader(session.reader);
  message->set_incarnation(session.incarnation);
}

absl::StatusOr<SessionName> DecodeSessionName(const v1::SessionName& message) {
  SessionName session{message.group(), message.generation(), message.reader(),
                      message.incarnation()};
  CPSHARD_RETURN_IF_ERROR(Check(session));
  return session;
}

}  // namespace cpshard
