// Answers that lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/proto/answers.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

using ReadShardsTest = AnswerTest;

TEST_F(ReadShardsTest, RefusesAnAnswerThatLies) {
  MakePlan(9001, 2);
  ReportPositions();
  const auto answer = Encode();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const v1::ShardFrame good = Generic(*answer);
  const Buffer body = Joined(answer->body);
  const auto read = [&](const v1::ShardFrame& message) {
    return ReadShards(FramesOf({message.SerializeAsString()}), body).status();
  };
  ASSERT_TRUE(read(good).ok());
  const auto array = [](v1::ShardFrame& message, const std::string& name) -> v1::Entry& {
    for (v1::Entry& entry : *message.mutable_shards(0)->mutable_entries()) {
      if (entry.name() == "_layout." + name) return entry;
    }
    ADD_FAILURE() << "no " << name;
    return *message.mutable_shards(0)->add_entries();
  };
  struct Case {
    const char* text;
    std::function<void(v1::ShardFrame&)> spoil;
  };
  const Case cases[] = {
      {"2 shards instead of 3", [](auto& m) { m.mutable_begin()->set_num_shards(3); }},
      {"3 shards instead of 2", [](auto& m) { m.add_shards(); }},
      {"instead of 64", [](auto& m) { m.mutable_begin()->set_total_bytes(64); }},
      {"does not start", [](auto& m) { m.clear_begin(); }},
      {"beyond", [](auto& m) { m.mutable_shards(0)->mutable_entries(5)->set_offset(1 << 30); }},
      {"multiple of 64", [&](auto& m) { array(m, "runs").set_offset(8); }},
      {"not known", [&](auto& m) { array(m, "runs").set_name("_layout.other"); }},
      {"two entries", [&](auto& m) { array(m, "runs").set_name("_layout.input_row_shape"); }},
      {"_layout.runs", [&](auto& m) { array(m, "runs").set_dtype(v1::DTYPE_F64); }},
      {"_layout.runs", [&](auto& m) { array(m, "runs").mutable_dims()->SwapElements(0, 1); }},
      {"nbytes", [&](auto& m) { array(m, "input_row_shape").set_dims(0, 3); }},
      {"scalar",
       [&](auto& m) {
         v1::Entry& entry = array(m, "runs");
         entry.Clear();
         entry.set_name("_layout.runs");
         entry.mutable_scalar()->set_int_value(1);
       }},
      {"in the layout too", [](auto& m) { m.mutable_shards(0)->mutable_layout()->add_runs(); }},
      {"in the layout too",
       [](auto& m) {
         auto* shape = m.mutable_shards(0)->mutable_layout()->mutable_input_row_shape();
         shape->add_shape(1);
         shape->add_values(1);
       }},
      {"values for a shape", [&](auto& m) { array(m, "input_row_shape").set_name("a stream"); }},
      {"cp_rank", [](auto& m) { m.mutable_shards(1)->mutable_layout()->set_cp_rank(2); }},
  };
  for (const Case& c : cases) {
    v1::ShardFrame message = good;
    c.spoil(message);
    const absl::Status status = read(message);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
  EXPECT_EQ(ReadShards({}, body).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cpshard
