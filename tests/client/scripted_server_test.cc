// The stream client against a server that does what the test tells it, right or wrong.
#include "tests/client/scripted_server.h"

#include <gmock/gmock.h>

#include "absl/status/status.h"
#include "client/client.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

class BrokenAnswerTest : public ScriptedServerTest {
 protected:
  // The first stream breaks the answer to the first of two batches; the second one is right.
  absl::Status StatusAfter(std::function<void(Stream*, uint64_t)> break_it) {
    Serve({[break_it](Stream* stream) {
             break_it(stream, Receive(stream, 2).at(0));
             Receive(stream, 1);  // until the client has hung up
             return grpc::Status::OK;
           },
           AnswerAll});
    const PendingShards broken = Submit(), other = Submit();
    EXPECT_TRUE(other.Wait().ok()) << other.Wait().status();
    EXPECT_EQ(stream_->stats().connects, 2);
    return broken.Wait().status();
  }
};

TEST_F(BrokenAnswerTest, ABrokenAnswerFailsItsBatchAndTheOthersGoOverANewConnection) {
  const absl::Status status = StatusAfter([](Stream* stream, uint64_t id) {
    v1::ShardFrame frame = Nothing(id);
    frame.set_last(false);
    frame.mutable_begin()->set_total_bytes(3);
    stream->Write(frame);
    v1::ShardFrame body;
    body.set_batch_id(id);
    body.set_frame_seq(1);
    body.set_body("four");
    stream->Write(body);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 bytes at 0 leave the buffer of 3"));
}

TEST_F(BrokenAnswerTest, AnAnswerOfASizeThatCannotBeIsBroken) {
  const absl::Status status = StatusAfter([](Stream* stream, uint64_t id) {
    v1::ShardFrame frame = Nothing(id);
    frame.set_last(false);
    frame.mutable_begin()->set_total_bytes(uint64_t{1} << 40);
    stream->Write(frame);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1099511627776"));
}

TEST_F(BrokenAnswerTest, AnAnswerToABatchThatIsNotThereBreaksTheConnectionAlone) {
  EXPECT_TRUE(
      StatusAfter([](Stream* stream, uint64_t id) { stream->Write(Nothing(id + 999)); }).ok());
}

TEST_F(ScriptedServerTest, AStreamThatIsEndedWithOkIsOpenedAgain) {
  Serve({[](Stream* stream) {
           Receive(stream, 1);
           return grpc::Status::OK;
         },
         AnswerAll});
  const PendingShards batch = Submit();
  EXPECT_TRUE(batch.Wait().ok()) << batch.Wait().status();
  EXPECT_EQ(stream_->stats().resubmitted, 1);
}

TEST_F(ScriptedServerTest, ARefusalWithATimeIsTriedAgainOnTheSameStream) {
  Serve({[](Stream* stream) {
    v1::ShardFrame refusal = Refusal(Receive(stream, 1).at(0), grpc::RESOURCE_EXHAUSTED, "full");
    refusal.mutable_status()->set_retry_after_ms(30);
    stream->Write(refusal);
    return AnswerAll(stream);
  }});
  const PendingShards batch = Submit();
  EXPECT_TRUE(batch.Wait().ok()) << batch.Wait().status();
  EXPECT_EQ(stream_->stats().resubmitted, 1);
  EXPECT_EQ(stream_->stats().connects, 1);
}

TEST_F(ScriptedServerTest, AFinalRefusalIsTheServersStatusAndText) {
  Serve({[](Stream* stream) {
    stream->Write(Refusal(Receive(stream, 1).at(0), grpc::DATA_LOSS, "crc32c does not match"));
    return AnswerAll(stream);
  }});
  EXPECT_EQ(Submit().Wait().status(), absl::DataLossError("crc32c does not match"));
  EXPECT_TRUE(Submit().Wait().ok());
}

// One that does not know executors shards on the CPU, whatever it is asked for, and names nobody.
TEST_F(ScriptedServerTest, ShardsOfAnotherExecutorThanWasAskedForAreNotTaken) {
  Serve({[](Stream* stream) {
    for (const char* name : {"", "cpu", "cuda:0"}) {
      v1::ShardFrame answer = Nothing(Receive(stream, 1).at(0));
      answer.mutable_begin()->set_executor(name);
      stream->Write(answer);
    }
    return AnswerAll(stream);
  }});
  Open({.executor = ExecutorKind::kCuda});
  EXPECT_EQ(Submit().Wait().status().code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status cpu = Submit().Wait().status();
  EXPECT_EQ(cpu.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cpu.message()), HasSubstr("executor cuda was asked for"));
  const absl::StatusOr<ShardResult> right = Submit().Wait();
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->executor, "cuda:0");
  EXPECT_EQ(stream_->stats().connects, 1);

  server_->unary_ranks = 2;
  const auto client = Client::Connect(server_->address()).value();
  EXPECT_TRUE(client->ShardBatch(Batch(), Options(), 2, {}).ok());
  EXPECT_EQ(client->ShardBatch(Batch(), Options(), 2, {}, ExecutorKind::kCuda).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ScriptedServerTest, NothingIsSentToAServerThatDoesNotKnowExecutors) {
  Serve({AnswerAll});
  server_->introduction = [](v1::GetServerInfoReply* reply) {
    reply->add_capabilities("shard_batches");
  };
  Open({.deadline = absl::Seconds(20), .executor = ExecutorKind::kCuda});
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = Submit().Wait().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("older than this choice"));
  }
  EXPECT_EQ(server_->streams(), 0);
  Open({.deadline = absl::Seconds(20), .executor = ExecutorKind::kCpu});
  EXPECT_TRUE(Submit().Wait().ok());
}

TEST_F(ScriptedServerTest, AStatusThatWillNotChangeEndsTheBatchesAndTheNextOneTriesAgain) {
  Serve({[](Stream* stream) {
           Receive(stream, 2);
           return grpc::Status(grpc::PERMISSION_DENIED, "not you");
         },
         AnswerAll});
  const PendingShards first = Submit(), second = Submit();
  EXPECT_EQ(first.Wait().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(second.Wait().status().message()), HasSubstr("not you"));
  EXPECT_TRUE(Submit().Wait().ok());
}

TEST_F(ScriptedServerTest, AServerWithoutTheMethodsIsNoServer) {
  class Other final : public v1::ShardService::Service {};  // everything is UNIMPLEMENTED
  char folder[] = "/tmp/cpshard-test-XXXXXX";
  const std::string path = std::string(mkdtemp(folder)) + "/s";
  Other other;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(&other);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  stream_ = ShardStream::Open("unix:" + path).value();
  EXPECT_EQ(Submit().Wait().status().code(), absl::StatusCode::kUnimplemented);
  stream_.reset();
  server->Shutdown(std::chrono::system_clock::now());
  std::system(("rm -rf " + std::string(folder)).c_str());
}

TEST_F(ScriptedServerTest, AfterADrainTheNextBatchGoesOverANewConnection) {
  Serve({[](Stream* stream) {
           const uint64_t id = Receive(stream, 1).at(0);
           v1::ShardFrame draining;
           draining.set_draining(true);
           stream->Write(draining);
           stream->Write(Nothing(id));
           Receive(stream, 1);  // until the client has hung up
           return grpc::Status::OK;
         },
         AnswerAll});
  EXPECT_TRUE(Submit().Wait().ok());
  EXPECT_TRUE(Submit().Wait().ok());
  EXPECT_EQ(stream_->stats().connects, 2);
}

}  // namespace
}  // namespace cpshard
