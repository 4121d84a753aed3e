// A loader against a server that does what the test tells it.
#include "client/session/loader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/batch/tensors.h"
#include "tests/client/session/scripted_session.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Step n is the number n, `bytes` times; there are `end` of them.
class NumberSource : public StepSource {
 public:
  explicit NumberSource(int64_t end, int64_t bytes = 128) : end_(end), bytes_(bytes) {}

  absl::StatusOr<std::optional<SourceStep>> Make(int64_t, int64_t step) override {
    Note(absl::StrCat("make ", step));
    if (step >= end_) return std::nullopt;
    if (step == broken_) return absl::DataLossError("the file is damaged");
    SourceStep made;
    const std::vector<uint8_t> values(bytes_, static_cast<uint8_t>(step));
    made.microbatches.push_back({{TensorOf("input_ids", DType::kU8, {1, bytes_}, values)}, {}});
    made.state = absl::StrCat("after ", step);
    return made;
  }
  int64_t EndStep(int64_t) override { return end_; }
  absl::Status Rewind(int64_t, int64_t step, const std::optional<LoaderState>& state) override {
    Note(absl::StrCat("go to ", step, ", ", state ? state->state : "the start"));
    return absl::OkStatus();
  }

  void BreakAt(int64_t step) { broken_ = step; }

  std::vector<std::string> notes() const {
    absl::MutexLock lock(&mutex_);
    return notes_;
  }

 private:
  void Note(std::string text) {
    absl::MutexLock lock(&mutex_);
    notes_.push_back(std::move(text));
  }

  const int64_t end_, bytes_;
  std::atomic<int64_t> broken_ = -1;
  mutable absl::Mutex mutex_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

// What a server says, and what it hears.
class Peer {
 public:
  explicit Peer(PushStream* stream) : stream_(stream) {
    v1::BatchFrame frame;
    stream_->Read(&frame);
    hello = frame.hello();
    v1::LoaderNotice welcome;
    welcome.mutable_welcome()->set_instance("one");
    stream_->Write(welcome);
  }

  void Position(int64_t from, const std::string& state = "", int64_t epoch = 1) {
    v1::LoaderNotice notice;
    v1::Position* position = notice.mutable_position();
    position->set_generation(1);
    position->set_stream("train");
    position->set_epoch(epoch);
    position->set_from_step(from);
    if (!state.empty()) {
      position->mutable_state()->set_step(from - 1);
      position->mutable_state()->set_state(state);
    }
    stream_->Write(notice);
  }

  void Credit(int64_t step, int64_t epoch = 1) {
    v1::LoaderNotice notice;
    *notice.mutable_credit()->mutable_at() = At(step);
    notice.mutable_credit()->set_epoch(epoch);
    notice.mutable_credit()->set_bytes(64 << 20);
    stream_->Write(notice);
  }

  void Ack(int64_t step, grpc::StatusCode code = grpc::StatusCode::OK,
           const std::string& text = "") {
    v1::LoaderNotice notice;
    *notice.mutable_ack()->mutable_at() = At(step);
    notice.mutable_ack()->set_epoch(1);
    if (code != grpc::StatusCode::OK) {
      notice.mutable_ack()->mutable_status()->set_code(code);
      notice.mutable_ack()->mutable_status()->set_message(text);
    }
    stream_->Write(notice);
  }

  void Released(int64_t before) {
    v1::LoaderNotice notice;
    notice.mutable_released()->set_stream("train");
    notice.mutable_released()->set_epoch(1);
    notice.mutable_released()->set_before(before);
    stream_->Write(notice);
  }

  void Done() {
    v1::LoaderNotice notice;
    notice.mutable_pass_done()->set_stream("train");
    notice.mutable_pass_done()->set_finished(true);
    stream_->Write(notice);
  }

  void Drain() {
    v1::LoaderNotice notice;
    notice.mutable_drain();
    stream_->Write(notice);
  }

