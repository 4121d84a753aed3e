// What lands: every batch is judged before a byte of it is taken, and once more when all are there.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/session/data_stream.h"
#include "server/session/errors.h"

namespace cpshard {
namespace {

bool MayComeAgain(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

void DataStream::SayAck(PeerId peer, const PushHead& head, absl::Status status) {
  if (!status.ok()) ++outbox_.counters.refused;
  outbox_.Say(peer, PushAck{head.at, head.epoch, head.microbatch, std::move(status)});
}

void DataStream::Remember(const PushHead& head, uint64_t digest) {
  const auto before = digests_.Find(head.at.step, head.microbatch);
  if (before && before->digest != digest && before->epoch != epoch_) {
    // Of another epoch: the data may have changed since.
    ++outbox_.counters.digest_changes;
    ++digest_changes_;
    has_news_ |= std::exchange(noticed_epoch_, epoch_) != epoch_;
    notice_ = absl::StrCat(Name(head.at), " microbatch ", head.microbatch, " had digest ",
                           before->digest, " and came again with ", digest,
                           " after the data stream was sought: has the data changed, or does its "
                           "loader not make a step anew as it was?");
  }
  digests_.Put(head.at.step, head.microbatch, {digest, epoch_});
}

std::optional<absl::Status> DataStream::Compare(const PushHead& head, uint64_t digest,
                                                absl::Status* failure) {
  const auto before = digests_.Find(head.at.step, head.microbatch);
  if (!options_.rules.check_digests || !before || before->epoch != epoch_ ||
      before->digest == digest) {
    return std::nullopt;
  }
  ++outbox_.counters.digest_conflicts;
  *failure = DigestConflict(head.at, head.microbatch, before->digest, digest);
  return *failure;
}

// What to answer to a batch that is here, or was, and whose digest is known. OK: a duplicate.
std::optional<absl::Status> DataStream::JudgeAgain(const PushHead& head, absl::Status* failure) {
  if (head.digest) {
    if (auto conflict = Compare(head, *head.digest, failure)) return conflict;
  }
  ++outbox_.counters.duplicates;
  return absl::OkStatus();
}

// What to answer at once; nullopt: let it land.
std::optional<absl::Status> DataStream::JudgePush(int64_t loader, const PushHead& head,
                                                  int64_t bytes, absl::Status* failure) {
  const int64_t step = head.at.step;
  const auto wrong = [&](auto... text) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(head.at), " microbatch ", head.microbatch, ": ", text...));
  };
  if (step < 0) return wrong("steps begin at 0");
  if (OwnerOf(step) != loader) {
    return wrong("loader ", loader, " of ", num_loaders(), " does not own this step, loader ",
                 OwnerOf(step), " does");
  }
  if (head.microbatch < 0 || head.microbatch >= options_.max_microbatches) {
    return wrong("a step has at most ", options_.max_microbatches,
                 " microbatches (max_microbatches): make them larger, or of one step several");
  }
  if (head.state && static_cast<int64_t>(head.state->size()) > kMaxLoaderStateBytes) {
    return wrong("the loader state has ", head.state->size(), " bytes, at most ",
                 kMaxLoaderStateBytes, " are kept");
  }
  if (head.state && !head.last_microbatch) {
    return wrong("a loader state comes with the last microbatch");
  }
  if (lowest_end_ && step >= *lowest_end_) return BeyondEnd(head.at, *lowest_end_);
  if (step < window_.floor()) return JudgeAgain(head, failure);
  if (step >= window_.end()) return BeyondWindow(head.at, window_.end());
  const StepPtr there = window_.Find(step);
  if (there == nullptr) return NoCredit(head.at);
  if (there->Landed(head.microbatch)) return JudgeAgain(head, failure);
  const auto& microbatches = there->microbatches;
  const auto known = static_cast<int64_t>(microbatches.size());
  if (head.microbatch < known && microbatches[head.microbatch].push != 0) {
    return StillLanding(head.at, head.microbatch);
  }
  if (there->count && (head.microbatch >= *there->count ||
                       head.last_microbatch != (head.microbatch + 1 == *there->count))) {
    return wrong("the step has ", *there->count, " microbatches");
  }
  if (head.last_microbatch && head.microbatch + 1 < known) {
    return wrong("it is said to be the last one, but microbatch ", known - 1, " is here");
  }
  if (there->bytes() + bytes > max_step_bytes_) {
    return wrong("its ", bytes, " bytes of memory and the ", there->bytes(),
                 " of the step's other microbatches are over the ", max_step_bytes_,
                 " that go with max_step_bytes ", options_.told_bytes(max_step_bytes_));
  }
  if (head.digest) return Compare(head, *head.digest, failure);
  return std::nullopt;
}

