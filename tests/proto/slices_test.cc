// Messages that gRPC has read, let go of on threads that gRPC knows nothing of: over its quota, a
// slice that gives its memory back there by itself ends the process.
#include "proto/slices.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"

namespace cpshard {
namespace {

constexpr size_t kQuotaBytes = size_t{1} << 20;
constexpr size_t kMessageBytes = size_t{256} << 10;

// Lets go of messages, on a thread of its own, in the way it is given.
class Receiver {
 public:
  Receiver() : thread_([this] { Loop(); }) {}
  ~Receiver() {
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    thread_.join();
  }

  void Take(grpc::ByteBuffer* message) {
    absl::MutexLock lock(&mutex_);
    messages_.emplace_back().Swap(message);
  }

  int64_t bytes() {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  void Loop() {
    while (true) {
      grpc::ByteBuffer message;
      {
        absl::MutexLock lock(&mutex_);
        const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return ended_ || !messages_.empty();
        };
        mutex_.Await(absl::Condition(&ready));
        if (messages_.empty()) return;
        message.Swap(&messages_.front());
        messages_.pop_front();
      }
      const MessageSlices slices(message);
      message.Clear();  // so that the slices have the memory to themselves
      absl::MutexLock lock(&mutex_);
      for (const Bytes span : slices.spans()) bytes_ += static_cast<int64_t>(span.size());
    }
  }

  absl::Mutex mutex_;
  std::deque<grpc::ByteBuffer> messages_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Gives the message of every call to a Receiver and ends the call.
class Service : public grpc::CallbackGenericService {
 public:
  explicit Service(Receiver& receiver) : receiver_(receiver) {}

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(Receiver& receiver) : receiver_(receiver) { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (ok) receiver_.Take(&message_);
      Finish(grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    Receiver& receiver_;
    grpc::ByteBuffer message_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor(receiver_);
  }

  Receiver& receiver_;
};

struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request, reply;
};

// One message on each channel, at once. What becomes of the calls is gRPC's business: over its
// quota it resets some.
void SendAtOnce(const std::vector<std::shared_ptr<grpc::Channel>>& channels) {
  const grpc::Slice slice(std::string(kMessageBytes, 'x'));
  absl::BlockingCounter open(static_cast<int>(channels.size()));
  std::vector<std::unique_ptr<Call>> calls;
  for (const auto& channel : channels) {
    Call& call = *calls.emplace_back(std::make_unique<Call>());
    call.request = grpc::ByteBuffer(&slice, 1);
    grpc::GenericStub(channel).UnaryCall(&call.context, "/any/Method", {}, &call.request,
                                         &call.reply,
                                         [&open](const grpc::Status&) { open.DecrementCount(); });
  }
  open.Wait();
}

TEST(MessageSlices, MayGoOnAnyThreadThoughGrpcIsOverItsQuota) {
  Receiver receiver;
  Service service(receiver);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(grpc::ResourceQuota("slices_test").Resize(kQuotaBytes));
  builder.RegisterCallbackGenericService(&service);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 32; ++i) {
    grpc::ChannelArguments own_connection;
    own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channels.push_back(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), own_connection));
  }
  for (int round = 0; round < 50; ++round) SendAtOnce(channels);
  channels.clear();
  server->Shutdown();
  EXPECT_GT(receiver.bytes(), 0);
}

}  // namespace
}  // namespace cpshard
