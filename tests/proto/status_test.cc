#include "proto/status.h"

#include <gtest/gtest.h>

namespace cpshard {
namespace {

TEST(GrpcStatus, EveryCodeSurvivesBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
}

TEST(GrpcStatus, ALongTextIsShortenedSoThatItFitsTheMetadata) {
  const grpc::Status status = ToGrpc(absl::InvalidArgumentError(std::string(100'000, 'x')));
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_LT(status.error_message().size(), 4096u);
}

}  // namespace
}  // namespace cpshard
