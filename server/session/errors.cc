#include "server/session/errors.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

constexpr absl::Duration kSoon = absl::Milliseconds(100);
constexpr absl::Duration kRestart = absl::Seconds(1);

using Values = std::map<std::string, std::string>;

absl::Status Refuse(absl::Status status, std::string reason, Values values = {},
                    std::optional<absl::Duration> retry = std::nullopt) {
  return WithDetails(std::move(status), {std::move(reason), std::move(values), retry});
}

std::string Str(int64_t value) { return absl::StrCat(value); }

}  // namespace

std::string Name(const StepAddress& at) {
  return at.pass == 0 ? absl::StrCat(at.stream, "/", at.step)
                      : absl::StrCat(at.stream, "#", at.pass, "/", at.step);
}

absl::Status StaleGeneration(absl::string_view group, int64_t yours, int64_t current) {
  return Refuse(absl::AbortedError(absl::StrCat(
                    "generation ", yours, " of group ", group, " is over, the current one is ",
                    current, ": only the launcher opens a new one; this process has to end")),
                "STALE_GENERATION", {{"generation", Str(current)}});
}

absl::Status StaleIncarnation(absl::string_view who, int64_t yours, int64_t current) {
  return Refuse(
      absl::AbortedError(absl::StrCat(who, " of incarnation ", yours, " was replaced by one of ",
                                      current, ": this process has to end")),
      "STALE_INCARNATION", {{"incarnation", Str(current)}});
}

absl::Status Replaced(absl::string_view who) {
  return Refuse(absl::AbortedError(absl::StrCat(who, " has a newer connection")), "REPLACED");
}

absl::Status Zombie(absl::string_view who, const StepAddress& next, int64_t floor) {
  return Refuse(absl::AbortedError(absl::StrCat(
                    who, " wants to go on at ", Name(next), ", but steps before ", floor,
                    " are released: a new generation has to start from a "
                    "checkpoint")),
                "ZOMBIE", {{"floor", Str(floor)}});
}

absl::Status TermsDiffer(absl::string_view group, int64_t generation, absl::string_view field,
                         absl::string_view yours, absl::string_view theirs) {
  return Refuse(
      absl::FailedPreconditionError(absl::StrCat(
          "generation ", generation, " of group ", group, " was opened with ", field, " ", theirs,
          ", not ", yours, ": all readers have to agree, or open generation ", generation + 1)),
      "TERMS_DIFFER",
      {{"field", std::string(field)},
       {"yours", std::string(yours)},
       {"theirs", std::string(theirs)}});
}

absl::Status DeclarationDiffers(absl::string_view group, absl::string_view field,
                                absl::string_view yours, absl::string_view declared) {
  return Refuse(absl::FailedPreconditionError(absl::StrCat(
                    "group ", group, " is declared in the server's configuration with ", field, " ",
                    declared, ", not ", yours, ": correct the one or the other")),
                "TERMS_DIFFER",
                {{"field", std::string(field)},
                 {"yours", std::string(yours)},
                 {"theirs", std::string(declared)}});
}

absl::Status JobGroupsDiffer(absl::string_view job, absl::string_view group, int64_t yours,
                             absl::string_view other, int64_t theirs) {
  return Refuse(absl::FailedPreconditionError(
                    absl::StrCat("group ", group, " says that job ", job, " has ", yours,
                                 " groups here, group ", other, ", which is running, says ", theirs,
                                 ": all groups of a job have to name the same job_groups")),
                "TERMS_DIFFER",
                {{"field", "job_groups"}, {"yours", Str(yours)}, {"theirs", Str(theirs)}});
}

absl::Status LoadersDiffer(absl::string_view stream, int64_t yours, int64_t theirs) {
  return Refuse(absl::FailedPreconditionError(absl::StrCat(
                    "data stream ", stream, " has ", theirs, " loaders, not ", yours,
                    ": all loaders, and the checkpoint it resumes from, have to name the same "
                    "number")),
                "LOADERS_DIFFER", {{"yours", Str(yours)}, {"theirs", Str(theirs)}});
}

absl::Status EndsDiffer(absl::string_view stream, int64_t loader, int64_t yours, int64_t other,
                        int64_t theirs) {
  return Refuse(absl::FailedPreconditionError(absl::StrCat(
                    "loader ", loader, " ends data stream ", stream, " at step ", yours,
                    ", but loader ", other, " at ", theirs, ": all have to name the same end")),
                "ENDS_DIFFER", {{"yours", Str(yours)}, {"theirs", Str(theirs)}});
}

absl::Status BeyondEnd(const StepAddress& at, int64_t end_step) {
  return Refuse(absl::FailedPreconditionError(
                    absl::StrCat(Name(at), " lies at or beyond the declared end, step ", end_step)),
                "END_OF_STREAM", {{"end_step", Str(end_step)}});
}

absl::Status EndReached(const StepAddress& at, int64_t end_step) {
  return Refuse(
      absl::OutOfRangeError(absl::StrCat("data stream ", at.stream, ", pass ", at.pass,
                                         ", ends at step ", end_step, "; asked for was ", at.step)),
      "END_OF_STREAM", {{"end_step", Str(end_step)}});
}

absl::Status BelowFloor(const StepAddress& at, int64_t floor) {
  return Refuse(
      absl::OutOfRangeError(absl::StrCat(Name(at), " is released; the first step that is kept is ",
                                         floor, ": a new generation has to resume before it")),
      "BELOW_FLOOR", {{"floor", Str(floor)}});
}

