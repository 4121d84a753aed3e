#include <gtest/gtest.h>

#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "tests/proto/messages.h"

namespace cpshard {
namespace {

TEST(ServerInfoMessage, ItSaysWhoShardsAndWhyAndWhatLiesInPinnedMemory) {
  ServerInfo info;
  info.executor = "cuda:0";
  info.executor_reason = "a device, compute capability 9.0";
  info.counters.pinned_bytes = 4;
  info.counters.pinned_bytes_out = 3;
  info.counters.unpinned_bytes_out = 2;
  info.counters.unpinned_blocks = 1;
  v1::GetServerInfoReply message;
  EncodeServerInfo(info, &message);
  EXPECT_EQ(message.executor(), "cuda:0");
  EXPECT_EQ(message.executor_reason(), "a device, compute capability 9.0");
  const auto expected = FromText<v1::Counters>(
      "pinned_bytes: 4 pinned_bytes_out: 3 unpinned_bytes_out: 2 unpinned_blocks: 1");
  EXPECT_EQ(message.counters().DebugString(), expected.DebugString());

  v1::GetServerInfoReply again;
  EncodeServerInfo(DecodeServerInfo(message), &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
}

TEST(ServerInfoMessage, ItSaysWhatSessionsMayHave) {
  ServerInfo info;
  info.session_limits = {.session_bytes = 1,
                         .replay_steps = 2,
                         .ahead_steps = 3,
                         .rank_timeout_seconds = 4,
                         .max_groups = 5,
                         .max_data_streams = 6,
                         .max_readers = 7,
                         .max_loaders = 8,
                         .max_microbatches = 9,
                         .max_wants = 10};
  v1::GetServerInfoReply message, again;
  EncodeServerInfo(info, &message);
  const auto expected = FromText<v1::SessionLimits>(
      "session_bytes: 1 replay_steps: 2 ahead_steps: 3 rank_timeout_seconds: 4 max_groups: 5 "
      "max_data_streams: 6 max_readers: 7 max_loaders: 8 max_microbatches: 9 max_wants: 10");
  EXPECT_EQ(message.limits().sessions().DebugString(), expected.DebugString());
  EncodeServerInfo(DecodeServerInfo(message), &again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
}

}  // namespace
}  // namespace cpshard