  // The next batch, as "step 3: 128 x 3", or end, as "end 4"; empty: the loader has hung up.
  std::string Hear() {
    v1::BatchFrame frame;
    std::string text;
    std::string body;
    while (stream_->Read(&frame)) {
      if (frame.has_end()) return absl::StrCat("end ", frame.end().end_step());
      if (frame.has_push()) {
        text = absl::StrCat("step ", frame.push().at().step());
        EXPECT_TRUE(frame.has_begin());
        EXPECT_FALSE(frame.begin().has_options());
        EXPECT_TRUE(frame.push().last_microbatch());
        EXPECT_EQ(frame.push().state(), absl::StrCat("after ", frame.push().at().step()));
      }
      EXPECT_EQ(frame.offset(), body.size());
      body += frame.body();
      if (!frame.last()) continue;
      const auto count = std::count(body.begin(), body.end(), body.front());
      return absl::StrCat(text, ": ", count, " x ", static_cast<int>(body.front()));
    }
    return "";
  }

  grpc::Status UntilHungUp() {
    while (!Hear().empty()) {
    }
    return grpc::Status::OK;
  }

  v1::LoaderHello hello;

 private:
  static v1::StepAddress At(int64_t step) {
    v1::StepAddress at;
    at.set_stream("train");
    at.set_step(step);
    return at;
  }

  PushStream* const stream_;
};

class LoaderTest : public testing::Test {
 protected:
  void Start(std::vector<ScriptedSession::PushScript> pushes, LoaderOptions options = {}) {
    server_ = std::make_unique<ScriptedSession>(std::vector<ScriptedSession::PullScript>(),
                                                std::move(pushes));
    options.group = "g";
    loader_ = Loader::Start(server_->address(), std::move(options), {{"train", &source_}}).value();
  }

  // At the right place of the script: what the loader has made and let go since.
  void AwaitHeld(int64_t steps) {
    while (loader_->stats().held_steps != steps) absl::SleepFor(absl::Milliseconds(1));
  }

