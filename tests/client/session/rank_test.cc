// A rank against a server that does what the test tells it.
#include "client/session/rank.h"

#include <gmock/gmock.h>

#include <atomic>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/client/session/scripted_session.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rank 1's shard of an empty batch, but for `bytes` in one stream: all of the step.
v1::ShardFrame Shard(const v1::Want& want, int64_t bytes = 0) {
  v1::ShardFrame frame;
  frame.set_batch_id(want.id());
  frame.mutable_begin()->set_num_shards(1);
  v1::Shard* shard = frame.add_shards();
  shard->mutable_layout()->set_cp_rank(1);
  shard->mutable_layout()->set_cp_size(2);
  if (bytes > 0) {
    v1::Entry* entry = shard->add_entries();
    entry->set_name("x");
    entry->set_dtype(v1::DTYPE_U8);
    entry->add_dims(bytes);
    entry->set_nbytes(bytes);
    entry->set_extent(v1::EXTENT_WHOLE);
    frame.set_body(std::string(bytes, 'x'));
    frame.mutable_begin()->set_total_bytes(bytes);
  }
  frame.set_last(true);
  v1::DeliveryHead* head = frame.mutable_delivery();
  *head->mutable_at() = want.at();
  head->set_last(true);
  head->mutable_totals()->set_num_microbatches(1);
  head->set_owner(want.at().step() % 2);
  head->set_num_loaders(2);
  head->set_owner_state(absl::StrCat("after ", want.at().step()));
  return frame;
}

v1::ShardFrame Refusal(const v1::Want& want, grpc::StatusCode code, const std::string& text,
                       const std::string& reason) {
  v1::ShardFrame frame = cpshard::Refusal(want.id(), code, text);
  frame.mutable_status()->set_reason(reason);
  return frame;
}

// The next want, if there is one; what else comes is written down.
std::optional<v1::Want> ReadWant(PullStream* stream, std::vector<std::string>* others = nullptr) {
  v1::PullRequest request;
  while (stream->Read(&request)) {
    if (request.has_want()) return request.want();
    if (others == nullptr) continue;
    if (request.has_session()) others->push_back("session " + request.session().reader());
    if (request.has_commit()) {
      others->push_back(absl::StrCat("commit ", request.commit().at().step()));
    }
  }
  return std::nullopt;
}

grpc::Status DeliverAll(PullStream* stream) {
  while (const std::optional<v1::Want> want = ReadWant(stream)) stream->Write(Shard(*want));
  return grpc::Status::OK;
}

// Delivers steps below `count`, then ends the call.
ScriptedSession::PullScript DeliverThenEnd(int64_t count, grpc::StatusCode code) {
  return [count, code](PullStream* stream) {
    for (int64_t i = 0; i < count; ++i) stream->Write(Shard(*ReadWant(stream)));
    return grpc::Status(code, "as the script has it");
  };
}

class RankTest : public testing::Test {
 protected:
  void Serve(std::vector<ScriptedSession::PullScript> pulls) {
    server_ = std::make_unique<ScriptedSession>(std::move(pulls),
                                                std::vector<ScriptedSession::PushScript>());
  }

  static RankOptions SomeOptions() {
    RankOptions options;
    options.group = "g";
    options.cp_size = 2;
    options.cp_rank = 1;
    options.generation = 3;
    options.options = Options::FromJson(R"({"round_robin": {}})").value();
    options.streams = {{.name = "train"}};
    options.timeout = absl::Seconds(20);
    return options;
  }

  void Open(RankOptions options = SomeOptions()) {
    rank_ = Rank::Open(server_->address(), std::move(options)).value();
  }

  // The step's number, or the text of the status.
  std::string Next() {
    const absl::StatusOr<std::optional<RankStep>> step = rank_->Next("train");
    if (!step.ok()) return step.status().ToString();
    return step->has_value() ? absl::StrCat((*step)->step) : "end";
  }

  std::atomic<int> count_ = 0;  // of scripts, which run on while a test's own variables go
  std::unique_ptr<ScriptedSession> server_;
  std::unique_ptr<Rank> rank_;  // goes first
};

