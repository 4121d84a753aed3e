// A server of sessions that does what the test tells it, right or wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/client/scripted_server.h"

namespace cpshard {

using PullStream = grpc::ServerReaderWriter<v1::ShardFrame, v1::PullRequest>;
using PushStream = grpc::ServerReaderWriter<v1::LoaderNotice, v1::BatchFrame>;

// Every call runs the next script of its kind; after the last one, the last one again.
class ScriptedSession final : public ScriptedServer {
 public:
  using PullScript = std::function<grpc::Status(PullStream*)>;
  using PushScript = std::function<grpc::Status(PushStream*)>;

  ScriptedSession(std::vector<PullScript> pulls, std::vector<PushScript> pushes)
      : ScriptedServer({}), pulls_(std::move(pulls)), pushes_(std::move(pushes)) {}
  ~ScriptedSession() override { Stop(); }

  // To be set before a client comes.
  std::function<grpc::Status()> open = [] { return grpc::Status::OK; };
  std::string executor;  // that it says it shards with
  std::function<grpc::Status()> close = [] { return grpc::Status::OK; };

  std::vector<v1::OpenSessionRequest> opened() {  // so far
    absl::MutexLock lock(&session_mutex_);
    return opened_;
  }
  size_t pushes() {  // calls so far
    absl::MutexLock lock(&session_mutex_);
    return next_push_;
  }

  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override {
    {
      absl::MutexLock lock(&session_mutex_);
      opened_.push_back(*request);
    }
    reply->set_instance("one");
    reply->set_generation(request->generation());
    reply->mutable_hand_off()->set_mode("inline");
    reply->set_executor(executor);
    return open();
  }

  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest*,
                            v1::CloseSessionReply*) override {
    return close();
  }

  grpc::Status PullShards(grpc::ServerContext*, PullStream* stream) override {
    return Next(pulls_, &next_pull_)(stream);
  }

  grpc::Status PushBatches(grpc::ServerContext*, PushStream* stream) override {
    return Next(pushes_, &next_push_)(stream);
  }

 private:
  template <typename Script>
  Script Next(const std::vector<Script>& scripts, size_t* next) {
    absl::MutexLock lock(&session_mutex_);
    return scripts[std::min((*next)++, scripts.size() - 1)];
  }

  const std::vector<PullScript> pulls_;
  const std::vector<PushScript> pushes_;
  absl::Mutex session_mutex_;
  size_t next_pull_ ABSL_GUARDED_BY(session_mutex_) = 0;
  size_t next_push_ ABSL_GUARDED_BY(session_mutex_) = 0;
  std::vector<v1::OpenSessionRequest> opened_ ABSL_GUARDED_BY(session_mutex_);
};

}  // namespace cpshard
