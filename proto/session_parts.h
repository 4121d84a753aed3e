// What messages of sessions are made of, on the wire. Used inside proto/ only. Decoders of parts
// check nothing: the messages they are in are checked whole (session_checks.h).
#pragma once

#include "absl/status/statusor.h"
#include "cpshard/v1/session.pb.h"
#include "proto/session_messages.h"

namespace cpshard {

void EncodeAddress(const StepAddress& at, v1::StepAddress* message);
StepAddress DecodeAddress(const v1::StepAddress& message);

void EncodeState(const LoaderState& state, v1::LoaderState* message);
LoaderState DecodeState(const v1::LoaderState& message);

void EncodeResume(const ResumeState& resume, v1::ResumeState* message);
ResumeState DecodeResume(const v1::ResumeState& message);

void EncodeStepTotals(const StepTotals& totals, v1::StepTotals* message);
StepTotals DecodeStepTotals(const v1::StepTotals& message);

void EncodeStall(const StallTime& stall, v1::StallTime* message);
StallTime DecodeStall(const v1::StallTime& message);

void EncodeSessionName(const SessionName& session, v1::SessionName* message);
absl::StatusOr<SessionName> DecodeSessionName(const v1::SessionName& message);

// Of frames; checked.
void EncodeDelivery(const DeliveryHead& delivery, v1::DeliveryHead* message);
absl::StatusOr<DeliveryHead> DecodeDelivery(const v1::DeliveryHead& message, uint64_t id);
void EncodePush(const PushHead& push, v1::PushHead* message);
absl::StatusOr<PushHead> DecodePush(const v1::PushHead& message);
void EncodeHello(const LoaderHello& hello, v1::LoaderHello* message);
absl::StatusOr<LoaderHello> DecodeHello(const v1::LoaderHello& message);
void EncodeEnd(const EndOfStream& end, v1::EndOfStream* message);
absl::StatusOr<EndOfStream> DecodeEnd(const v1::EndOfStream& message);

}  // namespace cpshard
