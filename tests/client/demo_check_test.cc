// The demo's proof must fail when a shard is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "client/cli/demo/check.h"
#include "client/cli/demo/pack.h"
#include "core/plan/layouts.h"

namespace cpshard::demo {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRanks = 4;

std::vector<Document> Documents() { return {{"a", std::string(20, 'a')}, {"b", "bcdefghijk"}}; }

class DemoCheckTest : public ::testing::Test {
 protected:
  DemoCheckTest() {
    restated_.layout = "round_robin";
    Shard(RoundRobin({}, {.padding_token_id = kPadToken}),
          {.rows = 2, .length = 30, .last_length = 30});
  }

  void Shard(const Sharder& sharder, const PackOptions& options) {
    packed_ = *Packing(documents_, options).Make(0, pool_);
    absl::StatusOr<ShardResult> result =
        ShardBatch(sharder, packed_.batch, kRanks, {}, Limits(), *executor_, pool_);
    ASSERT_TRUE(result.ok()) << result.status();
    shards_ = std::move(result->shards);
  }

  std::string Contract() {
    return DifferenceFromContract(packed_.batch, restated_, kRanks, shards_);
  }
  std::string Gathered() {
    std::string all;
    for (const Tensor& expected : packed_.expected) {
      all += DifferenceAfterGather(expected, shards_, *executor_, pool_);
    }
    return all;
  }

  Tensor& Stream(int rank, const char* name) {
    for (Tensor& tensor : shards_[rank].batch.tensors) {
      if (tensor.spec.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return shards_[rank].batch.tensors[0];
  }

  BufferPool pool_;
  std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
  const std::vector<Document> documents_ = Documents();
  PackedBatch packed_;
  oracle::Options restated_;
  std::vector<RankShard> shards_;
};

TEST_F(DemoCheckTest, RightShardsAreEqual) {
  EXPECT_EQ(Contract(), "");
  EXPECT_EQ(Gathered(), "");
}

TEST_F(DemoCheckTest, OneWrongBitIsNamedWithStreamAndElement) {
  Stream(2, "labels").buffer.data()[8 * 3] ^= std::byte{1};
  EXPECT_THAT(Contract(), HasSubstr("rank 2: stream 'labels' [2, 8]: element 3"));
  EXPECT_THAT(Gathered(), HasSubstr("labels"));
}

TEST_F(DemoCheckTest, ShardsOfSwappedRanksAreDifferent) {
  std::swap(shards_[0].batch, shards_[1].batch);
  EXPECT_NE(Contract(), "");
  EXPECT_NE(Gathered(), "");
}

TEST_F(DemoCheckTest, AMissingStreamAndAWrongLayoutAreDifferent) {
  shards_[1].layout.runs[0].source += 1;
  EXPECT_THAT(Contract(), HasSubstr("rank 1: layout"));
  shards_[0].batch.tensors.pop_back();
  EXPECT_THAT(Contract(), HasSubstr("rank 0"));
}

TEST_F(DemoCheckTest, APaddingOfAnotherValueIsDifferent) {
  const Tensor& mask = Stream(0, "padding_mask");
  mask.buffer.data()[mask.buffer.size() - 1] = std::byte{0};
  EXPECT_THAT(Contract(), HasSubstr("padding_mask"));
}

class DemoCheckOfThdTest : public DemoCheckTest {
 protected:
  DemoCheckOfThdTest() {
    restated_.layout = "thd";
    restated_.qkv_format = "thd";
    Shard(Thd({}, {}), {.rows = 2, .length = 32, .last_length = 32, .document_multiple = 8});
  }
};

TEST_F(DemoCheckOfThdTest, RightShardsAreEqual) {
  EXPECT_EQ(Contract(), "");
  EXPECT_EQ(Gathered(), "");
}

TEST_F(DemoCheckOfThdTest, AWrongTokenMaskIndexOrLengthIsDifferent) {
  for (const char* name : {"input_ids", "padding_mask", "_thd_local_indices", "cu_seqlens"}) {
    const Tensor& stream = Stream(3, name);
    const Buffer right = stream.buffer;
    absl::StatusOr<Buffer> wrong = pool_.Allocate(right.size());
    std::memcpy(wrong->data(), right.data(), right.size());
    wrong->data()[0] ^= std::byte{1};
    Stream(3, name).buffer = *wrong;
    EXPECT_THAT(Contract(), HasSubstr(name));
    EXPECT_THAT(Gathered(), HasSubstr(name));
    Stream(3, name).buffer = right;
  }
  EXPECT_EQ(Contract() + Gathered(), "");
}

TEST_F(DemoCheckOfThdTest, ALengthThatEveryRankHasWrongIsDifferent) {
  for (int rank = 0; rank < kRanks; ++rank) {
    absl::StatusOr<Buffer> wrong = pool_.Allocate(sizeof(int32_t));
    const int32_t longest = 16;
    std::memcpy(wrong->data(), &longest, sizeof longest);
    Stream(rank, "max_seqlen").buffer = *wrong;
  }
  EXPECT_THAT(Contract(), HasSubstr("max_seqlen"));
  EXPECT_THAT(Gathered(), HasSubstr("max_seqlen"));
}

TEST_F(DemoCheckOfThdTest, AScalarOfAnotherRankOrNoneIsDifferent) {
  std::swap(shards_[1].batch.scalars, shards_[2].batch.scalars);
  EXPECT_THAT(Contract(), HasSubstr("rank 1: scalar 'cp_rank'"));
  shards_[0].batch.scalars.clear();
  EXPECT_THAT(Contract(), HasSubstr("rank 0"));
}

}  // namespace
}  // namespace cpshard::demo
