// A server that does what the test tells it, right or wrong.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/shard_stream.h"
#include "cpshard/v1/service.grpc.pb.h"

namespace cpshard {

using Stream = grpc::ServerReaderWriter<v1::ShardFrame, v1::BatchFrame>;

// Shards of an empty batch: complete and right.
inline v1::ShardFrame Nothing(uint64_t id, int64_t ranks = 2) {
  v1::ShardFrame frame;
  frame.set_batch_id(id);
  frame.mutable_begin()->set_num_shards(ranks);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    v1::ShardLayout* layout = frame.add_shards()->mutable_layout();
    layout->set_cp_rank(rank);
    layout->set_cp_size(ranks);
  }
  frame.set_last(true);
  return frame;
}

// Every stream that a client opens runs the next script; after the last one, the last one again.
class ScriptedServer : public v1::ShardService::Service {
 public:
  using Script = std::function<grpc::Status(Stream*)>;

  explicit ScriptedServer(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    char folder[] = "/tmp/cpshard-test-XXXXXX";
    folder_ = mkdtemp(folder);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~ScriptedServer() override {
    Stop();
    std::system(("rm -rf " + folder_).c_str());
  }

  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }  // no call runs any more

  std::string address() const { return "unix:" + folder_ + "/s"; }

  // What it says of itself; to be set before a client comes.
  std::function<void(v1::GetServerInfoReply*)> introduction = [](v1::GetServerInfoReply* reply) {
    reply->mutable_limits()->set_max_batch_bytes(1 << 20);
    reply->mutable_limits()->set_max_inflight_bytes(64 << 20);
    reply->mutable_limits()->set_max_inflight_batches(16);
    reply->mutable_limits()->set_max_chunk_bytes(4 << 20);
    reply->add_capabilities("executors");
  };

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoReply* reply) override {
    ++greetings_;
    introduction(reply);
    return grpc::Status::OK;
  }

  // The unary call: shards of so many ranks, whatever was asked for.
  std::atomic<int64_t> unary_ranks = 0;

  grpc::Status ShardBatch(grpc::ServerContext*, const v1::ShardBatchRequest*,
                          v1::ShardBatchReply* reply) override {
    *reply->mutable_shards() = Nothing(0, unary_ranks).shards();
    return grpc::Status::OK;
  }

  int greetings() const { return greetings_; }  // so far

  size_t streams() {  // so far
    absl::MutexLock lock(&mutex_);
    return streams_;
  }

  grpc::Status ShardBatches(grpc::ServerContext*, Stream* stream) override {
    size_t next;
    {
      absl::MutexLock lock(&mutex_);
      next = std::min(streams_++, scripts_.size() - 1);
    }
    return scripts_[next](stream);
  }

 private:
  const std::vector<Script> scripts_;
  std::string folder_;
  std::atomic<int> greetings_ = 0;
  absl::Mutex mutex_;
  size_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Reads frames until `count` batches are complete; their ids.
inline std::vector<uint64_t> Receive(Stream* stream, size_t count) {
  std::vector<uint64_t> ids;
  v1::BatchFrame frame;
  while (ids.size() < count && stream->Read(&frame)) {
    if (frame.last()) ids.push_back(frame.batch_id());
  }
  return ids;
}

inline v1::ShardFrame Refusal(uint64_t id, grpc::StatusCode code, const std::string& text) {
  v1::ShardFrame frame;
  frame.set_batch_id(id);
  frame.mutable_status()->set_code(code);
  frame.mutable_status()->set_message(text);
  return frame;
}

// Answers whatever comes until the client hangs up.
inline grpc::Status AnswerAll(Stream* stream) {
  v1::BatchFrame frame;
  while (stream->Read(&frame)) {
    if (frame.last()) stream->Write(Nothing(frame.batch_id()));
  }
  return grpc::Status::OK;
}

class ScriptedServerTest : public testing::Test {
 protected:
  void Serve(std::vector<ScriptedServer::Script> scripts) {
    server_ = std::make_unique<ScriptedServer>(std::move(scripts));
    Open({.deadline = absl::Seconds(20)});
  }

  void Open(const StreamOptions& options) {
    stream_ = ShardStream::Open(server_->address(), options).value();
  }

  PendingShards Submit() { return stream_->Submit(Batch(), Options(), 2); }

  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<ShardStream> stream_;  // goes first
};

}  // namespace cpshard
