// Opening: who may, what a generation agrees on, and what it leaves of the one before.
#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/plan/status_macros.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {
namespace {

// For a text: options may be bytes.
std::string Printed(const std::string& value) {
  const bool plain =
      std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isprint(c) != 0; });
  if (plain && value.size() <= 200) return value.empty() ? "(none)" : value;
  return absl::StrFormat("(%d bytes, #%08x)", value.size(),
                         static_cast<uint32_t>(std::hash<std::string>()(value)));
}

absl::Status CheckResume(const ReaderStream& stream) {
  if (!stream.resume) return absl::OkStatus();
  const ResumeState& resume = *stream.resume;
  for (const auto& [loader, state] : resume.loaders) {
    const bool fits = loader >= 0 && loader < resume.num_loaders && state.step >= 0 &&
                      state.step % resume.num_loaders == loader && state.step < stream.next_step;
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data stream ", stream.name, ": the resume state of step ", stream.next_step - 1,
          " names loader ", loader, " of ", resume.num_loaders, " at step ", state.step));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void Group::Declare(const DeclaredGroup& declared) {
  declared_ = declared;
  terms_ = std::make_shared<const SessionTerms>(SessionTerms{.group = name_,
                                                             .cp_size = declared.cp_size,
                                                             .options = declared.options,
                                                             .fingerprint = declared.fingerprint,
                                                             .executor = declared.executor});
  for (const DeclaredStream& stream : declared.streams) {
    Named& named = Make(stream.name);
    named.in_terms = true;
    named.max_step_bytes = stream.max_step_bytes;
    named.stream->DeclareLoaders(stream.num_loaders);
    (void)named.stream->SetStepBytes(stream.max_step_bytes);
  }
}

absl::StatusOr<OpenedSession> Group::Open(const OpenSession& open, absl::Time now) {
  if (!opened()) LearnGeneration(now);  // else a tick forgets what was mistaken
  CPSHARD_RETURN_IF_ERROR(CheckOpen(open));
  if (!opened() || open.generation > terms_->generation) BeginGeneration(open);
  if (abandoned_) Resume();
  Seat(open, now);
  Settle();
  OpenedSession result;
  result.instance = options_.instance;
  result.generation = terms_->generation;
  for (const ReaderStream& asked : open.streams) {
    const Named& named = *Find(asked.name);
    OpenedStream& stream = result.streams.emplace_back();
    stream.name = asked.name;
    stream.pass = named.stream->pass();
    if (!named.stream->positioned() || stream.pass != asked.pass) continue;
    const Window& window = named.stream->window();
    stream.floor = window.floor();
    const bool known = asked.next_step >= window.floor() && asked.next_step <= window.frontier();
    if (known && !asked.resume) {  // what the reader has brought it need not be told
      stream.resume = named.stream->states().At(asked.next_step - 1, named.stream->num_loaders());
    }
  }
  return result;
}

absl::Status Group::CheckOpen(const OpenSession& open) const {
  if (open.cp_rank < 0 || open.cp_size < 1 || open.cp_rank >= open.cp_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("cp_rank ", open.cp_rank, " of cp_size ", open.cp_size));
  }
  if (open.readers_per_rank < 1 || open.job_groups < 1) {
    return absl::InvalidArgumentError(absl::StrCat("readers_per_rank ", open.readers_per_rank,
                                                   ", job_groups ", open.job_groups,
                                                   ": at least 1 each"));
  }
  if (open.cp_size > options_.max_ranks / open.readers_per_rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("cp_size ", open.cp_size, " times ", open.readers_per_rank,
                     " readers per rank: over the ", options_.max_ranks,
                     " readers of a group (max_readers); let one reader of a rank hand on "
                     "to its peers"));
  }
  if (open.streams.empty() || static_cast<int64_t>(open.streams.size()) > options_.max_streams) {
    return DataStreamsOverLimit(name_, open.streams.size(), options_.max_streams);
  }
  const int64_t current = CurrentGeneration();
  if (open.generation < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("generation ", open.generation, ": the first one is 1"));
  }
  if (open.generation < current) return StaleGeneration(name_, open.generation, current);
  for (const ReaderStream& stream : open.streams) {
    if (stream.max_step_bytes < 1) {
      return absl::InvalidArgumentError(absl::StrCat("data stream ", stream.name,
                                                     ": max_step_bytes ", stream.max_step_bytes,
                                                     "; it says how large a step may be"));
    }
    CPSHARD_RETURN_IF_ERROR(CheckResume(stream));
  }
  if (declared()) CPSHARD_RETURN_IF_ERROR(CheckDeclared(open));
  if (!opened() || open.generation > terms_->generation) {
    CPSHARD_RETURN_IF_ERROR(CheckRoom(open));
    return CheckStandings(open);
  }
  // Who has not heard that its close was answered may ask again.
  const bool is_over = std::all_of(open.streams.begin(), open.streams.end(),
                                   [](const ReaderStream& stream) { return stream.finished; });
  if (ended_ && !is_over) return StaleGeneration(name_, open.generation, open.generation);
  if (!failure_.ok()) return failure_;
  CPSHARD_RETURN_IF_ERROR(CheckTerms(open));
  CPSHARD_RETURN_IF_ERROR(CheckSeat(open));
  if (abandoned_) CPSHARD_RETURN_IF_ERROR(CheckRoom(open));
  return CheckStandings(open);
}

