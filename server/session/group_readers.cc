// What readers ask and tell.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "proto/session_checks.h"
#include "server/session/errors.h"
#include "server/session/group.h"

namespace cpshard {
namespace {

// Parts are checked one by one, and their sums stay numbers.
void Add(int64_t part, int64_t& sum) { sum = std::min(sum + part, kMaxNumber); }

void Count(const StallTime& stall, int64_t elapsed_us, Reader& reader) {
  Add(stall.loader, reader.stall.loader);
  Add(stall.peer, reader.stall.peer);
  Add(stall.server, reader.stall.server);
  Add(stall.copy, reader.stall.copy);
  Add(elapsed_us, reader.elapsed_us);
}

}  // namespace

Group::Group(std::string name, const DeliveryOptions& options, Budget& budget, Outbox& outbox,
             Jobs& jobs)
    : name_(std::move(name)), options_(options), budget_(budget), outbox_(outbox), jobs_(jobs) {}

Group::~Group() {
  for (auto& [name, named] : streams_) (void)named.stream->SetStepBytes(0);
}

Group::Named* Group::Find(const std::string& stream) {
  const auto it = streams_.find(stream);
  return it == streams_.end() ? nullptr : &it->second;
}

Reader* Group::FindReader(const std::string& reader) {
  const auto it = readers_.find(reader);
  return it == readers_.end() ? nullptr : &it->second;
}

Group::Named& Group::Make(const std::string& stream) {
  Named& named = streams_[stream];
  if (named.stream == nullptr) {
    named.stream = std::make_unique<DataStream>(stream, options_, budget_, outbox_);
  }
  return named;
}

absl::StatusOr<ReaderCall> Group::Attach(PeerId peer, const SessionName& session, bool lasting) {
  if (!opened()) return UnknownGroup(name_, options_.instance);
  if (session.generation < CurrentGeneration()) {
    return StaleGeneration(name_, session.generation, CurrentGeneration());
  }
  Reader* reader = FindReader(session.reader);
  const std::string who = absl::StrCat("reader ", session.reader, " of group ", name_);
  if (reader == nullptr || session.generation > terms_->generation ||
      session.incarnation > reader->incarnation) {
    return UnknownReader(name_, session.reader, options_.instance);
  }
  if (session.incarnation < reader->incarnation) {
    return StaleIncarnation(who, session.incarnation, reader->incarnation);
  }
  if (lasting) {
    if (reader->peer != 0) {
      DropWaiters(reader->peer);
      outbox_.Say(reader->peer, EndCall{Replaced(who)});
    }
    reader->peer = peer;
    reader->left = false;
  }
  return ReaderCall{peer, session.reader, reader->cp_rank, terms_, lasting, session.incarnation};
}

void Group::ReaderGone(const ReaderCall& call, absl::Time now) {
  DropWaiters(call.peer);
  calls_.erase(call.peer);
  Reader* reader = FindReader(call.reader);
  if (reader == nullptr || reader->peer != call.peer) return;
  reader->peer = 0;
  reader->away_since = now;
  next_tick_ = std::min(next_tick_, now + options_.rank_timeout);
}

bool Group::HasReaders() const {
  return opened() && std::any_of(readers_.begin(), readers_.end(), [](const auto& entry) {
           return entry.second.peer != 0 && !entry.second.closed;
         });
}

bool Group::HasMore(const std::string& reader) const {
  const auto it = readers_.find(reader);
  if (it == readers_.end() || it->second.closed) return false;
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
    const DataStream& stream = *entry.second.stream;
    if (!entry.second.in_terms || !stream.positioned() || !IsIn(it->second, entry.second)) {
      return false;
    }
    const Standing& standing = it->second.standings.at(entry.first);
    const int64_t next =
        std::max({standing.next_step, standing.delivered + 1, standing.received + 1});
    return next < stream.window().frontier();
  });
}

// That of the readers, or a later one that a loader has seen elsewhere.
int64_t Group::CurrentGeneration() const {
  return std::max(generation_seen_, opened() ? terms_->generation : 0);
}

int64_t Group::RunningGeneration() const { return opened() && !ended_ ? terms_->generation : 0; }

void Group::Seen(const ReaderCall& call, absl::Time now) {
  if (!call.lasting) calls_[call.peer] = call.reader;
  Reader* reader = FindReader(call.reader);
  if (reader == nullptr || reader->peer != 0) return;
  reader->away_since = now;
  reader->left = false;
  next_tick_ = std::min(next_tick_, now + options_.rank_timeout);
}

// Whether the call is still that of the process in the reader's seat.
absl::Status Group::CheckProcess(const ReaderCall& call) const {
  const auto it = readers_.find(call.reader);
  if (it == readers_.end() || call.incarnation >= it->second.incarnation) return absl::OkStatus();
  return StaleIncarnation(absl::StrCat("reader ", call.reader, " of group ", name_),
                          call.incarnation, it->second.incarnation);
}

