// What the tests of a reader's ledger share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/session/reader_ledger.h"
#include "proto/error_details.h"

namespace cpshard {

// A reader without a server: the test is the server and the trainer. Two loaders own the steps in
// turn, and give with step n the state "after n". What was asked for and handed out is compared as
// text: "train 0/5" is step 5 of pass 0.
class ReaderLedgerTest : public testing::Test {
 protected:
  static ReaderStream Stream(const std::string& name, int64_t next_step = 0) {
    ReaderStream stream;
    stream.name = name;
    stream.next_step = next_step;
    stream.max_step_bytes = 1000;
    return stream;
  }

  void Make(std::vector<ReaderStream> streams, int64_t prefetch = 2) {
    OpenSession open;
    open.group = "g";
    open.generation = 7;
    open.reader = "rank0";
    open.incarnation = 3;
    open.streams = std::move(streams);
    ledger_ = std::make_unique<ReaderLedger>(std::move(open), prefetch);
  }

  OpenedSession Opened() const { return {"server-1", 7, {}}; }

  // Tells the server where the reader is, and is welcome.
  void Open() { Open(Opened()); }
  void Open(const OpenedSession& opened) {
    ledger_->OpenMessage();
    const absl::Status status = ledger_->OnOpened(opened);
    ASSERT_TRUE(status.ok()) << status;
  }

  // As OpenSession would list it now.
  ReaderStream Listed(const std::string& name = "train") const { return ledger_->StateOf(name); }

  std::vector<std::string> Requests() {
    std::vector<std::string> texts;
    for (const ReaderLedger::Request& request : ledger_->TakeRequests()) {
      if (const auto* want = std::get_if<Want>(&request)) {
        ids_[Text(want->at)] = want->id;
        const auto& from = want->from_microbatch;
        texts.push_back(
            absl::StrCat("want ", Text(want->at), from ? absl::StrCat(" from ", *from) : ""));
      } else if (const auto* commit = std::get_if<Commit>(&request)) {
        texts.push_back("commit " + Text(commit->at));
      } else {
        const auto& closed = std::get<PassClosed>(request);
        texts.push_back(absl::StrCat("closed ", closed.stream, " ", closed.pass,
                                     closed.finished ? " for good" : ""));
      }
    }
    return texts;
  }

  static std::string Text(const StepAddress& at) {
    return absl::StrCat(at.stream, " ", at.pass, "/", at.step);
  }

  // The answer to the last request for the step: microbatch `microbatch` of `count`.
  ReceivedShard Shard(const StepAddress& at, int64_t microbatch = 0, int64_t count = 1) const {
    ReceivedShard shard;
    shard.head.id = ids_.at(Text(at));
    shard.head.at = at;
    shard.head.microbatch = microbatch;
    shard.head.last = microbatch + 1 == count;
    shard.head.digest = 100 * at.step + microbatch;
    shard.head.num_loaders = 2;
    shard.head.owner = at.step % 2;
    if (shard.head.last) {
      shard.head.totals = StepTotals{count, 10 * at.step, std::nullopt};
      shard.head.owner_state = absl::StrCat("after ", at.step);
    }
    return shard;
  }
  absl::Status Deliver(const StepAddress& at, int64_t microbatch = 0, int64_t count = 1) {
    return ledger_->OnDelivery(Shard(at, microbatch, count));
  }
  absl::Status Deliver(int64_t step) { return Deliver({"train", 0, step}); }

  void NoMemory(int64_t step, const std::set<std::string>& awaited = {}) {
    NoMemory({"train", 0, step}, awaited);
  }
  void NoMemory(const StepAddress& at, const std::set<std::string>& awaited) {
    for (const std::string& stream : awaited) ledger_->Await(stream);
    ledger_->OnNoMemory(ids_.at(Text(at)));
  }
  bool Lands(const StepAddress& at) const { return ledger_->Lands(ids_.at(Text(at))); }
  void Refuse(const StepAddress& at, const absl::Status& status) {
    ledger_->OnRequestStatus(ids_.at(Text(at)), status);
  }
  static absl::Status EndAt(int64_t step) {
    return WithDetails(absl::OutOfRangeError("no such step"),
                       {"END_OF_STREAM", {{"end_step", absl::StrCat(step)}}, {}});
  }
  static absl::Status PeerLeft() {
    return WithDetails(absl::AbortedError("rank 1 left"),
                       {"PEER_LEFT", {{"rank", "1"}, {"last_step", "4"}}, {}});
  }

  std::string Next(const std::string& stream = "train") {
    const auto next = ledger_->Next(stream);
    if (const auto* step = std::get_if<ReceivedStep>(&next)) return Text(step->at);
    if (const auto* end = std::get_if<EndOfPass>(&next)) return "end " + Text(end->at);
    return absl::StatusCodeToString(std::get<absl::Status>(next).code());
  }

  // Everything that is ready, up to the end of the pass or an error.
  std::vector<std::string> HandedOut(const std::string& stream = "train") {
    std::vector<std::string> texts;
    while (ledger_->Ready(stream)) {
      texts.push_back(Next(stream));
      if (!texts.back().starts_with(stream)) break;
    }
    return texts;
  }

  std::unique_ptr<ReaderLedger> ledger_;
  std::map<std::string, uint64_t> ids_;
};

}  // namespace cpshard