// What the configuration has fixed for all generations.
absl::Status Group::CheckDeclared(const OpenSession& open) const {
  const auto differ = [&](absl::string_view field, const auto& yours, const auto& theirs) {
    return yours == theirs ? absl::OkStatus()
                           : DeclarationDiffers(name_, field, Printed(absl::StrCat(yours)),
                                                Printed(absl::StrCat(theirs)));
  };
  CPSHARD_RETURN_IF_ERROR(differ("cp_size", open.cp_size, declared_->cp_size));
  CPSHARD_RETURN_IF_ERROR(differ("options", open.options, declared_->options));
  CPSHARD_RETURN_IF_ERROR(
      differ("executor", ToString(open.executor), ToString(declared_->executor)));
  if (!declared_->fingerprint.empty()) {
    CPSHARD_RETURN_IF_ERROR(differ("fingerprint", open.fingerprint, declared_->fingerprint));
  }
  std::map<std::string, int64_t> yours, theirs;
  for (const ReaderStream& stream : open.streams) yours[stream.name] = stream.max_step_bytes;
  for (const DeclaredStream& stream : declared_->streams) {
    theirs[stream.name] = stream.max_step_bytes;
  }
  const auto names = [](const std::map<std::string, int64_t>& streams) {
    return absl::StrJoin(streams, ", ", [](std::string* out, const auto& stream) {
      absl::StrAppend(out, stream.first);
    });
  };
  CPSHARD_RETURN_IF_ERROR(differ("data streams", names(yours), names(theirs)));
  for (const auto& [stream, bytes] : yours) {
    CPSHARD_RETURN_IF_ERROR(differ(absl::StrCat("max_step_bytes of ", stream),
                                   options_.told_bytes(bytes),
                                   options_.told_bytes(theirs.at(stream))));
  }
  return absl::OkStatus();
}

absl::Status Group::CheckTerms(const OpenSession& open) const {
  const auto differ = [&](absl::string_view field, const auto& yours, const auto& theirs) {
    return yours == theirs
               ? absl::OkStatus()
               : TermsDiffer(name_, open.generation, field, Printed(absl::StrCat(yours)),
                             Printed(absl::StrCat(theirs)));
  };
  CPSHARD_RETURN_IF_ERROR(differ("attempt", open.attempt, terms_->attempt));
  CPSHARD_RETURN_IF_ERROR(differ("cp_size", open.cp_size, terms_->cp_size));
  CPSHARD_RETURN_IF_ERROR(
      differ("readers_per_rank", open.readers_per_rank, terms_->readers_per_rank));
  CPSHARD_RETURN_IF_ERROR(differ("options", open.options, terms_->options));
  CPSHARD_RETURN_IF_ERROR(differ("fingerprint", open.fingerprint, terms_->fingerprint));
  CPSHARD_RETURN_IF_ERROR(differ("job", open.job, terms_->job));
  CPSHARD_RETURN_IF_ERROR(differ("job_groups", open.job_groups, terms_->job_groups));
  CPSHARD_RETURN_IF_ERROR(differ("executor", ToString(open.executor), ToString(terms_->executor)));
  std::map<std::string, int64_t> resume = open.resume;
  for (const auto& [stream, step] : resume_) {
    CPSHARD_RETURN_IF_ERROR(differ(absl::StrCat("resume of ", stream),
                                   resume.contains(stream) ? resume[stream] : 0, step));
  }
  for (const auto& [stream, step] : resume) {
    const int64_t theirs = resume_.contains(stream) ? resume_.at(stream) : 0;
    CPSHARD_RETURN_IF_ERROR(differ(absl::StrCat("resume of ", stream), step, theirs));
  }
  int64_t mine = 0;
  for (const auto& [name, named] : streams_) mine += named.in_terms ? 1 : 0;
  CPSHARD_RETURN_IF_ERROR(differ("data streams", static_cast<int64_t>(open.streams.size()), mine));
  for (const ReaderStream& stream : open.streams) {
    const auto it = streams_.find(stream.name);
    if (it == streams_.end() || !it->second.in_terms) return UnknownStream(name_, stream.name);
    CPSHARD_RETURN_IF_ERROR(differ(absl::StrCat("max_step_bytes of ", stream.name),
                                   options_.told_bytes(stream.max_step_bytes),
                                   options_.told_bytes(it->second.max_step_bytes)));
  }
  return absl::OkStatus();
}

