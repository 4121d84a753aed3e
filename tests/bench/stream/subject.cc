#include "tests/bench/stream/subject.h"

#include <malloc.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/shard_stream.h"
#include "tests/bench/stream/process.h"

namespace cpshard::bench {
namespace {

Batch MakeBatch(const TokenShape& shape, const Buffer& bytes) {
  Batch batch;
  size_t offset = 0;
  for (const TokenStream& stream : kTokenStreams) {
    const DType dtype = stream.width == 1 ? DType::kBool : DType::kI64;
    const size_t size = shape.tokens() * stream.width;
    batch.tensors.push_back(
        {{stream.name, dtype, {shape.rows, shape.columns}}, bytes.Slice(offset, size)});
    offset += size;
  }
  return batch;
}

// Streams of a connection to the server, one for every number of batches in flight.
class Client {
 public:
  explicit Client(std::string address) : address_(std::move(address)) {
    absl::StatusOr<Options> options = Options::FromJson(R"({"round_robin": {}})");
    if (!options.ok()) Fail(options.status().ToString());
    options_ = *std::move(options);
  }

  Report Run(const Order& order) {
    ShardStream& stream = StreamWith(order.in_flight);
    if (!(shape_ == order.shape)) {
      shape_ = order.shape;
      bytes_ = MakeTokenBatch(shape_);
      batch_ = MakeBatch(shape_, bytes_);
      Check(Answer(Submit(stream)));
    }
    return RunInFlight(stream, order);
  }

 private:
  ShardStream& StreamWith(int64_t in_flight) {
    std::unique_ptr<ShardStream>& stream = streams_[in_flight];
    if (stream != nullptr) return *stream;
    auto opened = ShardStream::Open(address_, {.max_inflight_batches = in_flight});
    if (!opened.ok()) Fail(opened.status().ToString());
    stream = *std::move(opened);
    return *stream;
  }

  PendingShards Submit(ShardStream& stream) { return stream.Submit(batch_, options_, kCpSize); }

  ShardResult Answer(const PendingShards& pending) {
    absl::StatusOr<ShardResult> result = pending.Wait();
    if (!result.ok()) Fail(absl::StrCat(address_, ": ", result.status().ToString()));
    return *std::move(result);
  }

  Report RunInFlight(ShardStream& stream, const Order& order) {
    std::deque<PendingShards> pending;
    for (int64_t i = 1; i < order.in_flight; ++i) pending.push_back(Submit(stream));
    Report report = RunTrips(order, [&] {
      pending.push_back(Submit(stream));
      Answer(pending.front());
      pending.pop_front();
    });
    const Order rest{order.shape, 0, static_cast<int64_t>(pending.size())};
    if (pending.empty()) return report;
    const Report drained = RunTrips(rest, [&] {
      Answer(pending.front());
      pending.pop_front();
    });
    return {report.trips + drained.trips, report.seconds + drained.seconds};
  }

  void Check(const ShardResult& result) const {
    const Buffer shards = Resident(shape_.bytes());
    std::byte* dest = shards.data();
    for (const RankShard& shard : result.shards) {
      for (const TokenStream& stream : kTokenStreams) {
        const Tensor* tensor = shard.batch.FindTensor(stream.name);
        const size_t size = shape_.tokens() / kCpSize * stream.width;
        if (tensor == nullptr || tensor->buffer.size() != size) {
          Fail(absl::StrCat(address_, ": a shard without its part of ", stream.name));
        }
        std::memcpy(dest, tensor->buffer.data(), size);
        dest += size;
      }
    }
    CheckShards(absl::StrCat("cpshardd at ", address_), shape_, bytes_.data(), shards.data());
  }

  const std::string address_;
  Options options_;
  TokenShape shape_;
  Buffer bytes_;
  Batch batch_;
  std::map<int64_t, std::unique_ptr<ShardStream>> streams_;
};

}  // namespace

void SubjectClient(int fd, const std::string& address) {
  // As cpshard does: received bytes are freed and allocated again all the time.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
  Client client(address);
  Obey(fd, [&](const Order& order) { return client.Run(order); });
}

}  // namespace cpshard::bench