absl::Status AheadOfDelivery(const StepAddress& at, int64_t delivered) {
  return Refuse(
      absl::FailedPreconditionError(absl::StrCat(
          "commit of ", Name(at), ", but the last step that this reader received is ", delivered)),
      "AHEAD_OF_DELIVERY", {{"delivered", Str(delivered)}});
}

absl::Status PeerLeft(absl::string_view reader, int64_t rank, int64_t last_step,
                      absl::Duration away) {
  return Refuse(
      absl::AbortedError(absl::StrFormat(
          "reader %s of rank %d has been without a connection for %s, its last step was %d: the "
          "steps that are complete can be had; then wait for its return, or end",
          std::string(reader), rank, absl::FormatDuration(absl::Trunc(away, absl::Seconds(1))),
          last_step)),
      "PEER_LEFT",
      {{"reader", std::string(reader)}, {"rank", Str(rank)}, {"last_step", Str(last_step)}});
}

absl::Status NotReady(const StepAddress& at, absl::string_view waiting_for) {
  return Refuse(absl::DeadlineExceededError(
                    absl::StrCat(Name(at), " is not ready: waiting for ", waiting_for)),
                "NOT_READY", {{"waiting_for", std::string(waiting_for)}}, absl::ZeroDuration());
}

absl::Status NoCredit(const StepAddress& at) {
  return Refuse(absl::ResourceExhaustedError(
                    absl::StrCat("no credit for ", Name(at), " has been given yet: wait for it")),
                "NO_CREDIT", {}, kSoon);
}

absl::Status StillLanding(const StepAddress& at, int64_t microbatch) {
  return Refuse(absl::ResourceExhaustedError(
                    absl::StrCat(Name(at), " microbatch ", microbatch,
                                 " is landing already: wait for its end, or for a credit")),
                "NO_CREDIT", {}, kSoon);
}

absl::Status TooMany(absl::string_view what) {
  return Refuse(absl::ResourceExhaustedError(what), "TOO_MANY", {}, kRestart);
}

absl::Status DataStreamsOverLimit(absl::string_view group, size_t named, int64_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat(named, " data streams are named; group ", group, " has at least 1 and at most ",
                   most, " (max_data_streams): name fewer, or put some into another group"));
}

absl::Status BeyondWindow(const StepAddress& at, int64_t end) {
  return Refuse(absl::ResourceExhaustedError(
                    absl::StrCat(Name(at), " lies beyond the window, which ends before step ", end,
                                 ": wait for a credit")),
                "BEYOND_WINDOW", {{"window_end", Str(end)}}, kSoon);
}

absl::Status NoRoom(absl::string_view what, int64_t wanted, int64_t total, bool for_ever) {
  return Refuse(absl::ResourceExhaustedError(
                    absl::StrCat(what, " needs ", wanted, " bytes, of a budget of ", total,
                                 for_ever ? ": name a smaller max_step_bytes, or give the server "
                                            "more session_bytes"
                                          : ": wait")),
                "BUDGET", {{"wanted", Str(wanted)}, {"budget", Str(total)}},
                for_ever ? std::nullopt : std::optional<absl::Duration>(kSoon));
}

absl::Status DigestConflict(const StepAddress& at, int64_t microbatch, uint64_t first,
                            uint64_t now) {
  return Refuse(
      absl::FailedPreconditionError(absl::StrCat(
          Name(at), " microbatch ", microbatch, " had digest ", first, " and came again with ", now,
          ": its loader is not deterministic; a new generation has to start")),
      "DIGEST_CONFLICT", {{"first", absl::StrCat(first)}, {"now", absl::StrCat(now)}});
}

absl::Status TotalsDiffer(const StepAddress& at, absl::string_view what) {
  return Refuse(absl::FailedPreconditionError(absl::StrCat("the totals that were declared for ",
                                                           Name(at), " do not hold: ", what)),
                "TOTALS_DIFFER");
}

absl::Status NoState(const StepAddress& at) {
  return Refuse(absl::FailedPreconditionError(absl::StrCat(
                    "no reader brought the resume state of ", Name(at),
                    ", and this server does not know it: a new generation has to resume from a "
                    "checkpoint that holds it")),
                "NO_STATE");
}

absl::Status UnknownGroup(absl::string_view group, absl::string_view instance) {
  return Refuse(absl::NotFoundError(absl::StrCat("this server has no open group ", group)),
                "UNKNOWN_GROUP", {{"instance", std::string(instance)}});
}

absl::Status UnknownStream(absl::string_view group, absl::string_view stream) {
  return Refuse(absl::NotFoundError(absl::StrCat("group ", group, " has no data stream ", stream)),
                "UNKNOWN_STREAM");
}

absl::Status UnknownReader(absl::string_view group, absl::string_view reader,
                           absl::string_view instance) {
  return Refuse(absl::NotFoundError(absl::StrCat("reader ", reader, " has not opened group ", group,
                                                 " on this server")),
                "UNKNOWN_READER", {{"instance", std::string(instance)}});
}

absl::Status NotInPass(absl::string_view text) {
  return Refuse(absl::FailedPreconditionError(text), "NOT_IN_PASS");
}

absl::Status NoSessions() {
  return Refuse(absl::FailedPreconditionError(
                    "this server takes no sessions: it was started without memory for them; give "
                    "it session_bytes, or ask another one"),
                "NO_SESSIONS");
}

absl::Status Draining() {
  return Refuse(absl::UnavailableError("the server is shutting down; try again or another one"),
                "DRAINING", {}, kRestart);
}

}  // namespace cpshard