TEST_F(RankTest, ACallThatBreaksIsMadeAgainAndTellsWhatIsHere) {
  Serve({DeliverThenEnd(3, grpc::StatusCode::UNAVAILABLE), DeliverAll});
  Open();
  for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(Next(), absl::StrCat(step));
  const std::vector<v1::OpenSessionRequest> opened = server_->opened();
  ASSERT_EQ(opened.size(), 2);
  EXPECT_FALSE(opened[0].streams(0).has_received());
  EXPECT_EQ(opened[1].streams(0).received(), 2);
  EXPECT_EQ(opened[1].generation(), 3);
  EXPECT_EQ(opened[1].incarnation(), opened[0].incarnation());
  EXPECT_EQ(rank_->stats().opens, 2);
}

TEST_F(RankTest, IsToldOfAConnectionThatIsLostAndNotOfOneThatItHangsUp) {
  Serve({DeliverThenEnd(1, grpc::StatusCode::UNAVAILABLE), DeliverAll});
  std::vector<std::string> lost;
  RankOptions options = SomeOptions();
  options.on_lost = [&](const absl::Status& why) { lost.emplace_back(why.message()); };
  Open(std::move(options));
  EXPECT_EQ(Next(), "0");
  EXPECT_EQ(Next(), "1");
  EXPECT_TRUE(rank_->Close().ok());
  rank_.reset();
  EXPECT_THAT(lost, ::testing::ElementsAre("as the script has it"));
}

TEST_F(RankTest, ASessionThatTheServerDoesNotKnowIsOpenedAgain) {
  Serve({DeliverThenEnd(1, grpc::StatusCode::NOT_FOUND), DeliverAll});
  Open();
  for (int64_t step = 0; step < 4; ++step) EXPECT_EQ(Next(), absl::StrCat(step));
  EXPECT_EQ(server_->opened().size(), 2);
}

TEST_F(RankTest, ASessionThatIsRefusedForGoodIsOver) {
  for (const auto code : {grpc::StatusCode::ABORTED, grpc::StatusCode::FAILED_PRECONDITION,
                          grpc::StatusCode::NOT_FOUND, grpc::StatusCode::INVALID_ARGUMENT}) {
    Serve({DeliverAll});
    server_->open = [code] { return grpc::Status(code, "generation 7 is open"); };
    Open();
    EXPECT_THAT(Next(), HasSubstr("generation 7 is open"));
    EXPECT_THAT(Next(), HasSubstr("generation 7 is open"));
    EXPECT_EQ(server_->opened().size(), 1);
    rank_.reset();
  }
}

TEST_F(RankTest, TheExecutorIsAskedForAndThatOfTheServerAndOfEveryShardIsSaid) {
  Serve({[](PullStream* stream) {
    while (const std::optional<v1::Want> want = ReadWant(stream)) {
      v1::ShardFrame frame = Shard(*want);
      frame.mutable_begin()->set_executor(absl::StrCat("cuda:", want->at().step()));
      stream->Write(frame);
    }
    return grpc::Status::OK;
  }});
  server_->executor = "cuda:0";
  RankOptions options = SomeOptions();
  options.executor = ExecutorKind::kCuda;
  Open(std::move(options));
  for (int64_t step = 0; step < 3; ++step) {
    const auto got = rank_->Next("train");
    ASSERT_TRUE(got.ok() && got->has_value()) << got.status();
    EXPECT_EQ((*got)->microbatches.at(0).executor, absl::StrCat("cuda:", step));
  }
  EXPECT_EQ(server_->opened().at(0).executor(), v1::EXECUTOR_CUDA);
  EXPECT_EQ(rank_->stats().executor, "cuda:0");
}

TEST_F(RankTest, AServerThatShardsWithAnotherExecutorThanWasAskedForIsRefused) {
  for (const char* named : {"", "cpu"}) {
    Serve({DeliverAll});
    server_->executor = named;
    RankOptions options = SomeOptions();
    options.executor = ExecutorKind::kCuda;
    Open(std::move(options));
    EXPECT_THAT(Next(), HasSubstr("executor cuda was asked for"));
    EXPECT_EQ(server_->opened().size(), 1);
    rank_.reset();
  }
}

