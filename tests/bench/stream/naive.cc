#include "tests/bench/stream/naive.h"

#include <grpcpp/grpcpp.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "naive.grpc.pb.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

const std::byte* BytesOf(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

class Service final : public NaiveSharding::Service {
 public:
  grpc::Status Shard(grpc::ServerContext*, const NaiveBatch* batch, NaiveShards* reply) override {
    const TokenShape shape{batch->rows(), batch->columns()};
    const bool apart = batch->data_size() > 1;
    for (int64_t rank = 0; rank < batch->cp_size(); ++rank) {
      const std::byte* source = BytesOf(batch->data(0));
      for (size_t i = 0; i < kTokenStreams.size(); ++i) {
        const int64_t width = kTokenStreams[i].width;
        const int64_t bytes = apart ? shape.tokens() * width : shape.bytes();
        if (apart) source = BytesOf(batch->data(static_cast<int>(i)));
        if (apart || i == 0) reply->add_data()->reserve(bytes / kCpSize);
        Append(shape, width, rank, source, *reply->mutable_data()->rbegin());
        source += shape.tokens() * width;
      }
    }
    return grpc::Status::OK;
  }

 private:
  static void Append(const TokenShape& shape, int64_t width, int64_t rank, const std::byte* source,
                     std::string& dest) {
    ForEachRun(shape, width, rank, source, [&](const std::byte* run, int64_t size) {
      dest.append(reinterpret_cast<const char*>(run), size);
    });
  }
};

// The buffers of trips of one shape.
class Trips {
 public:
  Trips(const TokenShape& shape, NaiveKind kind, NaiveSharding::Stub& stub)
      : shape_(shape),
        kind_(kind),
        batch_(MakeTokenBatch(shape)),
        result_(Resident(shape.bytes())),
        stub_(stub) {
    Trip();
    CheckShards("the naive server", shape, batch_.data(), result_.data());
  }

  const TokenShape& shape() const { return shape_; }

  void Trip() {
    NaiveShards shards;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    const grpc::Status status = stub_.Shard(&context, Message(), &shards);
    if (!status.ok()) Fail(absl::StrCat("the naive call: ", status.error_message()));
    CopyOut(shards);
  }

 private:
  NaiveBatch Message() const {
    NaiveBatch message;
    message.set_rows(shape_.rows);
    message.set_columns(shape_.columns);
    message.set_cp_size(kCpSize);
    if (kind_ == NaiveKind::kOneField) {
      message.add_data(batch_.data(), batch_.size());
      return message;
    }
    const std::byte* source = batch_.data();
    for (const TokenStream& stream : kTokenStreams) {
      const int64_t size = shape_.tokens() * stream.width;
      message.add_data(source, size);
      source += size;
    }
    return message;
  }

  void CopyOut(const NaiveShards& shards) {
    std::byte* dest = result_.data();
    std::byte* const end = dest + result_.size();
    for (const std::string& data : shards.data()) {
      if (data.size() > static_cast<size_t>(end - dest)) Fail("the naive server said too much");
      std::memcpy(dest, data.data(), data.size());
      dest += data.size();
    }
  }

  const TokenShape shape_;
  const NaiveKind kind_;
  const Buffer batch_, result_;
  NaiveSharding::Stub& stub_;
};

}  // namespace

void NaiveServer(int fd) {
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Fail("the naive server does not start");
  Send(fd, static_cast<uint16_t>(port));
  server->Wait();
}

void NaiveClient(int fd, NaiveKind kind, uint16_t port) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto stub = NaiveSharding::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));
  std::optional<Trips> trips;
  Obey(fd, [&](const Order& order) {
    if (!trips || !(trips->shape() == order.shape)) trips.emplace(order.shape, kind, *stub);
    return RunTrips(order, [&] { trips->Trip(); });
  });
}

}  // namespace cpshard::bench
