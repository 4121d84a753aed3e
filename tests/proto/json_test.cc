#include "proto/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpshard {
namespace {

using ::testing::HasSubstr;

ShardLayout FullLayout() {
  ShardLayout layout;
  layout.local_token_global_indices = IntArray{{1, 2}, {4, 5}};
  layout.original_seq_len = 7;
  layout.padded_seq_len = 8;
  layout.input_row_shape = IntArray{{2}, {1, 8}};
  layout.input_token_stream_positions = IntArray{{1, 3}, {0, -1, 2}};
  layout.cp_rank = 1;
  layout.cp_size = 4;
  layout.batch_digest = 0xfedcba9876543210u;
  layout.runs = {{4, 2}};
  return layout;
}

TEST(LayoutsJson, EveryFieldSurvives) {
  ShardLayout bare;
  bare.cp_size = 4;
  const std::vector<ShardLayout> layouts = {bare, FullLayout()};
  const auto back = LayoutsFromJson(LayoutsToJson(layouts));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, layouts);
}

TEST(LayoutsJson, PrintsDefaultsUnderTheirProtoNames) {
  ShardLayout layout;
  layout.padded_seq_len = 0;
  layout.runs = {{0, 2}};
  const std::string json = LayoutsToJson({layout});
  EXPECT_THAT(json, HasSubstr("\"cp_rank\":0"));
  EXPECT_THAT(json, HasSubstr("\"source\":\"0\""));
  EXPECT_THAT(json, HasSubstr("\"padded_seq_len\":\"0\""));
  EXPECT_THAT(json, ::testing::Not(HasSubstr("original_seq_len")));
}

TEST(LayoutsJson, ReadsPlainNumbersToo) {
  const auto layouts = LayoutsFromJson(
      R"([{"cp_rank": 0, "cp_size": 2, "original_seq_len": 7, "batch_digest": 12,
           "runs": [{"source": 0, "length": 4}]}])");
  ASSERT_TRUE(layouts.ok()) << layouts.status();
  EXPECT_EQ(layouts->front().original_seq_len, 7);
  EXPECT_EQ(layouts->front().batch_digest, 12u);
  EXPECT_EQ(layouts->front().runs, (std::vector<cpshard::Run>{{0, 4}}));
}

TEST(LayoutsJson, RefusesWhatIsNoArrayOfLayouts) {
  for (const char* json :
       {"", "{}", "[3]", "[{\"cp_rnk\": 0}]", "[{\"cp_rank\": 2, \"cp_size\": 2}]",
        "[{\"cp_size\": 1, \"input_row_shape\": {\"shape\": [3], \"values\": [1]}}]",
        "[{\"cp_size\": 1, \"input_row_shape\": {\"shape\": [\"-1\"]}}]"}) {
    EXPECT_EQ(LayoutsFromJson(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
}

TEST(LayoutsJson, ADeepNestIsRefusedBeforeAnybodyRecurses) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  EXPECT_EQ(LayoutsFromJson(deep).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LayoutsFromJson("[{\"runs\": " + deep + "}]").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cpshard
