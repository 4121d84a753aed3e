#include "tests/server/stream/stream_peer.h"

#include <cstring>

#include "proto/tensor_places.h"

namespace cpshard {
namespace {

std::string Bytes8(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.buffer.data()), tensor.buffer.size()};
}

}  // namespace

StreamPeer::StreamPeer(StreamLimits stream_limits, size_t pool_bytes, Limits limits, Place place)
    : pool({.max_bytes = pool_bytes}),
      shares(static_cast<int64_t>(pool_bytes) / 2),
      executors(std::move(place)) {
  StreamContext context;
  context.limits = limits;
  context.stream_limits = stream_limits;
  context.stall = absl::Seconds(30);
  context.executors = &executors;
  context.pool = &pool;
  context.shares = &shares;
  context.counters = &counters;
  context.run_later = [this](std::function<void()> work) { waiting.push_back(std::move(work)); };
  stream = BatchStream::Make(context, "peer", [this] { ++told_output; });
}

Batch StreamPeer::MakeBatch(int64_t columns, int64_t seed) {
  Batch batch;
  for (const char* name : {"labels", "input_ids"}) {
    Buffer buffer = own_pool_.Allocate(2 * columns * 8).value();
    for (int64_t i = 0; i < 2 * columns; ++i) {
      const int64_t value = seed * 1'000'000 + i + (name[0] == 'l' ? 500'000 : 0);
      std::memcpy(buffer.data() + 8 * i, &value, 8);
    }
    batch.tensors.push_back({{name, DType::kI64, {2, columns}}, std::move(buffer)});
  }
  return batch;
}

void StreamPeer::Send(const std::string& header, absl::Span<const std::byte> body) {
  const std::vector<Bytes> message = {
      {reinterpret_cast<const std::byte*>(header.data()), header.size()}, body};
  stream->OnMessage(message, now);
}

std::vector<StreamPeer::Out> StreamPeer::FramesOf(uint64_t id, const Batch& batch,
                                                  const std::string& options, int64_t cp_size,
                                                  int64_t chunk,
                                                  const std::vector<std::string>& first,
                                                  ExecutorKind executor) {
  BatchBegin begin{
      Options::FromJson(options).value(), cp_size, {}, executor, SpecOf(batch, cp_size)};
  for (int64_t rank = 0; rank < cp_size; ++rank) begin.ranks.push_back(rank);
  begin.places = PlaceTensors(begin.spec, first);
  for (const TensorPlace& place : begin.places) {
    begin.total_bytes = std::max(begin.total_bytes, place.offset + place.nbytes);
  }
  std::vector<std::byte> bytes(begin.total_bytes);
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const Tensor& tensor = batch.tensors[i];
    if (tensor.buffer.size() == 0) continue;
    std::memcpy(bytes.data() + begin.places[i].offset, tensor.buffer.data(), tensor.buffer.size());
  }
  std::vector<Out> frames;
  int64_t offset = 0;
  do {
    const int64_t size = std::min(chunk, begin.total_bytes - offset);
    Out out;
    out.frame.batch_id = id;
    out.frame.frame_seq = static_cast<uint32_t>(frames.size());
    out.frame.offset = offset;
    if (frames.empty()) out.begin = EncodeBatchBegin(begin).value();
    out.body.assign(bytes.begin() + offset, bytes.begin() + offset + size);
    offset += size;
    out.frame.last = offset == begin.total_bytes;
    frames.push_back(std::move(out));
  } while (offset < begin.total_bytes);
  return frames;
}

void StreamPeer::Work() {
  while (!waiting.empty()) {
    const std::function<void()> work = std::move(waiting.front());
    waiting.pop_front();
    work();
  }
}

void StreamPeer::Receive() {
  while (std::optional<OutFrame> out = stream->NextFrame(now)) {
    std::vector<Bytes> message = {
        {reinterpret_cast<const std::byte*>(out->header.data()), out->header.size()}};
    for (const Buffer& piece : out->body) message.emplace_back(piece.data(), piece.size());
    ShardFrame frame = DecodeShardFrame(message).value();
    if (frame.draining) {
      told_draining = true;
      continue;
    }
    Reply& reply = replies[frame.batch_id];
    EXPECT_FALSE(reply.complete) << "a frame after the last of batch " << frame.batch_id;
    EXPECT_EQ(frame.frame_seq, reply.frames.size());
    for (const Bytes& piece : frame.body.pieces) {
      reply.body.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    reply.complete = frame.last;
    reply.error = frame.error;
    if (frame.credit) reply.credit = *frame.credit;
    reply.frames.push_back(std::move(frame));
  }
}

std::vector<RankShard> StreamPeer::ShardsOf(uint64_t id) {
  Work();
  Receive();
  Reply& reply = replies[id];
  EXPECT_TRUE(reply.complete) << "batch " << id << " is not answered";
  EXPECT_FALSE(reply.error) << reply.error->status;
  if (!reply.complete || reply.error) return {};
  Buffer answer = own_pool_.Allocate(reply.body.size()).value();
  std::memcpy(answer.data(), reply.body.data(), reply.body.size());
  return ReadShards(reply.frames, answer).value();
}

void StreamPeer::ExpectShards(uint64_t id, const Batch& batch, const std::string& options,
                              int64_t cp_size) {
  const std::vector<RankShard> shards = ShardsOf(id);
  const Sharder sharder = Options::FromJson(options)->MakeSharder().value();
  const std::vector<RankShard> expected =
      ShardBatch(sharder, batch, cp_size, {}, Limits(), *MakeCpuExecutor(), own_pool_)->shards;
  ASSERT_EQ(shards.size(), expected.size());
  for (size_t r = 0; r < shards.size(); ++r) {
    EXPECT_EQ(shards[r].layout, expected[r].layout);
    EXPECT_EQ(shards[r].cuts, expected[r].cuts);
    EXPECT_EQ(shards[r].load, expected[r].load);
    ASSERT_EQ(shards[r].batch.tensors.size(), expected[r].batch.tensors.size());
    for (size_t t = 0; t < shards[r].batch.tensors.size(); ++t) {
      EXPECT_EQ(shards[r].batch.tensors[t].spec, expected[r].batch.tensors[t].spec);
      EXPECT_EQ(Bytes8(shards[r].batch.tensors[t]), Bytes8(expected[r].batch.tensors[t]));
    }
  }
}

void StreamPeer::ExpectError(uint64_t id, absl::StatusCode code, const std::string& text) {
  Work();
  Receive();
  const Reply& reply = replies[id];
  EXPECT_TRUE(reply.complete) << "batch " << id << " is not answered";
  ASSERT_TRUE(reply.error) << "batch " << id << " was not refused";
  EXPECT_EQ(reply.error->status.code(), code) << reply.error->status;
  EXPECT_NE(std::string(reply.error->status.message()).find(text), std::string::npos)
      << reply.error->status;
}

}  // namespace cpshard