std::optional<PushTicket> DataStream::BeginPush(PeerId peer, int64_t loader, const PushHead& head,
                                                int64_t bytes, uint64_t push,
                                                absl::Status* failure) {
  // While a new generation gathers, what had credit before lands: it may all be kept.
  if (head.at.pass != pass_ || head.epoch != epoch_) return std::nullopt;
  if (!IsSeated(peer, loader)) {
    SayAck(peer, head,
           absl::InvalidArgumentError(absl::StrCat(Name(head.at), ": loader ", loader,
                                                   " said hello without data stream ", name_)));
    return std::nullopt;
  }
  const StepPtr step = window_.Find(head.at.step);
  const bool is_here = step != nullptr && step->Landed(head.microbatch);
  const bool is_proper = is_here && OwnerOf(head.at.step) == loader && bytes <= max_step_bytes_;
  if (is_proper && !head.digest && options_.rules.check_digests) {
    // It lands once more, to be compared: in memory that nobody else is promised.
    Account& account = window_.account();
    if (!budget_.Take(account, bytes)) {
      SayAck(peer, head, NoRoom(Name(head.at), bytes, budget_.total(), false));
      return std::nullopt;
    }
    return PushTicket{peer, loader, head, step, true, bytes};
  }
  if (auto answer = JudgePush(loader, head, bytes, failure)) {
    SayAck(peer, head, *std::move(answer));
    return std::nullopt;
  }
  if (head.microbatch >= static_cast<int64_t>(step->microbatches.size())) {
    step->microbatches.resize(head.microbatch + 1);
  }
  if (head.last_microbatch) step->count = head.microbatch + 1;
  if (head.microbatch == 0 && head.totals) step->declared = head.totals;
  Microbatch& microbatch = step->microbatches[head.microbatch];
  microbatch.push = push;
  microbatch.batch.bytes = bytes;
  Window::Pin(*step);
  return PushTicket{peer, loader, head, step, false, 0};
}

bool DataStream::EndPush(const PushTicket& ticket, absl::StatusOr<LandedBatch> landed,
                         absl::Status* failure) {
  const PushHead& head = ticket.head;
  Step& step = *ticket.step;
  if (ticket.compares) {
    budget_.GiveBack(*step.account, ticket.compare_bytes);
    absl::Status status = landed.status();
    if (landed.ok() && step.epoch == epoch_) {
      PushHead known = head;
      known.digest = landed->digest;
      status = *JudgeAgain(known, failure);
    }
    SayAck(ticket.peer, head, std::move(status));
    return false;
  }
  Microbatch& microbatch = step.microbatches[head.microbatch];
  microbatch.push = 0;
  microbatch.batch = {};
  const bool is_void = !step.in_window || !IsSeated(ticket.peer, ticket.loader);
  absl::Status status = is_void ? absl::CancelledError("the push is void") : landed.status();
  if (status.ok()) status = Land(ticket, microbatch, *std::move(landed), failure);
  if (!status.ok() && !microbatch.landed) step.TakeBack(head.microbatch, head.last_microbatch);
  window_.Unpin(step);
  if (!is_void) {
    SayAck(ticket.peer, head, status);
  } else if (step.epoch == epoch_ && IsSeated(ticket.peer, ticket.loader)) {
    SayAck(ticket.peer, head, NoCredit(head.at));  // it was taken back; there will be another one
  }
  if (!status.ok() && step.in_window && MayComeAgain(status)) SayCredit(step);
  return status.ok();
}

