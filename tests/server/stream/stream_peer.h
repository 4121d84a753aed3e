// A BatchStream with a peer that speaks the frames: what the stream's tests share. No gRPC, no
// threads: workers run when a test says so.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/exec/shard.h"
#include "proto/frames.h"
#include "server/stream/batch_stream.h"

namespace cpshard {

// What came back under one id.
struct Reply {
  std::vector<ShardFrame> frames;
  std::string body;
  bool complete = false;
  std::optional<BatchError> error;
  Credit credit;
};

class StreamPeer {
 public:
  explicit StreamPeer(StreamLimits stream_limits = {}, size_t pool_bytes = size_t{1} << 30,
                      Limits limits = {},
                      Place place = {MakeCpuExecutor(), "as asked for", nullptr});

  // `input_ids` and `labels` int64 [2, columns], values that depend on `seed`.
  Batch MakeBatch(int64_t columns, int64_t seed = 0);

  // Sends one message: header and body, in two spans.
  void Send(const std::string& header, absl::Span<const std::byte> body = {});

  // The frames of a batch with bodies of `chunk` bytes, to be sent by the test one by one. The
  // streams of `first` come first, in the order of their names as the others.
  struct Out {
    BatchFrame frame;
    std::string begin;
    std::vector<std::byte> body;
  };
  std::vector<Out> FramesOf(uint64_t id, const Batch& batch, const std::string& options,
                            int64_t cp_size, int64_t chunk = 1 << 20,
                            const std::vector<std::string>& first = {},
                            ExecutorKind executor = ExecutorKind::kAuto);
  void Send(const Out& out) {
    Send(EncodeBatchFrame(out.frame, out.begin, out.body.size()), out.body);
  }
  void SendAll(const std::vector<Out>& frames) {
    for (const Out& out : frames) Send(out);
  }

  // Runs what waits for a worker, until nothing does.
  void Work();

  // Takes all frames that the stream has to send.
  void Receive();

  // Work and Receive, then the shards of `id`, which must be complete.
  std::vector<RankShard> ShardsOf(uint64_t id);

  // The shards of `id` are those that the batch has in process.
  void ExpectShards(uint64_t id, const Batch& batch, const std::string& options, int64_t cp_size);

  // Work and Receive, then the error under `id`: its code, and `text` in its message.
  void ExpectError(uint64_t id, absl::StatusCode code, const std::string& text);

  absl::Time now = absl::UnixEpoch();
  BufferPool pool;
  MemoryShare shares;
  Executors executors;
  ServerCounters counters;
  std::deque<std::function<void()>> waiting;  // for a worker
  std::map<uint64_t, Reply> replies;
  bool told_draining = false;
  int64_t told_output = 0;
  std::shared_ptr<BatchStream> stream;

 private:
  BufferPool own_pool_;  // of batches that the test makes
};

}  // namespace cpshard
