// The stream client against servers that never come to an end with a batch: every one of them is
// got over with, in a time and at a price that are bounded.
#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "tests/batch/tensors.h"
#include "tests/client/scripted_server.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

Batch BatchOf(int64_t bytes) {
  return {{TensorOf("input_ids", DType::kU8, {1, bytes}, std::vector<uint8_t>(bytes))}, {}};
}

TEST_F(ScriptedServerTest, AServerThatIsSlowToIntroduceItselfIsWaitedForOnOneConnection) {
  Serve({AnswerAll});
  stream_.reset();
  const auto introduce = server_->introduction;
  server_->introduction = [introduce](v1::GetServerInfoReply* reply) {
    absl::SleepFor(absl::Milliseconds(2500));
    introduce(reply);
  };
  Open({.deadline = absl::Seconds(15)});
  const int before = server_->greetings();
  EXPECT_TRUE(Submit().Wait().ok());
  EXPECT_EQ(server_->greetings(), before + 1);
}

TEST_F(ScriptedServerTest, ALimitThatIsNotStatedOrBeyondAllBoundsDoesNoHarm) {
  Serve({AnswerAll});
  for (const int64_t limit : {int64_t{0}, std::numeric_limits<int64_t>::max()}) {
    stream_.reset();
    server_->introduction = [limit](v1::GetServerInfoReply* reply) {
      reply->mutable_limits()->set_max_batch_bytes(limit);
      reply->mutable_limits()->set_max_inflight_bytes(limit);
      reply->mutable_limits()->set_max_inflight_batches(limit);
      reply->mutable_limits()->set_max_chunk_bytes(limit);
    };
    Open({.deadline = absl::Seconds(20)});
    const absl::Status status = Submit().Wait().status();
    EXPECT_TRUE(status.ok()) << limit << ": " << status;
  }
}

TEST_F(ScriptedServerTest, ShardsOfOtherRanksAreNoAnswer) {
  Serve({[](Stream* stream) {
    for (const int64_t ranks : {0, 1, 3}) stream->Write(Nothing(Receive(stream, 1).at(0), ranks));
    return AnswerAll(stream);
  }});
  for (const char* got : {"0 shards", "1 shards", "3 shards"}) {
    const absl::Status status = Submit().Wait().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr(got));
  }
  EXPECT_TRUE(Submit().Wait().ok());
}

