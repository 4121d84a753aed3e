// Views whose columns are shifted or repeated (ViewOf::columns): the map of a row comes before the
// placement, both before the cut. Plans by hand; what is read off is written down here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/exec/bodies.h"

namespace cpshard {
namespace {

IndexMap MapOf(const std::vector<int64_t>& columns) {
  IndexMap map;
  for (const int64_t column : columns) map.Append({column, 1});
  return map;
}

// Two rows of three columns on four padded ones; rank 0 holds three of them, rank 1 one.
LayoutPlan TwoRows(std::vector<IndexMap> placement) {
  LayoutPlan layout;
  layout.rows = 2;
  layout.source_len = 3;
  layout.padded_len = 4;
  layout.placement = std::move(placement);
  layout.partition = {MapOf({0, 1, 3}), MapOf({2})};
  return layout;
}

StreamPlan View(std::string name, std::vector<int64_t> dims, std::vector<IndexMap> columns) {
  StreamPlan stream{name, DType::kI32, std::move(dims)};
  stream.value.from = ViewOf{std::move(name), ViewOf::How::kColumns, std::move(columns)};
  stream.fill = {Fill::Kind::kConstant, {7}};
  return stream;
}

class Columns : public ShardBodyTest {
 protected:
  // The one stream of the plan as every rank gets it, in memory order.
  void Expect(const ShardPlan& plan, const Batch& batch,
              const std::vector<std::vector<double>>& ranks) {
    absl::StatusOr<ShardResult> made = MakeShards(plan, batch, AllRanks(plan), *executor_, pool_);
    ASSERT_TRUE(made.ok()) << made.status();
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const Tensor& tensor = made->shards[rank].batch.tensors.front();
      EXPECT_EQ(BytesOf(tensor), EncodeAll(tensor.spec.dtype, ranks[rank])) << "rank " << rank;
    }
    ExpectRightBodies(plan, batch);
  }

  static ShardPlan PlanWith(std::vector<LayoutPlan> chunks, StreamPlan stream) {
    ShardPlan plan;
    plan.cp_size = 2;
    plan.chunks = std::move(chunks);
    plan.streams = {std::move(stream)};
    return plan;
  }
};

// Rows hold 0 1 2 and 1000 1001 1002.
TEST_F(Columns, OneMapServesAllRowsOfOnePlacement) {
  const Batch batch{{Tokens("a", 2, 3, DType::kI32)}};
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2})})}, View("a", {2, 3}, {MapOf({1, 2, -1})})), batch,
         {{1, 7, 7, 1001, 7, 7}, {2, 1002}});
}

TEST_F(Columns, EveryRowHasItsMapUnderOnePlacement) {
  const Batch batch{{Tokens("a", 2, 3, DType::kI32)}};
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2})})},
                  View("a", {2, 3}, {MapOf({1, 2, -1}), MapOf({2, -1, 0})})),
         batch, {{1, 7, 7, 1002, 7, 1000}, {2, 7}});
}

TEST_F(Columns, OneMapGoesWithThePlacementOfEachRow) {
  const Batch batch{{Tokens("a", 2, 3, DType::kI32)}};
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2}), MapOf({2, 1, -1, 0})})},
                  View("a", {2, 3}, {MapOf({1, 2, -1})})),
         batch, {{1, 7, 7, 7, 1002, 1001}, {2, 7}});
}

TEST_F(Columns, EveryRowHasItsMapAndItsPlacement) {
  const Batch batch{{Tokens("a", 2, 3, DType::kI32)}};
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2}), MapOf({2, 1, -1, 0})})},
                  View("a", {2, 3}, {MapOf({1, 2, -1}), MapOf({2, -1, 0})})),
         batch, {{1, 7, 7, 1000, 7, 1002}, {2, 7}});
}

TEST_F(Columns, RowsOnTheSecondAxisHaveTheMapsOfRows) {
  std::vector<double> values;  // [2, 2, 3]: axis of the rope, row, column
  for (int i = 0; i < 12; ++i) values.push_back(i);
  const Batch batch{{TensorOf("a", DType::kI32, {2, 2, 3}, values)}};
  StreamPlan stream = View("a", {2, 2, 3}, {MapOf({1, 2, -1}), MapOf({2, -1, 0})});
  stream.axis = 2;
  stream.batch_axis = 1;
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2})})}, std::move(stream)), batch,
         {{1, 7, 7, 5, 7, 3, 7, 7, 7, 11, 7, 9}, {2, 7, 8, 7}});
}

TEST_F(Columns, OneRowThatStandsForAllIsShiftedForEachOfThem) {
  const Batch batch{{Tokens("a", 1, 3, DType::kI32)}};
  StreamPlan stream = View("a", {2, 3}, {MapOf({1, 2, -1}), MapOf({2, -1, 0})});
  std::get<ViewOf>(stream.value.from).how = ViewOf::How::kBroadcastRow;
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2})})}, std::move(stream)), batch,
         {{1, 7, 7, 2, 7, 0}, {2, 7}});
}

TEST_F(Columns, AShortSourceIsRepeatedOverAFlatStream) {
  const Batch batch{{Tokens("a", 1, 3, DType::kI32)}};
  LayoutPlan flat;
  flat.rows = 1;
  flat.source_len = flat.padded_len = 6;
  flat.placement = {IndexMap::Identity(6)};
  flat.partition = {MapOf({0, 1, 5}), MapOf({2, 3, 4})};
  StreamPlan stream = View("a", {6}, {MapOf({0, 1, 2, 0, 1, 2})});
  stream.axis = 0;
  stream.batch_axis = -1;
  Expect(PlanWith({flat}, std::move(stream)), batch, {{0, 1, 2}, {2, 0, 1}});
}

TEST_F(Columns, ChunksTakeTheirWindowOfTheMap) {
  const Batch batch{{Tokens("a", 1, 8, DType::kI32)}};
  std::vector<LayoutPlan> chunks(2);
  for (int64_t c = 0; c < 2; ++c) {
    chunks[c].rows = 1;
    chunks[c].source_len = 8;
    chunks[c].padded_len = 4;
    chunks[c].placement.emplace_back().Append({4 * c, 4});
    chunks[c].partition = {MapOf({0, 3}), MapOf({1, 2})};
  }
  StreamPlan stream = View("a", {8}, {MapOf({1, 2, 3, -1, 5, -1, 7, -1})});
  stream.axis = 0;
  stream.batch_axis = -1;
  Expect(PlanWith(chunks, std::move(stream)), batch, {{1, 7, 5, 7}, {2, 3, 7, 7}});
}

TEST_F(Columns, ACastComesBeforeTheMap) {
  const Batch batch{{Tokens("a", 2, 3, DType::kI32)}};
  StreamPlan stream = View("a", {2, 3}, {MapOf({1, 2, -1})});
  stream.dtype = DType::kI64;
  Expect(PlanWith({TwoRows({MapOf({0, -1, 1, 2})})}, std::move(stream)), batch,
         {{1, 7, 7, 1001, 7, 7}, {2, 1002}});
}

}  // namespace
}  // namespace cpshard
