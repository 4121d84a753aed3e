// What the tests of the stream client against a real server share.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/client.h"
#include "client/shard_stream.h"
#include "core/exec/shard.h"
#include "tests/batch/tensors.h"
#include "tests/client/server_program.h"

namespace cpshard {

inline constexpr int64_t kRanks = 4;

inline Options RoundRobin() { return Options::FromJson(R"({"round_robin": {}})").value(); }

// [2, columns], every element another one, another one in every batch; about 48 bytes a column.
inline Batch TokenBatch(int64_t number, int64_t columns) {
  std::vector<int64_t> ids(2 * columns), labels(2 * columns), positions(2 * columns);
  for (int64_t i = 0; i < 2 * columns; ++i) {
    ids[i] = number * 1'000'003 + i;
    labels[i] = -i - number;
    positions[i] = i % columns;
  }
  return {{TensorOf("input_ids", DType::kI64, {2, columns}, ids),
           TensorOf("labels", DType::kI64, {2, columns}, labels),
           TensorOf("position_ids", DType::kI64, {2, columns}, positions)},
          {{"number", number}}};
}

// A handle on batches that tells whether anybody still holds their bytes.
struct Watched {
  Batch batch;
  std::vector<std::weak_ptr<void>> owners;

  explicit Watched(Batch from) : batch(std::move(from)) {
    for (Tensor& tensor : batch.tensors) {
      auto owner = std::make_shared<Buffer>(tensor.buffer);
      owners.push_back(owner);
      tensor.buffer = Buffer(owner, owner->data(), owner->size());
    }
  }

  bool released() const {
    for (const auto& owner : owners) {
      if (!owner.expired()) return false;
    }
    return true;
  }
};

inline void ExpectReleased(const Watched& watched, absl::Duration patience = absl::Seconds(5)) {
  const absl::Time give_up = absl::Now() + patience;
  while (!watched.released() && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(watched.released());
}

// What the layout makes of the batch without a server.
inline ShardResult Expected(const Batch& batch, int64_t ranks = kRanks) {
  static const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  static BufferPool pool;
  return ShardBatch(RoundRobin().MakeSharder().value(), batch, ranks, {}, Limits(), *executor, pool)
      .value();
}

inline void ExpectShard(const RankShard& got, const RankShard& want) {
  EXPECT_EQ(got.layout, want.layout);
  EXPECT_EQ(got.cuts, want.cuts);
  EXPECT_EQ(got.batch.scalars, want.batch.scalars);
  ASSERT_EQ(got.batch.tensors.size(), want.batch.tensors.size());
  for (size_t t = 0; t < want.batch.tensors.size(); ++t) {
    EXPECT_EQ(got.batch.tensors[t].spec, want.batch.tensors[t].spec);
    EXPECT_TRUE(got.batch.tensors[t].bytes() == want.batch.tensors[t].bytes())
        << want.batch.tensors[t].spec.name;
  }
}

inline void ExpectShards(const absl::StatusOr<ShardResult>& result, const Batch& batch) {
  ASSERT_TRUE(result.ok()) << result.status();
  const ShardResult expected = Expected(batch);
  EXPECT_EQ(result->notices, expected.notices);
  ASSERT_EQ(result->shards.size(), expected.shards.size());
  for (size_t r = 0; r < expected.shards.size(); ++r) {
    SCOPED_TRACE(r);
    ExpectShard(result->shards[r], expected.shards[r]);
  }
}

class ShardStreamTest : public testing::TestWithParam<bool> {
 protected:
  ShardStreamTest() {
    char folder[] = "/tmp/cpshard-test-XXXXXX";
    folder_ = mkdtemp(folder);
  }

  ~ShardStreamTest() override {
    if (server_) server_->Kill();
    std::system(("rm -rf " + folder_).c_str());
  }

  void Serve(std::vector<std::string> flags = {}) {
    flags.push_back("--shutdown-seconds=10");
    server_.emplace(
        GetParam() ? ServerProgram::FreeUnixAddress(folder_) : ServerProgram::FreeTcpAddress(),
        std::move(flags));
    server_->Start();
  }

  void Open(const StreamOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<ShardStream>> stream =
        ShardStream::Open(server_->address(), options);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }

  PendingShards Submit(const Batch& batch) { return stream_->Submit(batch, RoundRobin(), kRanks); }

  // Nothing is under way and nobody holds shards: no buffer is left, here or at the server.
  void ExpectNothingHeld() {
    const absl::Time give_up = absl::Now() + absl::Seconds(5);
    while (stream_->stats().buffers_out > 0 && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(1));  // gRPC's thread lets a handle go after the callers
    }
    EXPECT_EQ(stream_->stats().buffers_out, 0);
    const auto client = Client::Connect(server_->address(), {.wait_for_ready = true}).value();
    Counters counters;
    do {
      const absl::StatusOr<ServerInfo> info = client->GetServerInfo();
      ASSERT_TRUE(info.ok()) << info.status();
      counters = info->counters;
    } while ((counters.buffers_out > 0 || counters.batches > 0) && absl::Now() < give_up);
    EXPECT_EQ(counters.buffers_out, 0);
    EXPECT_EQ(counters.batches, 0);
  }

  std::string folder_;
  std::optional<ServerProgram> server_;
  std::unique_ptr<ShardStream> stream_;
};

}  // namespace cpshard