TEST_F(ScriptedServerTest, NorAreTheyInAUnaryCall) {
  Serve({AnswerAll});
  const auto client = Client::Connect(server_->address()).value();
  for (const int64_t ranks : {0, 1, 2, 3}) {
    server_->unary_ranks = ranks;
    EXPECT_EQ(client->ShardBatch(Batch(), Options(), 2, {}).status().code(),
              ranks == 2 ? absl::StatusCode::kOk : absl::StatusCode::kInternal);
  }
  EXPECT_EQ(client->ShardBatch(Batch(), Options(), 4, {{1, 0, 2}}).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(ScriptedServerTest, ARefusalWithNoTimeIsNotTriedAgainAtOnceForEver) {
  std::atomic<int> begins = 0;
  server_ = std::make_unique<ScriptedServer>(std::vector<ScriptedServer::Script>{[&](Stream* s) {
    v1::BatchFrame frame;
    while (s->Read(&frame)) {
      if (!frame.has_begin()) continue;
      ++begins;
      v1::ShardFrame refusal = Refusal(frame.batch_id(), grpc::RESOURCE_EXHAUSTED, "full");
      refusal.mutable_status()->set_retry_after_ms(0);
      s->Write(refusal);
    }
    return grpc::Status::OK;
  }});
  Open({.deadline = absl::Seconds(2)});
  const Batch batch = BatchOf(1'000'000);
  std::vector<PendingShards> pending;
  for (int i = 0; i < 4; ++i) pending.push_back(stream_->Submit(batch, Options(), 2));
  for (const PendingShards& shards : pending) {
    EXPECT_EQ(shards.Wait().status().code(), absl::StatusCode::kResourceExhausted);
  }
  stream_.reset();
  server_.reset();
  // 20 + 40 + ... + 640 ms: seven tries of each in 1.3 s, and an eighth would be too late.
  EXPECT_LE(begins, 4 * 7);
  EXPECT_GE(begins, 4 * 5);
}

TEST_F(ScriptedServerTest, AFrameThatCannotBeReadEndsItsBatchAfterAFewTries) {
  Serve({[](Stream* stream) {
    v1::ShardFrame frame = Nothing(Receive(stream, 1).at(0));
    frame.mutable_begin()->set_total_bytes(uint64_t{1} << 62);
    stream->Write(frame);
    Receive(stream, 1);  // until the client has hung up
    return grpc::Status::OK;
  }});
  const absl::Time begin = absl::Now();
  const absl::Status status = Submit().Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no frame"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  EXPECT_EQ(server_->streams(), 5u);
}

TEST_F(ScriptedServerTest, ABatchThatBreaksTheServerEndsAloneWithItsStatus) {
  Serve({[](Stream* stream) {
    std::map<uint64_t, uint64_t> sizes;
    v1::BatchFrame frame;
    while (stream->Read(&frame)) {
      if (frame.has_begin()) sizes[frame.batch_id()] = frame.begin().total_bytes();
      if (!frame.last()) continue;
      if (sizes[frame.batch_id()] > 100'000) return grpc::Status(grpc::INTERNAL, "bug");
      stream->Write(Nothing(frame.batch_id()));
    }
    return grpc::Status::OK;
  }});
  const Batch small = BatchOf(1000);
  std::vector<PendingShards> others;
  for (int i = 0; i < 3; ++i) others.push_back(stream_->Submit(small, Options(), 2));
  const PendingShards bad = stream_->Submit(BatchOf(200'000), Options(), 2);
  for (int i = 0; i < 3; ++i) others.push_back(stream_->Submit(small, Options(), 2));
  EXPECT_EQ(bad.Wait().status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(bad.Wait().status().message()), HasSubstr("bug"));
  for (const PendingShards& other : others) {
    EXPECT_TRUE(other.Wait().ok()) << other.Wait().status();
  }
  EXPECT_LE(server_->streams(), 6u);
}

TEST_F(ScriptedServerTest, HalfAnAnswerIsNotKeptForAServerThatHasFallenSilent) {
  Serve({[](Stream* stream) {
    v1::ShardFrame frame = Nothing(Receive(stream, 1).at(0));
    frame.set_last(false);
    frame.mutable_begin()->set_total_bytes(1 << 20);
    stream->Write(frame);
    Receive(stream, 1);  // until the client has hung up
    return grpc::Status::OK;
  }});
  const PendingShards pending = Submit();
  const absl::Time begin = absl::Now();
  while (stream_->stats().buffers_out == 0 && absl::Now() - begin < absl::Seconds(10)) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_EQ(stream_->stats().buffers_out, 1);
  pending.Cancel();
  while (stream_->stats().buffers_out > 0 && absl::Now() - begin < absl::Seconds(20)) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(stream_->stats().buffers_out, 0);
}

TEST_F(ScriptedServerTest, AnswersThatAreHeldCountAgainstTheMemoryOfThisProcess) {
  const auto answer = [](Stream* stream) {
    v1::BatchFrame frame;
    while (stream->Read(&frame)) {
      if (!frame.last()) continue;
      v1::ShardFrame shards = Nothing(frame.batch_id());
      shards.mutable_begin()->set_total_bytes(600'000);
      shards.set_body(std::string(600'000, 'x'));
      stream->Write(shards);
    }
    return grpc::Status::OK;
  };
  Serve({answer});
  Open({.max_answer_bytes = 1'000'000});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Submit().Wait().ok());  // nobody holds them
  Open({.max_answer_bytes = 500'000});
  const absl::Status status = Submit().Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("held by this process"));
  EXPECT_EQ(stream_->stats().connects, 1);
}

}  // namespace
}  // namespace cpshard
