// What a trainer saves beside its weights, as JSON.
#include "client/session/train_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "client/session/rank.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

TrainState Example() {
  TrainState state;
  state.streams["train"] = {0, 7, {2, {{0, {6, std::string("\0\xff opaque", 9)}}, {1, {5, ""}}}}};
  state.streams["val"] = {3, 0, {}};
  state.fingerprint = "data-1";
  state.data_epoch = 2;
  state.cp_size = 8;
  state.options_hash = "00000000000000ab";
  return state;
}

TEST(TrainState, ComesBackAsItWasSaved) {
  const absl::StatusOr<TrainState> read = TrainState::FromJson(Example().ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Example());
}

TEST(TrainState, IsPlainJsonWithStatesInBase64) {
  TrainState state;
  state.streams["train"] = {0, 1, {1, {{0, {0, "abc"}}}}};
  EXPECT_EQ(state.ToJson(),
            R"({"cp_size":1,"data_epoch":0,"fingerprint":"","options_hash":"","streams":{"train":)"
            R"({"loaders":{"0":{"state":"YWJj","step":0}},"next_step":1,"num_loaders":1,)"
            R"("pass":0}}})");
}

TEST(TrainState, WhatIsNoneIsRefusedWithTheFieldThatIsWrong) {
  const struct {
    std::string from, to, text;
  } cases[] = {
      {R"("next_step":7)", R"("next_step":-7)", "streams['train'].next_step"},
      {R"("next_step":7)", R"("next_step":7.5)", "streams['train'].next_step"},
      {R"("next_step":7)", R"("next_stop":7)", "streams['train'].next_step"},
      {R"("pass":3)", R"("pass":3,"more":1)", "streams['val'].more"},
      {R"("num_loaders":2)", R"("num_loaders":1)", "loader '1', of 1 loaders"},
      {R"("1":{)", R"("x":{)", "loader 'x'"},
      {R"("state":"")", R"("state":"*")", "loader 1 is not base64"},
      {R"("fingerprint":"data-1")", R"("fingerprint":1)", "fingerprint"},
      {R"("cp_size":8)", R"("cp_size":0)", "cp_size"},
      {R"("data_epoch":2)", R"("data_epoch":99999999999999999999)", "train state"},
      {R"("cp_size":8)", R"("cp_size":8,"cp_size":8)", "cp_size"},
      {R"({"cp_size")", R"(["cp_size")", "train state"},
  };
  for (const auto& one : cases) {
    const std::string json = absl::StrReplaceAll(Example().ToJson(), {{one.from, one.to}});
    ASSERT_NE(json, Example().ToJson()) << one.from;
    const absl::Status status = TrainState::FromJson(json).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << one.to << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.text));
  }
}

TEST(TrainState, OptionsHaveTheSameHashHoweverTheyAreWritten) {
  const auto hash = [](const char* json) { return HashOf(Options::FromJson(json).value()); };
  EXPECT_EQ(hash(R"({"round_robin": {}})"), hash(R"({"roundRobin":{}})"));
  EXPECT_NE(hash(R"({"round_robin": {}})"), hash(R"({"contiguous": {}})"));
  EXPECT_EQ(hash(R"({"round_robin": {}})").size(), 16);
}

}  // namespace
}  // namespace cpshard
