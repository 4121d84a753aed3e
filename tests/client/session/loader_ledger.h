// What the tests of a loader's ledger share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/session/loader_ledger.h"

namespace cpshard {

// A loader without a server and without a source: the test is both. Every step has one microbatch
// of 10 bytes unless told otherwise, and the state "after n". What is to be made and sent is
// compared as text: "train 0/5" is step 5 of pass 0, "train 0/5.2" its microbatch 2.
class LoaderLedgerTest : public testing::Test {
 protected:
  // Loader `loader` of two.
  void Make(int64_t loader = 0, const std::vector<std::string>& streams = {"train"}) {
    LoaderHello hello;
    hello.group = "g";
    hello.loader = loader;
    hello.num_loaders = 2;
    hello.incarnation = 5;
    for (const std::string& name : streams) hello.streams.push_back({name});
    ledger_ = std::make_unique<LoaderLedger>(std::move(hello));
    ledger_->Connected();
  }

  // A position in epoch 1 of pass 0, in generation 7.
  static Position At(int64_t from_step, const std::string& stream = "train") {
    Position position;
    position.generation = 7;
    position.stream = stream;
    position.epoch = 1;
    position.from_step = from_step;
    return position;
  }
  static Position WithState(Position position, int64_t step) {
    position.state = LoaderState{step, absl::StrCat("after ", step)};
    return position;
  }

  void Credit(int64_t step, int64_t epoch = 1) { Credit({"train", 0, step}, epoch); }
  void Credit(const StepAddress& at, int64_t epoch = 1) { ledger_->OnCredit({at, epoch, 100}); }
  void Ack(int64_t step, int64_t microbatch = 0, const absl::Status& status = absl::OkStatus(),
           int64_t epoch = 1) {
    ledger_->OnAck({"train", 0, step}, epoch, microbatch, status);
  }
  void Release(int64_t before, int64_t epoch = 1) {
    ledger_->OnReleased({"train", 0, epoch, before});
  }

  // As a hello would list it now.
  LoaderStream Listed(const std::string& name = "train") const {
    for (const LoaderStream& stream : ledger_->HelloMessage().streams) {
      if (stream.name == name) return stream;
    }
    ADD_FAILURE() << "no data stream " << name;
    return {};
  }

  static std::string Text(const StepAddress& at) {
    return absl::StrCat(at.stream, " ", at.pass, "/", at.step);
  }
  static std::string Text(const std::optional<LoaderLedger::Work>& work) {
    if (!work) return "nothing";
    std::string text = Text({work->stream, work->pass, work->step});
    if (!work->rewind) return text;
    return absl::StrCat(text, " rewound to ",
                        work->rewind->state ? work->rewind->state->state : "the start");
  }
  std::string Work() const { return Text(ledger_->NextWork()); }

  static MadeStep StepOf(int64_t step, int64_t microbatches = 1) {
    MadeStep made;
    for (int64_t i = 0; i < microbatches; ++i) {
      made.microbatches.push_back({nullptr, 10, static_cast<uint64_t>(100 * step + i)});
    }
    made.state = absl::StrCat("after ", step);
    return made;
  }

  // Does the next work.
  std::string MakeOne(int64_t microbatches = 1) {
    const std::optional<LoaderLedger::Work> work = ledger_->NextWork();
    if (work) ledger_->Made(*work, StepOf(work->step, microbatches));
    return Text(work);
  }

  // Does all work that there is.
  std::vector<std::string> MakeAll() {
    std::vector<std::string> texts;
    while (ledger_->NextWork()) texts.push_back(MakeOne());
    return texts;
  }

  void FindEnd(int64_t end_step) {
    const std::optional<LoaderLedger::Work> work = ledger_->NextWork();
    ASSERT_TRUE(work.has_value());
    ledger_->MadeEnd(*work, end_step);
  }

  std::vector<LoaderLedger::Message> TakeMessages() {
    std::vector<LoaderLedger::Message> messages;
    while (std::optional<LoaderLedger::Message> message = ledger_->NextMessage()) {
      messages.push_back(*std::move(message));
    }
    return messages;
  }
  std::vector<std::string> Messages() {
    std::vector<std::string> texts;
    for (const LoaderLedger::Message& message : TakeMessages()) {
      if (const auto* push = std::get_if<LoaderLedger::Push>(&message)) {
        texts.push_back(absl::StrCat(Text(push->head.at), ".", push->head.microbatch));
      } else {
        const auto& end = std::get<EndOfStream>(message);
        texts.push_back("end " + Text({end.stream, end.pass, end.end_step}));
      }
    }
    return texts;
  }

  // Another connection, to a server that lost nothing or everything.
  void Reconnect() {
    ledger_->Disconnected();
    ledger_->Connected();
  }

  std::unique_ptr<LoaderLedger> ledger_;
};

}  // namespace cpshard
