#include "proto/status.h"

#include <gtest/gtest.h>

#include <string>

#include "cpshard/v1/types.pb.h"
#include "proto/error_details.h"
#include "proto/status_codec.h"

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

// A name is anybody's: it may not begin a line of its own, nor speak to a terminal.
TEST(GrpcStatus, ATextIsOneLineWhateverNamesItHas) {
  const absl::Status status = absl::NotFoundError("no group q\nINFO \x1b[2J\x7f'\t\xC3\xA9'");
  const std::string printable = "no group q\\nINFO \\x1b[2J\\x7f'\\t\xC3\xA9'";
  EXPECT_EQ(ToGrpc(status).error_message(), printable);
  const grpc::Status detailed = ToGrpc(WithDetails(status, {.reason = "UNKNOWN_GROUP"}));
  EXPECT_EQ(detailed.error_message(), printable);
  EXPECT_EQ(detailed.error_details().find('\x1b'), std::string::npos);
  v1::BatchStatus message;
  EncodeStatus(status, &message);
  EXPECT_EQ(message.message(), printable);
}

}  // namespace
}  // namespace cpshard