  NumberSource source_{3};
  std::atomic<int> count_ = 0;  // of scripts, which run on while a test's own variables go
  std::unique_ptr<ScriptedSession> server_;
  std::unique_ptr<Loader> loader_;  // goes first
};

TEST_F(LoaderTest, PushesWhatItHasCreditForAndEndsWhenAllReadersAreDone) {
  Start({[](PushStream* stream) {
    Peer peer(stream);
    EXPECT_EQ(peer.hello.group(), "g");
    EXPECT_EQ(peer.hello.streams(0).name(), "train");
    peer.Position(0);
    for (int64_t step = 0; step < 2; ++step) {
      peer.Credit(step);
      EXPECT_EQ(peer.Hear(), absl::StrCat("step ", step, ": 128 x ", step));
      peer.Ack(step);
    }
    // The end needs no credit: it is said as soon as it is found.
    peer.Credit(2);
    const std::vector<std::string> heard = {peer.Hear(), peer.Hear()};
    EXPECT_THAT(heard, UnorderedElementsAre("step 2: 128 x 2", "end 3"));
    peer.Ack(2);
    peer.Released(3);
    peer.Done();
    return peer.UntilHungUp();
  }});
  const absl::Status ended = loader_->Wait();
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_THAT(source_.notes(), ElementsAre("make 0", "make 1", "make 2", "make 3"));
  EXPECT_EQ(loader_->stats().pushed, 3);
  EXPECT_EQ(loader_->stats().held_bytes, 0);
}

TEST_F(LoaderTest, WhatWasNotReleasedIsPushedAgainToAServerThatHasLostIt) {
  Start({[](PushStream* stream) {
           Peer peer(stream);
           peer.Position(0);
           peer.Credit(0);
           peer.Credit(1);
           EXPECT_EQ(peer.Hear(), "step 0: 128 x 0");
           peer.Ack(0);
           EXPECT_EQ(peer.Hear(), "step 1: 128 x 1");
           return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
         },
         [](PushStream* stream) {
           Peer peer(stream);
           EXPECT_EQ(peer.hello.streams(0).held_from(), 0);
           EXPECT_EQ(peer.hello.generation_seen(), 1);
           peer.Position(0, "", 5);
           peer.Credit(0, 5);
           peer.Credit(1, 5);
           EXPECT_EQ(peer.Hear(), "step 0: 128 x 0");
           EXPECT_EQ(peer.Hear(), "step 1: 128 x 1");
           peer.Done();
           return peer.UntilHungUp();
         }});
  EXPECT_TRUE(loader_->Wait().ok()) << loader_->Wait();
  EXPECT_EQ(loader_->stats().connects, 2);
  EXPECT_EQ(loader_->stats().pushed_again, 2);
  EXPECT_EQ(loader_->stats().rewinds, 0);
}

TEST_F(LoaderTest, AskedForAStepThatItNeverMadeTheSourceGoesThereWithItsState) {
  Start({[](PushStream* stream) {
    Peer peer(stream);
    peer.Position(2, "after 1");
    peer.Credit(2);
    std::string heard = peer.Hear();
    if (heard == "end 3") heard = peer.Hear();  // the source may find it before the credit is here
    EXPECT_EQ(heard, "step 2: 128 x 2");
    peer.Done();
    return peer.UntilHungUp();
  }});
  EXPECT_TRUE(loader_->Wait().ok()) << loader_->Wait();
  EXPECT_EQ(source_.notes().at(0), "go to 2, after 1");
  EXPECT_EQ(source_.notes().at(1), "make 2");
}

TEST_F(LoaderTest, ABatchThatArrivedDamagedIsPushedAgain) {
  Start({[](PushStream* stream) {
    Peer peer(stream);
    peer.Position(0);
    peer.Credit(0);
    EXPECT_EQ(peer.Hear(), "step 0: 128 x 0");
    peer.Ack(0, grpc::StatusCode::DATA_LOSS, "another digest");
    EXPECT_EQ(peer.Hear(), "step 0: 128 x 0");
    peer.Ack(0, grpc::StatusCode::RESOURCE_EXHAUSTED, "no room now");
    EXPECT_EQ(peer.Hear(), "step 0: 128 x 0");
    peer.Done();
    return peer.UntilHungUp();
  }});
  EXPECT_TRUE(loader_->Wait().ok()) << loader_->Wait();
  EXPECT_EQ(loader_->stats().pushed_again, 2);
}

TEST_F(LoaderTest, ABatchThatIsRefusedForGoodEndsTheLoader) {
  Start({[](PushStream* stream) {
    Peer peer(stream);
    peer.Position(0);
    peer.Credit(0);
    peer.Hear();
    peer.Ack(0, grpc::StatusCode::INVALID_ARGUMENT, "stream 'labels' is missing");
    return peer.UntilHungUp();
  }});
  const absl::Status ended = loader_->Wait();
  EXPECT_TRUE(absl::IsInvalidArgument(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("step 0 of data stream 'train'"));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("'labels' is missing"));
}

TEST_F(LoaderTest, ALoaderThatIsRefusedOrReplacedDoesNotComeBack) {
  for (const auto code : {grpc::StatusCode::ABORTED, grpc::StatusCode::FAILED_PRECONDITION}) {
    Start({[code](PushStream* stream) {
      Peer peer(stream);
      return grpc::Status(code, "a newer process has come");
    }});
    const absl::Status ended = loader_->Wait();
    EXPECT_EQ(static_cast<int>(ended.code()), static_cast<int>(code)) << ended;
    EXPECT_EQ(server_->pushes(), 1);
    loader_.reset();
  }
}

TEST_F(LoaderTest, AnErrorOfTheSourceEndsTheLoaderAndNamesTheStep) {
  source_.BreakAt(1);
  Start({[](PushStream* stream) {
    Peer peer(stream);
    peer.Position(0);
    peer.Credit(0);
    return peer.UntilHungUp();
  }});
  const absl::Status ended = loader_->Wait();
  EXPECT_TRUE(absl::IsDataLoss(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("step 1"));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("the file is damaged"));
}

TEST_F(LoaderTest, IsToldOnceThatTheServerGoesDownAndComesBack) {
  Start({[&](PushStream* stream) {
           Peer peer(stream);
           peer.Drain();
           while (count_ == 0) absl::SleepFor(absl::Milliseconds(1));
           return grpc::Status::OK;
         },
         [](PushStream* stream) {
           Peer peer(stream);
           peer.Done();
           return peer.UntilHungUp();
         }},
        {.on_drain = [&] { ++count_; }});
  EXPECT_TRUE(loader_->Wait().ok()) << loader_->Wait();
  EXPECT_EQ(count_, 1);
  EXPECT_EQ(loader_->stats().connects, 2);
}

TEST_F(LoaderTest, IsToldOfEveryConnectionThatIsLostAndWhyAndNotOfTheEnd) {
  absl::Mutex mutex;
  std::vector<std::string> lost;
  const auto end = [](const char* text) {
    return [text](PushStream* stream) {
      Peer peer(stream);
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, text);
    };
  };
  Start({end("the device is lost"), end("it stops"),
         [](PushStream* stream) {
           Peer peer(stream);
           peer.Done();
           return peer.UntilHungUp();
         }},
        {.on_lost = [&](const absl::Status& why) {
          absl::MutexLock lock(&mutex);
          lost.emplace_back(why.message());
        }});
  EXPECT_TRUE(loader_->Wait().ok()) << loader_->Wait();
  loader_.reset();
  EXPECT_THAT(lost, ElementsAre("the device is lost", "it stops"));
}