TEST_F(RankTest, NoSessionIsOpenedAtAServerThatDoesNotKnowExecutors) {
  Serve({DeliverAll});
  server_->introduction = [](v1::GetServerInfoReply* reply) {
    reply->add_capabilities("open_session");
  };
  RankOptions options = SomeOptions();
  options.executor = ExecutorKind::kCuda;
  Open(std::move(options));
  EXPECT_THAT(Next(), HasSubstr("older than this choice"));
  EXPECT_THAT(server_->opened(), ::testing::IsEmpty());
}

TEST_F(RankTest, AFencedSessionHandsOutWhatItHasAndIsOver) {
  Serve({DeliverThenEnd(2, grpc::StatusCode::ABORTED)});
  Open();
  EXPECT_EQ(Next(), "0");
  EXPECT_EQ(Next(), "1");
  EXPECT_THAT(Next(), HasSubstr("ABORTED"));
  EXPECT_EQ(server_->opened().size(), 1);
}

TEST_F(RankTest, AServerThatIsNotReadyToOpenIsAskedAgain) {
  Serve({DeliverAll});
  server_->open = [this] {
    return ++count_ < 3 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining")
                        : grpc::Status::OK;
  };
  Open();
  EXPECT_EQ(Next(), "0");
  EXPECT_EQ(count_, 3);
}

TEST_F(RankTest, APeerThatLeftFailsOneNextAndTheStepIsAskedForAgain) {
  Serve({[](PullStream* stream) {
    stream->Write(Refusal(*ReadWant(stream), grpc::ABORTED, "rank 0 is away", "PEER_LEFT"));
    return DeliverAll(stream);
  }});
  RankOptions options = SomeOptions();
  options.prefetch = 0;
  Open(options);
  // The refusal may have come before Next did, and then it is not what this Next fails with.
  const std::string first = Next();
  if (first != "0") {
    EXPECT_THAT(first, HasSubstr("rank 0 is away"));
    EXPECT_EQ(Next(), "0");
  }
  EXPECT_EQ(Next(), "1");
}

TEST_F(RankTest, ALateStepSaysWhoIsWaitedForAndTheWaitIsTheirs) {
  struct Case {
    std::string waiting_for;
    absl::Duration Stall::*part;
  };
  for (const Case& one : {Case{"train/0 from loader 3 (last seen 41s ago)", &Stall::loader},
                          Case{"rank 0 to open generation 3", &Stall::peer}}) {
    Serve({[one](PullStream* stream) {
      while (const std::optional<v1::Want> want = ReadWant(stream)) {
        EXPECT_EQ(want->timeout_ms(), 2000);
        absl::SleepFor(absl::Milliseconds(20));
        stream->Write(
            Refusal(*want, grpc::DEADLINE_EXCEEDED, "waiting for " + one.waiting_for, "NOT_READY"));
      }
      return grpc::Status::OK;
    }});
    RankOptions options = SomeOptions();
    options.timeout = absl::Milliseconds(500);
    Open(options);
    EXPECT_THAT(Next(), HasSubstr(one.waiting_for));
    const Stall stall = rank_->stats().last;
    EXPECT_GT(stall.*one.part, absl::Milliseconds(100));
    EXPECT_LT(stall.total() - stall.*one.part, stall.total() / 2);
    rank_.reset();
  }
}