absl::Status Group::CheckSeat(const OpenSession& open) const {
  const auto it = readers_.find(open.reader);
  if (it == readers_.end()) {
    const auto seated = std::count_if(readers_.begin(), readers_.end(), [&](const auto& entry) {
      return entry.second.cp_rank == open.cp_rank;
    });
    if (seated < terms_->readers_per_rank) return absl::OkStatus();
    return TermsDiffer(name_, open.generation, absl::StrCat("other readers of rank ", open.cp_rank),
                       open.reader,
                       absl::StrCat(seated, " of ", terms_->readers_per_rank, " readers per rank"));
  }
  const Reader& reader = it->second;
  if (reader.cp_rank != open.cp_rank) {
    return TermsDiffer(name_, open.generation, absl::StrCat("rank of reader ", open.reader),
                       absl::StrCat(open.cp_rank), absl::StrCat(reader.cp_rank));
  }
  if (open.incarnation < reader.incarnation) {
    return StaleIncarnation(absl::StrCat("reader ", open.reader, " of group ", name_),
                            open.incarnation, reader.incarnation);
  }
  return absl::OkStatus();
}

// Nobody may go on behind what is gone.
absl::Status Group::CheckStandings(const OpenSession& open) const {
  const std::string who = absl::StrCat("reader ", open.reader, " of group ", name_);
  const bool joins = opened() && open.generation == terms_->generation;
  for (const ReaderStream& asked : open.streams) {
    const StepAddress next{asked.name, asked.pass, asked.next_step};
    const auto resume = open.resume.find(asked.name);
    if (asked.pass == 0 && resume != open.resume.end() && asked.next_step < resume->second) {
      return TermsDiffer(name_, open.generation, absl::StrCat("resume of ", asked.name),
                         absl::StrCat("a reader at step ", asked.next_step),
                         absl::StrCat(resume->second));
    }
    const auto it = streams_.find(asked.name);
    if (it == streams_.end() || asked.finished) continue;
    const DataStream& stream = *it->second.stream;
    if (joins && it->second.settled == terms_->generation) {
      // It closed the pass, and restarts from before that: there is nothing left of it to get.
      if (asked.pass < stream.pass() && AtEnd(it->second, next)) continue;
      if (asked.pass < stream.pass()) return Zombie(who, next, 0);
      // All have finished it, this reader too, and its loaders are gone: there is its end alone.
      if (it->second.over && !AtEnd(it->second, next)) return Zombie(who, next, next.step + 1);
      const bool same = asked.pass == stream.pass() && stream.positioned();
      if (same && asked.next_step < stream.window().floor()) {
        return Zombie(who, next, stream.window().floor());
      }
      if (same && stream.end_step() && asked.next_step > *stream.end_step()) {
        return BeyondEnd(next, *stream.end_step());
      }
    }
    for (const LoaderSeat& seat : stream.seats()) {
      const bool of_this = seat.known && seat.generation_seen == open.generation;
      if (!of_this || asked.closed) continue;
      if (asked.pass < seat.hello.pass) return Zombie(who, next, 0);
      if (asked.pass == seat.hello.pass && asked.next_step < seat.hello.released) {
        return Zombie(who, next, seat.hello.released);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Group::CheckRoom(const OpenSession& open) const {
  int64_t wanted = 0, has = 0;
  for (const ReaderStream& stream : open.streams) {
    if (stream.max_step_bytes > budget_.total()) {
      return NoRoom(absl::StrCat("a step of data stream ", stream.name, ", of max_step_bytes ",
                                 options_.told_bytes(stream.max_step_bytes), ","),
                    stream.max_step_bytes, budget_.total(), true);
    }
    wanted += DataStream::GuaranteeOf(options_, stream.max_step_bytes);
  }
  for (const auto& [name, named] : streams_) has += named.stream->window().account().guarantee;
  if (budget_.Fits(wanted, has)) return absl::OkStatus();
  return NoRoom(absl::StrCat("group ", name_, " is to be guaranteed ", options_.replay_steps + 2,
                             " steps of each data stream, which, beside the ",
                             budget_.guaranteed() - has, " bytes of other groups,"),
                wanted, budget_.total(), true);
}

// Whatever the old generation still waits for, on whichever call, is answered now: nothing is
// delivered to it any more.
void Group::Fence(int64_t generation) {
  const absl::Status status = StaleGeneration(name_, terms_->generation, generation);
  for (const auto& [peer, reader] : closing_) outbox_.Say(peer, EndCall{status});
  closing_.clear();
  if (!options_.rules.fence) return;
  for (auto& [name, named] : streams_) {
    for (auto& [step, waiter] : named.waiters) Answer(waiter, status);
    named.waiters.clear();
  }
  for (const auto& [name, reader] : readers_) outbox_.Say(reader.peer, EndCall{status});
  for (const auto& [peer, reader] : std::exchange(calls_, {})) outbox_.Say(peer, EndCall{status});
}

void Group::BeginGeneration(const OpenSession& open) {
  // CheckDeclared has compared what was there before the first opener.
  const bool same_data = opened() ? open.fingerprint == terms_->fingerprint : declared();
  const bool keeps = same_data && failure_.ok() && !ended_;  // an ended run leaves nothing
  if (opened()) Fence(open.generation);
  readers_.clear();
  LeaveJob();
  terms_ = std::make_shared<const SessionTerms>(
      SessionTerms{name_, open.generation, open.attempt, open.cp_size, open.readers_per_rank,
                   open.options, open.fingerprint, open.job, open.job_groups, open.executor});
  resume_ = open.resume;
  failure_ = absl::OkStatus();
  ended_ = abandoned_ = false;
  ++outbox_.counters.generations;
  if (WaitsForJob()) jobs_.Join(open.job, name_, open.job_groups);
  for (auto& [name, named] : streams_) {
    named.in_terms = named.over = false;
    named.last_end.reset();
    named.stream->Suspend();
    named.stream->AwaitAbsentLoaders();
    // Of all guarantees first, so that the new ones fit.
    (void)named.stream->SetStepBytes(0);
  }
  for (const ReaderStream& stream : open.streams) {
    Named& named = Make(stream.name);
    named.in_terms = true;
    // Steps that are not complete have credits of the old size.
    Window& window = named.stream->window();
    if (named.max_step_bytes != stream.max_step_bytes) window.Truncate(window.frontier());
    named.max_step_bytes = stream.max_step_bytes;
    window.account().may_share = open.job_groups == 1;
    (void)named.stream->SetStepBytes(stream.max_step_bytes);  // CheckRoom says that it fits
  }
  for (auto& [name, named] : streams_) {
    if (keeps && named.in_terms) continue;
    if (named.sought) named.stream->BeginPass(named.stream->pass());
    named.sought = false;
  }
  PruneStreams();
}

void Group::Seat(const OpenSession& open, absl::Time now) {
  Reader& reader = readers_[open.reader];
  if (open.incarnation > reader.incarnation) {
    const absl::Status stale =
        StaleIncarnation(absl::StrCat("reader ", open.reader, " of group ", name_),
                         reader.incarnation, open.incarnation);
    AnswerAll(open.reader, stale);
    outbox_.Say(std::exchange(reader.peer, 0), EndCall{stale});
    std::erase_if(calls_, [&](const auto& call) {
      if (call.second == open.reader) outbox_.Say(call.first, EndCall{stale});
      return call.second == open.reader;
    });
    reader.stall = {};
    reader.elapsed_us = 0;
  }
  // A process that closes, and whose connection broke meanwhile, still closes.
  const bool closes = open.incarnation == reader.incarnation &&
                      std::any_of(closing_.begin(), closing_.end(),
                                  [&](const auto& entry) { return entry.second == open.reader; });
  reader.name = open.reader;
  reader.cp_rank = open.cp_rank;
  reader.incarnation = open.incarnation;
  reader.closed = closes;
  reader.left = false;
  reader.away_since = seated_at_ = now;
  next_tick_ = std::min(next_tick_, now + options_.rank_timeout);
  for (const ReaderStream& stream : open.streams) {
    Standing& standing = reader.standings[stream.name];
    standing = {};
    standing.pass = stream.pass;
    standing.finished = stream.finished;
    standing.open = !stream.closed && !stream.finished;
    standing.next_step = standing.opened_at = stream.next_step;
    standing.received = stream.received;
    standing.resume = stream.resume;
    const Named& named = *Find(stream.name);
    const StepAddress next{stream.name, stream.pass, stream.next_step};
    if (!AtEnd(named, next) || stream.pass >= named.stream->pass()) continue;
    standing = {};
    standing.pass = stream.pass + 1;
  }
}

}  // namespace cpshard