absl::Status DataStream::Land(const PushTicket& ticket, Microbatch& microbatch, LandedBatch batch,
                              absl::Status* failure) {
  const PushHead& head = ticket.head;
  Step& step = *ticket.step;
  if (head.digest && *head.digest != batch.digest) {
    return absl::DataLossError(absl::StrCat(Name(head.at), " microbatch ", head.microbatch,
                                            " landed with digest ", batch.digest, ", sent was ",
                                            *head.digest, ": push it again"));
  }
  if (auto conflict = Compare(head, batch.digest, failure)) return *conflict;
  if (step.bytes() + batch.bytes > step.charged) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(head.at), " microbatch ", head.microbatch, " takes ", batch.bytes,
                     " bytes of memory with what is made of it, the step's other microbatches ",
                     step.bytes(), ": over the ", step.charged, " that go with max_step_bytes ",
                     options_.told_bytes(step.charged)));
  }
  Remember(head, batch.digest);
  microbatch.landed = true;
  microbatch.incarnation = seats_[ticket.loader].incarnation;
  microbatch.batch = std::move(batch);
  ++outbox_.counters.pushed;
  if (head.last_microbatch && head.state) {
    states_.Add(ticket.loader, {head.at.step, *head.state});
  }
  const bool complete = step.count &&
                        *step.count == static_cast<int64_t>(step.microbatches.size()) &&
                        std::all_of(step.microbatches.begin(), step.microbatches.end(),
                                    [](const Microbatch& m) { return m.landed; });
  if (!complete) return absl::OkStatus();
  StepTotals& totals = step.totals;
  totals = {*step.count, 0, 0};
  for (const Microbatch& m : step.microbatches) {
    const auto add = [](std::optional<int64_t>& sum, const std::optional<int64_t>& part) {
      sum = sum && part ? std::optional<int64_t>(*sum + *part) : std::nullopt;
    };
    add(totals.num_label_tokens, m.batch.num_label_tokens);
    add(totals.num_tokens_excl_tail_pad, m.batch.num_tokens_excl_tail_pad);
  }
  if (absl::Status status = CheckTotals(step); !status.ok()) {
    *failure = status;
    return status;
  }
  window_.Complete(step);
  return absl::OkStatus();
}

// A loader that declares totals is held to those that can be counted.
absl::Status DataStream::CheckTotals(const Step& step) const {
  if (!step.declared) return absl::OkStatus();
  const StepTotals& said = *step.declared;
  const StepTotals& counted = step.totals;
  const auto differ = [&](const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
    return a && b && *a != *b;
  };
  if (said.num_microbatches != counted.num_microbatches) {
    return TotalsDiffer(At(step.step), absl::StrCat("num_microbatches ", said.num_microbatches,
                                                    ", counted ", counted.num_microbatches));
  }
  if (differ(said.num_label_tokens, counted.num_label_tokens)) {
    return TotalsDiffer(At(step.step), absl::StrCat("num_label_tokens ", *said.num_label_tokens,
                                                    ", counted ", *counted.num_label_tokens));
  }
  if (differ(said.num_tokens_excl_tail_pad, counted.num_tokens_excl_tail_pad)) {
    return TotalsDiffer(At(step.step),
                        absl::StrCat("num_tokens_excl_tail_pad ", *said.num_tokens_excl_tail_pad,
                                     ", counted ", *counted.num_tokens_excl_tail_pad));
  }
  return absl::OkStatus();
}

}  // namespace cpshard