TEST_F(LoaderTest, LargeBatchesAreCutIntoFramesThatTheServerTakes) {
  NumberSource large(1, 5'000'000);
  server_ = std::make_unique<ScriptedSession>(
      std::vector<ScriptedSession::PullScript>(),
      std::vector<ScriptedSession::PushScript>{[](PushStream* stream) {
        Peer peer(stream);
        peer.Position(0);
        peer.Credit(0);
        EXPECT_EQ(peer.Hear().substr(0, 8), "step 0: ");
        peer.Done();
        return peer.UntilHungUp();
      }});
  for (const bool checksums : {false, true}) {
    const auto loader = Loader::Start(server_->address(), {.group = "g", .checksums = checksums},
                                      {{"train", &large}})
                            .value();
    EXPECT_TRUE(loader->Wait().ok()) << loader->Wait();
  }
}

TEST_F(LoaderTest, WhatIsNoNoticeEndsTheLoader) {
  Start({[](PushStream* stream) {
    Peer peer(stream);
    stream->Write(v1::LoaderNotice());
    return peer.UntilHungUp();
  }});
  EXPECT_TRUE(absl::IsInternal(loader_->Wait())) << loader_->Wait();
}

TEST_F(LoaderTest, StopEndsItWhileItWaitsAndWhileThereIsNoServer) {
  Start({[](PushStream* stream) {
    Peer peer(stream);
    peer.Position(0);
    return peer.UntilHungUp();
  }});
  AwaitHeld(1);
  loader_->Stop();
  EXPECT_TRUE(loader_->Wait().ok());
  const auto lost = Loader::Start("unix:/nowhere/s", {.group = "g"}, {{"train", &source_}}).value();
  lost->Stop();
  EXPECT_TRUE(lost->Wait().ok());
}

TEST_F(LoaderTest, WhatWasReleasedIsLetGo) {
  Start({[&](PushStream* stream) {
    Peer peer(stream);
    peer.Position(0);
    peer.Credit(0);
    peer.Hear();
    peer.Ack(0);
    while (count_ == 0) absl::SleepFor(absl::Milliseconds(1));
    peer.Released(1);
    return peer.UntilHungUp();
  }});
  AwaitHeld(2);  // one ahead of its credits
  EXPECT_GE(loader_->stats().held_bytes, 200);
  count_ = 1;
  AwaitHeld(1);
}

TEST_F(LoaderTest, WhatCannotBeIsRefusedBeforeAnythingIsSent) {
  const auto start = [&](LoaderOptions options, std::map<std::string, StepSource*> sources) {
    return Loader::Start("unix:/nowhere/s", std::move(options), std::move(sources)).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(start({.group = "g"}, {})));
  EXPECT_TRUE(absl::IsInvalidArgument(start({.group = "g"}, {{"train", nullptr}})));
  EXPECT_TRUE(absl::IsInvalidArgument(start({.group = ""}, {{"train", &source_}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      start({.group = "g", .loader = 2, .num_loaders = 2}, {{"train", &source_}})));
}

}  // namespace
}  // namespace cpshard
