// Rows of tensors where they lie: as blocks of few, and what has to be copied for it.
#include "core/torch/stream_rows.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RowBlocks, RowsThatAreApartAlikeAreOne) {
  const at::Tensor whole = at::empty({3, 4, 5, 6});
  EXPECT_THAT(RowBlocksOf(whole, 3), ElementsAre(RowBlock{0, 60, 0, 6}));
  EXPECT_THAT(RowBlocksOf(whole, 2), ElementsAre(RowBlock{0, 12, 0, 30}));
  EXPECT_THAT(RowBlocksOf(whole, 0), ElementsAre(RowBlock{0, 1, 0, 0}));
  EXPECT_THAT(RowBlocksOf(whole.narrow(1, 1, 1), 2), ElementsAre(RowBlock{0, 3, 0, 120}));
  EXPECT_THAT(RowBlocksOf(whole.narrow(3, 1, 2), 3), ElementsAre(RowBlock{0, 60, 0, 6}));
  EXPECT_THAT(RowBlocksOf(at::empty({6}).expand({7, 8, 6}), 2), ElementsAre(RowBlock{0, 56, 0, 0}));
}

TEST(RowBlocks, RowsAtSeveralStridesAreSeveral) {
  const at::Tensor whole = at::empty({3, 4, 5, 6});
  EXPECT_THAT(RowBlocksOf(whole.narrow(2, 1, 2), 3).size(), 12);
  EXPECT_THAT(
      RowBlocksOf(whole.narrow(1, 0, 2), 3),
      ElementsAre(RowBlock{0, 10, 0, 6}, RowBlock{10, 10, 120, 6}, RowBlock{20, 10, 240, 6}));
  EXPECT_THAT(RowBlocksOf(at::empty({2, 1, 6}).expand({2, 9, 6}), 2),
              ElementsAre(RowBlock{0, 9, 0, 0}, RowBlock{9, 9, 6, 0}));
}

TEST(RowBlocks, ATensorWithoutRowsHasNone) {
  EXPECT_THAT(RowBlocksOf(at::empty({2, 0, 6}), 2), IsEmpty());
}

// Where rows lie on end the very same memory is read.
TEST(RowsOnEnd, AreNotCopied) {
  const at::Tensor whole = at::empty({3, 4, 5, 6});
  for (const at::Tensor& stream :
       {whole, whole.narrow(2, 1, 3), whole.transpose(0, 2),
        whole.narrow(1, 2, 1).expand({3, 9, 5, 6}), at::empty({6}).expand({7, 8, 6})}) {
    EXPECT_TRUE(WithRowsOnEnd(stream, stream.dim() - 1).is_same(stream)) << stream.strides();
  }
}

TEST(RowsOnEnd, AreMadeOfThoseThatAreNotOnceForAllThatShareThem) {
  const at::Tensor columns = at::arange(24).view({6, 4}).t();  // [4, 6], rows at a stride of 4
  const at::Tensor stream = columns.unsqueeze(0).expand({100, 4, 6});
  const at::Tensor made = WithRowsOnEnd(stream, 2);
  EXPECT_TRUE(made.equal(stream));
  EXPECT_EQ(made.storage().nbytes(), columns.nbytes());
  EXPECT_THAT(RowBlocksOf(made, 2).size(), 100);
}

TEST(RowsOnEnd, AreCopiedWhereTheyWouldBeVeryManyBlocks) {
  const at::Tensor stream = at::arange(2000 * 3 * 4).view({2000, 3, 4}).narrow(1, 0, 2);
  const at::Tensor made = WithRowsOnEnd(stream, 2);
  EXPECT_TRUE(made.equal(stream));
  EXPECT_THAT(RowBlocksOf(made, 2).size(), 1);
}

}  // namespace
}  // namespace cpshard