TEST_F(RankTest, ACommitTellsWhatTheTrainerHasWaitedSinceTheOneBefore) {
  absl::Mutex mutex;
  std::vector<v1::Commit> commits;
  Serve({[&](PullStream* stream) {
    v1::PullRequest request;
    while (stream->Read(&request)) {
      if (request.has_commit()) {
        absl::MutexLock lock(&mutex);
        commits.push_back(request.commit());
      }
      if (!request.has_want()) continue;
      const v1::Want want = request.want();
      if (want.at().step() == 0) absl::SleepFor(absl::Milliseconds(300));
      stream->Write(Shard(want));
    }
    return grpc::Status::OK;
  }});
  RankOptions options = SomeOptions();
  options.prefetch = 0;
  Open(options);
  EXPECT_EQ(Next(), "0");
  absl::SleepFor(absl::Milliseconds(100));  // the trainer's own time
  for (const char* step : {"1", "2", "3"}) EXPECT_EQ(Next(), step);
  const Stall all = rank_->stats().all;
  rank_.reset();
  server_->Stop();  // its script goes on until then
  // Step 3 was asked for behind the commit of step 1.
  absl::MutexLock lock(&mutex);
  ASSERT_GE(commits.size(), 2u);
  const v1::StallTime& first = commits[0].stall();
  const int64_t waited = first.loader() + first.peer() + first.server() + first.copy();
  EXPECT_GE(waited, 290'000);
  EXPECT_GE(commits[0].elapsed_us(), waited + 90'000);
  const v1::StallTime& second = commits[1].stall();
  EXPECT_LT(second.loader() + second.peer() + second.server() + second.copy(), waited);
  EXPECT_LT(commits[1].elapsed_us(), commits[0].elapsed_us());
  EXPECT_LE(first.loader() + second.loader(), absl::ToInt64Microseconds(all.loader));
}

TEST_F(RankTest, WhatAnotherDataStreamHasPrefetchedMakesWayForTheStepThatIsAwaited) {
  Serve({[this](PullStream* stream) {
    std::vector<v1::Want> late;  // of train, until validation fills the memory
    while (const std::optional<v1::Want> want = ReadWant(stream)) {
      const bool is_train = want->at().stream() == "train";
      if (is_train && count_ < 2) {
        late.push_back(*want);
      } else {
        stream->Write(Shard(*want, 4000));
      }
      if (!is_train && ++count_ == 2) {
        for (const v1::Want& one : late) stream->Write(Shard(one, 4000));
      }
    }
    return grpc::Status::OK;
  }});
  RankOptions options = SomeOptions();
  options.streams = {{.name = "train"}, {.name = "validation"}};
  options.max_bytes = 2 * 8192;  // room for two or three steps
  options.prefetch = 1;
  options.timeout = absl::Seconds(10);
  Open(options);
  std::vector<RankStep> held;
  for (int64_t step = 0; step < 4; ++step) {
    absl::StatusOr<std::optional<RankStep>> next = rank_->Next("train");
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)->step, step);
    held = {**std::move(next)};
  }
}

TEST_F(RankTest, TheRoomThatOthersMadeIsForTheStepThatIsAwaited) {
  struct Case {
    std::string other;
    int64_t bytes, prefetch;
  };
  for (const Case& one : {Case{"validation", 7000, 1}, Case{"validation", 7000, 2},
                          Case{"eval", 4000, 2}, Case{"eval", 7000, 0}}) {
    SCOPED_TRACE(absl::StrCat(one.other, " ", one.bytes, " ", one.prefetch));
    Serve({[one](PullStream* stream) {
      while (const std::optional<v1::Want> want = ReadWant(stream)) {
        stream->Write(Shard(*want, one.bytes));
      }
      return grpc::Status::OK;
    }});
    RankOptions options = SomeOptions();
    options.streams = {{.name = "train"}, {.name = one.other}};
    options.max_bytes = 2 * 8192;
    options.prefetch = one.prefetch;
    options.timeout = absl::Seconds(5);
    Open(options);
    std::vector<RankStep> held;  // the trainer keeps one step while it waits for the next
    for (int64_t step = 0; step < 4; ++step) {
      absl::StatusOr<std::optional<RankStep>> next = rank_->Next("train");
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_EQ((*next)->step, step);
      held = {**std::move(next)};
    }
    held.clear();
    rank_.reset();
  }
}

