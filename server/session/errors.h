// The refusals of delivery: code, reason, named values, and a text that says the way out.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/session_messages.h"

namespace cpshard {

std::string Name(const StepAddress& at);  // "train/12", of a later pass "val#2/12"

absl::Status StaleGeneration(absl::string_view group, int64_t yours, int64_t current);
absl::Status StaleIncarnation(absl::string_view who, int64_t yours, int64_t current);
absl::Status Replaced(absl::string_view who);
absl::Status Zombie(absl::string_view who, const StepAddress& next, int64_t floor);
absl::Status TermsDiffer(absl::string_view group, int64_t generation, absl::string_view field,
                         absl::string_view yours, absl::string_view theirs);
absl::Status DeclarationDiffers(absl::string_view group, absl::string_view field,
                                absl::string_view yours, absl::string_view declared);
absl::Status JobGroupsDiffer(absl::string_view job, absl::string_view group, int64_t yours,
                             absl::string_view other, int64_t theirs);
absl::Status LoadersDiffer(absl::string_view stream, int64_t yours, int64_t theirs);
absl::Status EndsDiffer(absl::string_view stream, int64_t loader, int64_t yours, int64_t other,
                        int64_t theirs);
absl::Status BeyondEnd(const StepAddress& at, int64_t end_step);   // for who pushes
absl::Status EndReached(const StepAddress& at, int64_t end_step);  // for who asks
absl::Status BelowFloor(const StepAddress& at, int64_t floor);
absl::Status AheadOfDelivery(const StepAddress& at, int64_t delivered);
absl::Status PeerLeft(absl::string_view reader, int64_t rank, int64_t last_step,
                      absl::Duration away);
absl::Status NotReady(const StepAddress& at, absl::string_view waiting_for);
absl::Status NoCredit(const StepAddress& at);
absl::Status StillLanding(const StepAddress& at, int64_t microbatch);
absl::Status TooMany(absl::string_view what);  // of groups, of requests, ...
absl::Status DataStreamsOverLimit(absl::string_view group, size_t named, int64_t most);
absl::Status BeyondWindow(const StepAddress& at, int64_t end);
absl::Status NoRoom(absl::string_view what, int64_t wanted, int64_t total, bool for_ever);
absl::Status DigestConflict(const StepAddress& at, int64_t microbatch, uint64_t first,
                            uint64_t now);
absl::Status TotalsDiffer(const StepAddress& at, absl::string_view what);
absl::Status NoState(const StepAddress& at);
absl::Status UnknownGroup(absl::string_view group, absl::string_view instance);
absl::Status UnknownStream(absl::string_view group, absl::string_view stream);
absl::Status UnknownReader(absl::string_view group, absl::string_view reader,
                           absl::string_view instance);
absl::Status NotInPass(absl::string_view text);
absl::Status NoSessions();  // on this server, ever
absl::Status Draining();

}  // namespace cpshard
