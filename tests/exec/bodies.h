// What every ShardBody must be, whatever the plan: laid out here anew, its bytes those of
// MakeShards (which has its own tests).
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/exec/shard_body.h"
#include "tests/exec/batches.h"

namespace cpshard {

// The buffer as it should be.
struct ExpectedBody {
  std::vector<std::byte> bytes;
  std::vector<int64_t> offsets;
  int64_t output_bytes = 0;  // without the gaps
};

inline ExpectedBody ExpectBody(const ShardPlan& plan, const std::vector<RankShard>& shards) {
  const size_t ranks = shards.size();
  ExpectedBody body;
  body.offsets.assign(plan.streams.size() * ranks, 0);
  const auto put = [&](size_t s, size_t k) {
    const std::vector<std::byte> bytes = BytesOf(shards[k].batch.tensors[s]);
    if (bytes.empty()) return;
    body.offsets[s * ranks + k] = static_cast<int64_t>(body.bytes.size());
    body.bytes.insert(body.bytes.end(), bytes.begin(), bytes.end());
    while (body.bytes.size() % 64 != 0) body.bytes.push_back(std::byte{0});
    body.output_bytes += static_cast<int64_t>(bytes.size());
  };
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    if (plan.streams[s].extent == Extent::kLocal) continue;
    put(s, 0);
    for (size_t k = 1; k < ranks; ++k) body.offsets[s * ranks + k] = body.offsets[s * ranks];
  }
  for (size_t k = 0; k < ranks; ++k) {
    for (size_t s = 0; s < plan.streams.size(); ++s) {
      if (plan.streams[s].extent == Extent::kLocal) put(s, k);
    }
  }
  return body;
}

inline std::vector<std::byte> Joined(const std::vector<Buffer>& pieces) {
  std::vector<std::byte> bytes;
  for (const Buffer& piece : pieces) {
    EXPECT_GT(piece.size(), 0u);
    bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
  }
  return bytes;
}

// Whether the piece lies in a tensor of the batch.
inline bool LiesIn(const Batch& batch, const Buffer& piece) {
  for (const Tensor& tensor : batch.tensors) {
    const std::byte* begin = tensor.buffer.data();
    if (piece.data() >= begin && piece.data() + piece.size() <= begin + tensor.buffer.size()) {
      return true;
    }
  }
  return false;
}

inline int64_t BytesIn(const Batch& batch, const std::vector<Buffer>& pieces) {
  int64_t bytes = 0;
  for (const Buffer& piece : pieces) {
    if (LiesIn(batch, piece)) bytes += static_cast<int64_t>(piece.size());
  }
  return bytes;
}

class ShardBodyTest : public ShardTest {
 protected:
  static constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

  static ShardPlan PlanOf(const Sharder& sharder, const Batch& batch, int64_t cp_size) {
    return PlanBatch(sharder, batch, cp_size).value();
  }

  static std::vector<int64_t> AllRanks(const ShardPlan& plan) {
    return ResolveRanks({}, plan.num_ranks()).value();
  }

  ShardBody BodyOf(const ShardPlan& plan, const Batch& batch, int64_t min_view_bytes) {
    absl::StatusOr<ShardBody> body =
        ViewShards(plan, batch, AllRanks(plan), *executor_, pool_, min_view_bytes);
    EXPECT_TRUE(body.ok()) << body.status();
    return body.ok() ? *std::move(body) : ShardBody();
  }

  // The body of `ranks` is what it should be for every kind of threshold.
  void ExpectRightBodies(const ShardPlan& plan, const Batch& batch,
                         const std::vector<int64_t>& ranks) {
    const absl::StatusOr<ShardResult> shards = MakeShards(plan, batch, ranks, *executor_, pool_);
    ASSERT_TRUE(shards.ok()) << shards.status();
    const ExpectedBody expected = ExpectBody(plan, shards->shards);
    const ShardBody placed = PlaceShards(plan, ranks);
    EXPECT_EQ(placed.offsets, expected.offsets);
    EXPECT_EQ(placed.size, static_cast<int64_t>(expected.bytes.size()));
    EXPECT_TRUE(placed.pieces.empty());
    for (int64_t min_view_bytes : {int64_t{1}, int64_t{64}, int64_t{4096}, kHuge}) {
      const absl::StatusOr<ShardBody> body =
          ViewShards(plan, batch, ranks, *executor_, pool_, min_view_bytes);
      ASSERT_TRUE(body.ok()) << body.status();
      EXPECT_EQ(body->offsets, expected.offsets);
      EXPECT_EQ(body->size, static_cast<int64_t>(expected.bytes.size()));
      EXPECT_TRUE(Joined(body->pieces) == expected.bytes) << "min_view_bytes " << min_view_bytes;
      EXPECT_EQ(body->copied_bytes, expected.output_bytes - BytesIn(batch, body->pieces));
    }
  }

  void ExpectRightBodies(const ShardPlan& plan, const Batch& batch) {
    ExpectRightBodies(plan, batch, AllRanks(plan));
  }
};

}  // namespace cpshard