void Group::OnWant(const ReaderCall& call, const Want& want, absl::Time now) {
  Waiter waiter{call, want, want.microbatch.value_or(0)};
  if (want.timeout_ms) waiter.deadline = now + absl::Milliseconds(*want.timeout_ms);
  const bool stale = call.terms->generation < CurrentGeneration();
  if (stale && options_.rules.fence) {
    return Answer(waiter, StaleGeneration(name_, call.terms->generation, CurrentGeneration()));
  }
  if (absl::Status status = stale ? absl::OkStatus() : CheckProcess(call); !status.ok()) {
    return Answer(waiter, std::move(status));
  }
  Named* named = Find(want.at.stream);
  if (named == nullptr || !named->in_terms) {
    return Answer(waiter, UnknownStream(name_, want.at.stream));
  }
  if (Reader* reader = FindReader(call.reader); reader != nullptr && !stale) {
    Standing& standing = reader->standings.at(want.at.stream);
    if (want.at.pass < standing.pass && AtEnd(*named, want.at)) {
      return Answer(waiter, EndReached(want.at, named->last_end->step));
    }
    if (want.at.pass != standing.pass || standing.finished || reader->closed) {
      return Answer(waiter, NotInPass(absl::StrCat(
                                Name(want.at), ": this reader is in pass ", standing.pass,
                                standing.finished || reader->closed ? ", and has finished" : "")));
    }
    if (reader->wants >= options_.max_wants) {
      return Answer(waiter,
                    TooMany(absl::StrCat(Name(want.at), ": ", reader->wants,
                                         " requests of this reader wait already, the most that may "
                                         "(max_wants)")));
    }
    if (!standing.open) {
      standing.open = true;
      Settle();
    }
    if (!options_.rules.commit_is_explicit && want.at.step > standing.next_step) {
      standing.next_step = want.at.step;
      SettleFloor(*named);
    }
    ++reader->wants;
    waiter.counted = true;
    const Standing::Begun& begun = standing.begun;
    const bool goes_on = begun.step == want.at.step && begun.epoch == named->stream->epoch();
    if (goes_on && want.from_microbatch) waiter.next = std::min(*want.from_microbatch, begun.next);
  }
  if (ServeWaiter(*named, waiter)) return;
  next_tick_ = std::min(next_tick_, waiter.deadline);
  named->waiters.emplace(want.at.step, std::move(waiter));
}

absl::Status Group::OnCommit(const ReaderCall& call, const Commit& commit) {
  const bool stale = call.terms->generation < CurrentGeneration();
  if (stale && options_.rules.check_commit_terms) {
    return StaleGeneration(name_, call.terms->generation, CurrentGeneration());
  }
  if (!stale) CPSHARD_RETURN_IF_ERROR(CheckProcess(call));
  Named* named = Find(commit.at.stream);
  Reader* reader = FindReader(call.reader);
  if (named == nullptr || !named->in_terms) return UnknownStream(name_, commit.at.stream);
  if (reader == nullptr) return absl::OkStatus();
  if (commit.stall && !stale) Count(*commit.stall, commit.elapsed_us, *reader);
  Standing& standing = reader->standings.at(commit.at.stream);
  if (options_.rules.check_commit_terms) {
    if (commit.at.pass < standing.pass || standing.finished) return absl::OkStatus();
    const int64_t known = std::max(standing.delivered, standing.received);
    if (commit.at.pass > standing.pass || commit.at.step > known) {
      return AheadOfDelivery(commit.at, commit.at.pass > standing.pass ? -1 : known);
    }
  }
  if (commit.at.step < standing.next_step) return absl::OkStatus();
  standing.next_step = commit.at.step + 1;
  if (AllSeated() && failure_.ok()) SettleFloor(*named);
  return absl::OkStatus();
}

absl::Status Group::OnPassClosed(const ReaderCall& call, const PassClosed& closed) {
  if (call.terms->generation < CurrentGeneration()) {
    return StaleGeneration(name_, call.terms->generation, CurrentGeneration());
  }
  CPSHARD_RETURN_IF_ERROR(CheckProcess(call));
  Named* named = Find(closed.stream);
  Reader* reader = FindReader(call.reader);
  if (named == nullptr || !named->in_terms) return UnknownStream(name_, closed.stream);
  if (reader == nullptr) return absl::OkStatus();
  Standing& standing = reader->standings.at(closed.stream);
  if (closed.pass < standing.pass || standing.finished) return absl::OkStatus();
  if (closed.pass > standing.pass) {
    return NotInPass(absl::StrCat("pass ", closed.pass, " of data stream ", closed.stream,
                                  " is closed, but this reader is in pass ", standing.pass));
  }
  standing = {};
  standing.pass = closed.pass + 1;
  standing.finished = closed.finished;
  for (auto it = named->waiters.begin(); it != named->waiters.end();) {
    const bool of_this = it->second.call.reader == call.reader;
    if (of_this) Answer(it->second, absl::CancelledError("the reader has closed the pass"));
    it = of_this ? named->waiters.erase(it) : std::next(it);
  }
  Settle();
  return absl::OkStatus();
}

void Group::OnClose(PeerId peer, const SessionName& session) {
  const bool done = ended_ && session.generation == terms_->generation;
  if (done) return outbox_.Say(peer, EndCall{absl::OkStatus()});
  const absl::StatusOr<ReaderCall> call = Attach(peer, session, /*lasting=*/false);
  if (!call.ok()) return outbox_.Say(peer, EndCall{call.status()});
  Reader& reader = readers_.at(session.reader);
  reader.closed = true;
  AnswerAll(session.reader, absl::CancelledError("the reader has closed its session"));
  closing_[peer] = session.reader;
  next_tick_ = absl::InfinitePast();  // the next tick sets it right
  Settle();
}

}  // namespace cpshard
