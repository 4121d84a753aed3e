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

class DemoCheckTest : public ::testing::Test {
 protected:
  DemoCheckTest() {
    PackOptions options{.rows = 2, .length = 30, .last_length = 30};
    const std::vector<Document> documents = {{"a", std::string(20, 'a')}, {"b", "bcdefghijk"}};
    batch_ = Packing(documents, options).Make(0, pool_)->batch;
    restated_.layout = "round_robin";
    SharedOptions shared{.padding_token_id = kPadToken};
    shards_ =
        ShardBatch(RoundRobin({}, shared), batch_, 4, {}, Limits(), *executor_, pool_)->shards;
  }

  std::string Contract() { return DifferenceFromContract(batch_, restated_, 4, shards_); }
  std::string Gathered() { return DifferenceAfterGather(batch_, shards_, *executor_, pool_); }

  Tensor& Stream(int rank, const char* name) {
    for (Tensor& tensor : shards_[rank].batch.tensors) {
      if (tensor.spec.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return shards_[rank].batch.tensors[0];
  }

  BufferPool pool_;
  std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
  Batch batch_;
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

}  // namespace
}  // namespace cpshard::demo