TEST_F(RankTest, WhileTheServerIsAwayTheWaitIsTheServers) {
  Serve({DeliverAll});
  server_->open = [] { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"); };
  RankOptions options = SomeOptions();
  options.timeout = absl::Milliseconds(300);
  Open(options);
  EXPECT_THAT(Next(), HasSubstr("cannot connect: draining"));
  EXPECT_EQ(rank_->stats().last.server, rank_->stats().last.total());
  EXPECT_GE(rank_->stats().last.server, absl::Milliseconds(250));
}

TEST_F(RankTest, WhatIsPrefetchedIsNotCommitted) {
  absl::Mutex mutex;
  std::vector<std::string> others;
  Serve({[&](PullStream* stream) {
    while (true) {
      std::vector<std::string> seen;
      const std::optional<v1::Want> want = ReadWant(stream, &seen);
      {
        absl::MutexLock lock(&mutex);
        others.insert(others.end(), seen.begin(), seen.end());
      }
      if (!want) return grpc::Status::OK;
      stream->Write(Shard(*want));
    }
  }});
  Open();
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(Next(), absl::StrCat(step));
  EXPECT_EQ(rank_->State().streams["train"].next_step, 2);
  EXPECT_EQ(rank_->State().streams["train"].resume,
            (ResumeState{2, {{0, {0, "after 0"}}, {1, {1, "after 1"}}}}));
  rank_->Consumed("train");
  EXPECT_EQ(rank_->State().streams["train"].next_step, 3);
  EXPECT_EQ(rank_->State().streams["train"].resume,
            (ResumeState{2, {{0, {2, "after 2"}}, {1, {1, "after 1"}}}}));
  EXPECT_EQ(Next(), "3");
  EXPECT_EQ(Next(), "4");  // asked for behind the commit of step 0
  rank_.reset();
  server_->Stop();
  absl::MutexLock lock(&mutex);
  ASSERT_GE(others.size(), 2);
  EXPECT_EQ(others.front(), "session rank1");
  EXPECT_THAT(others, testing::Not(testing::Contains("commit 4")));
}

TEST_F(RankTest, TheEndOfThePassIsSaidAsOftenAsItIsAskedFor) {
  Serve({[](PullStream* stream) {
    while (const std::optional<v1::Want> want = ReadWant(stream)) {
      if (want->at().step() < 2) {
        stream->Write(Shard(*want));
        continue;
      }
      v1::ShardFrame end = Refusal(*want, grpc::OUT_OF_RANGE, "it ends", "END_OF_STREAM");
      (*end.mutable_status()->mutable_values())["end_step"] = "2";
      stream->Write(end);
    }
    return grpc::Status::OK;
  }});
  Open();
  EXPECT_EQ(Next(), "0");
  EXPECT_EQ(Next(), "1");
  EXPECT_EQ(Next(), "end");
  EXPECT_EQ(Next(), "end");
  EXPECT_EQ(rank_->State().streams["train"].next_step, 2);
}

TEST_F(RankTest, BrokenAnswersEndTheSession) {
  const std::vector<std::pair<std::string, std::function<void(v1::ShardFrame*)>>> breaks = {
      {"says of no step", [](auto* frame) { frame->clear_delivery(); }},
      {"begins with frame", [](auto* frame) { frame->set_frame_seq(1); }},
      {"was not made", [](auto* frame) { frame->set_batch_id(99); }},
      {"rank", [](auto* frame) { frame->mutable_shards(0)->mutable_layout()->set_cp_rank(0); }},
      {"totals", [](auto* frame) { frame->mutable_delivery()->clear_totals(); }},
      {"loader", [](auto* frame) { frame->mutable_delivery()->set_owner(1); }},
  };
  for (const auto& [text, break_it] : breaks) {
    SCOPED_TRACE(text);
    Serve({[break_it = break_it](PullStream* stream) {
      v1::ShardFrame frame = Shard(*ReadWant(stream));
      break_it(&frame);
      stream->Write(frame);
      return DeliverAll(stream);
    }});
    Open();
    const std::string status = Next();
    EXPECT_THAT(status, HasSubstr("INTERNAL"));
    EXPECT_THAT(status, HasSubstr(text));
    EXPECT_EQ(server_->opened().size(), 1);
    rank_.reset();
  }
}

TEST_F(RankTest, AStepForWhichThereIsNoMemoryNowIsAskedForAgain) {
  Serve({[this](PullStream* stream) {
    while (const std::optional<v1::Want> want = ReadWant(stream)) {
      ++count_;
      stream->Write(Shard(*want, 4000));
    }
    return grpc::Status::OK;
  }});
  RankOptions options = SomeOptions();
  options.max_bytes = 2 * 8192;  // room for two or three steps
  options.prefetch = 3;
  Open(options);
  std::vector<RankStep> held;
  for (int64_t step = 0; step < 8; ++step) {
    absl::StatusOr<std::optional<RankStep>> next = rank_->Next("train");
    ASSERT_TRUE(next.ok()) << next.status();
    ASSERT_TRUE(next->has_value());
    EXPECT_EQ((*next)->step, step);
    const Tensor* x = (*next)->microbatches.at(0).shard.batch.FindTensor("x");
    ASSERT_NE(x, nullptr);
    EXPECT_EQ(x->buffer.size(), 4000);
    // The trainer keeps one step while it waits for the next.
    held = {**std::move(next)};
    if (step == 0) {
      while (count_ < 5) absl::SleepFor(absl::Milliseconds(1));  // one of four did not fit
    }
  }
}

TEST_F(RankTest, AStepThatNeverFitsIsAnErrorThatNamesTheOption) {
  Serve({[](PullStream* stream) {
    while (const std::optional<v1::Want> want = ReadWant(stream)) {
      stream->Write(Shard(*want, 100'000));
    }
    return grpc::Status::OK;
  }});
  RankOptions options = SomeOptions();
  options.max_bytes = 50'000;
  Open(options);
  EXPECT_THAT(Next(), HasSubstr("raise max_bytes"));
}

TEST_F(RankTest, AClosedSessionIsClosedAtTheServerAndHandsOutNothingMore) {
  Serve({DeliverAll});
  server_->close = [this] {
    return ++count_ < 2 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "a moment")
                        : grpc::Status::OK;
  };
  Open();
  EXPECT_EQ(Next(), "0");
  EXPECT_TRUE(rank_->Close(absl::Seconds(20)).ok());
  EXPECT_EQ(count_, 2);
  std::string status;
  for (int i = 0; i < 5; ++i) status = Next();  // what is here already
  EXPECT_THAT(status, HasSubstr("CANCELLED"));
}

TEST_F(RankTest, ClosingOnceMoreSaysTheSameAtOnce) {
  Serve({DeliverAll});
  server_->close = [this] {
    ++count_;
    return grpc::Status::OK;
  };
  Open();
  EXPECT_EQ(Next(), "0");
  EXPECT_TRUE(rank_->Close(absl::Seconds(20)).ok());
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(rank_->Close(absl::Seconds(20)).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_EQ(count_, 1);
}

TEST_F(RankTest, ACloseThatOthersHoldUpEndsWithItsPatience) {
  Serve({DeliverAll});
  server_->close = [] {
    absl::SleepFor(absl::Milliseconds(600));
    return grpc::Status::OK;
  };
  Open();
  EXPECT_EQ(Next(), "0");
  EXPECT_TRUE(absl::IsDeadlineExceeded(rank_->Close(absl::Milliseconds(200))));
}

TEST_F(RankTest, WhatCannotBeIsRefusedBeforeAnythingIsSent) {
  const auto refused = [](std::function<void(RankOptions*)> change) {
    RankOptions options = SomeOptions();
    change(&options);
    return Rank::Open("unix:/nowhere/s", options).status();
  };
  const auto no_streams = refused([](auto* options) { options->streams.clear(); });
  EXPECT_TRUE(absl::IsInvalidArgument(no_streams)) << no_streams;
  const auto no_such_rank = refused([](auto* options) { options->cp_rank = 2; });
  EXPECT_TRUE(absl::IsInvalidArgument(no_such_rank)) << no_such_rank;
  const auto no_layout = refused([](auto* options) { options->options = Options(); });
  EXPECT_TRUE(absl::IsInvalidArgument(no_layout)) << no_layout;
  const auto no_room = refused([](auto* options) { options->max_bytes = 0; });
  EXPECT_TRUE(absl::IsInvalidArgument(no_room)) << no_room;
}

TEST_F(RankTest, ACheckpointOfOtherDataOrOptionsIsRefusedWithBothValues) {
  Serve({DeliverAll});
  RankOptions options = SomeOptions();
  options.fingerprint = "data-1";
  Open(options);
  const TrainState state = rank_->State();
  options.resume = state;
  options.cp_size = 4;  // a re-shard, which fits
  EXPECT_TRUE(Rank::Open(server_->address(), options).ok());
  options.fingerprint = "data-2";
  const absl::Status other_data = Rank::Open(server_->address(), options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other_data));
  EXPECT_THAT(std::string(other_data.message()), HasSubstr("'data-1'"));
  EXPECT_THAT(std::string(other_data.message()), HasSubstr("'data-2'"));
  options.fingerprint = "data-1";
  options.options = Options::FromJson(R"({"contiguous": {}})").value();
  const absl::Status other_options = Rank::Open(server_->address(), options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other_options));
  EXPECT_THAT(std::string(other_options.message()), HasSubstr(state.options_hash));
}

}  // namespace
}  // namespace cpshard
