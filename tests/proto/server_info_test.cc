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

}  // namespace
}  // namespace cpshard
