// Details of errors, also as a client reads them that knows gRPC and the public google.rpc
// messages, but nothing of this project.
#include "proto/error_details.h"

#include <gmock/gmock.h>
#include <google/protobuf/any.pb.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace cpshard {
namespace {

const ErrorDetails kEnd = {
    "END_OF_STREAM", {{"end_step", "40"}, {"stream", "train"}}, absl::Milliseconds(1500)};

// The public messages, as googleapis declares them.
constexpr char kGoogleRpc[] = R"(
name: "google/rpc.proto" package: "google.rpc" syntax: "proto3"
dependency: "google/protobuf/any.proto" dependency: "google/protobuf/duration.proto"
message_type {
  name: "Status"
  field { name: "code" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "message" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "details" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".google.protobuf.Any" }
}
message_type {
  name: "ErrorInfo"
  field { name: "reason" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "domain" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "metadata" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".google.rpc.ErrorInfo.MetadataEntry" }
  nested_type {
    name: "MetadataEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  }
}
message_type {
  name: "RetryInfo"
  field { name: "retry_delay" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".google.protobuf.Duration" }
})";

std::string ReadByAGenericClient(const std::string& metadata) {
  google::protobuf::DescriptorPool pool;
  google::protobuf::FileDescriptorProto file;
  google::protobuf::Any::descriptor()->file()->CopyTo(&file);
  EXPECT_NE(pool.BuildFile(file), nullptr);
  file.Clear();
  google::protobuf::Duration::descriptor()->file()->CopyTo(&file);
  EXPECT_NE(pool.BuildFile(file), nullptr);
  file.Clear();
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGoogleRpc, &file));
  EXPECT_NE(pool.BuildFile(file), nullptr);
  const std::unique_ptr<google::protobuf::util::TypeResolver> resolver(
      google::protobuf::util::NewTypeResolverForDescriptorPool("type.googleapis.com", &pool));
  std::string json;
  const auto status = google::protobuf::util::BinaryToJsonString(
      resolver.get(), "type.googleapis.com/google.rpc.Status", metadata, &json);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return json;
}

TEST(ErrorDetails, TheyStandOnAStatusBesideItsCodeAndText) {
  const absl::Status status = WithDetails(absl::OutOfRangeError("train ends at 40"), kEnd);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "train ends at 40");
  EXPECT_EQ(DetailsOf(status), kEnd);
  const ErrorDetails reason_alone{"NO_STATE", {}, std::nullopt};
  EXPECT_EQ(DetailsOf(WithDetails(status, reason_alone)), reason_alone);
  const ErrorDetails time_alone{"", {}, absl::ZeroDuration()};
  EXPECT_EQ(DetailsOf(WithDetails(status, time_alone)), time_alone);
  EXPECT_EQ(DetailsOf(WithDetails(status, {})), std::nullopt);
  EXPECT_EQ(DetailsOf(absl::OutOfRangeError("")), std::nullopt);
}

TEST(ErrorDetails, OkStaysOk) { EXPECT_EQ(WithDetails(absl::OkStatus(), kEnd), absl::OkStatus()); }

TEST(ErrorDetails, TheSameDetailsMakeTheSameStatus) {
  ErrorDetails many{"TERMS_DIFFER", {}, std::nullopt};
  for (int i = 0; i < 20; ++i) many.values[absl::StrCat("field", i)] = absl::StrCat(i);
  const absl::Status status = absl::AbortedError("x");
  EXPECT_EQ(WithDetails(status, many), WithDetails(status, many));
  EXPECT_NE(WithDetails(status, many), WithDetails(status, kEnd));
}

TEST(ErrorDetails, TheySurviveACall) {
  for (const ErrorDetails& details :
       {kEnd, ErrorDetails{"ZOMBIE", {}, {}}, ErrorDetails{"", {}, absl::Seconds(3)}}) {
    const absl::Status status = WithDetails(absl::AbortedError("floor is 7"), details);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    EXPECT_EQ(DetailsOf(FromGrpc(ToGrpc(status))), details);
  }
}

TEST(ErrorDetails, AnyGrpcClientReadsThem) {
  const absl::Status status = WithDetails(absl::OutOfRangeError("train ends at 40"), kEnd);
  EXPECT_EQ(ReadByAGenericClient(ToGrpc(status).error_details()),
            R"({"code":11,"message":"train ends at 40","details":[)"
            R"({"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"END_OF_STREAM",)"
            R"("domain":"cpshard","metadata":{"end_step":"40","stream":"train"}},)"
            R"({"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.500s"}]})");
}

TEST(ErrorDetails, AStatusWithoutThemHasNoMetadata) {
  EXPECT_EQ(ToGrpc(absl::InternalError("x")).error_details(), "");
}

TEST(ErrorDetails, WhatSomebodyElseAttachedIsNotTakenForOurs) {
  // ErrorInfo {reason: "X", domain: "other"}
  const std::string info = "\x0a\x01X\x12\x05other";
  const std::string url = "type.googleapis.com/google.rpc.ErrorInfo";
  std::string any = absl::StrCat("\x0a", std::string(1, static_cast<char>(url.size())), url, "\x12",
                                 std::string(1, static_cast<char>(info.size())), info);
  const std::string metadata =
      absl::StrCat("\x1a", std::string(1, static_cast<char>(any.size())), any);
  for (const std::string& details : {metadata, std::string("no message"), std::string()}) {
    const grpc::Status status(grpc::StatusCode::ABORTED, "why", details);
    EXPECT_EQ(FromGrpc(status).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(FromGrpc(status).message(), "why");
    EXPECT_EQ(DetailsOf(FromGrpc(status)), std::nullopt);
  }
}

TEST(ErrorDetails, WhatIsTooLongForTheMetadataIsCut) {
  ErrorDetails details{std::string(100, 'R'), {}, absl::Seconds(1)};
  for (char key = 'a'; key < 'z'; ++key) details.values[{key}] = std::string(300, key);
  const absl::Status status = WithDetails(absl::AbortedError(std::string(5000, 'x')), details);
  const ErrorDetails cut = *DetailsOf(status);
  EXPECT_EQ(cut.reason, std::string(64, 'R') + "...");
  EXPECT_EQ(cut.values.begin()->second, std::string(256, 'a') + "...");
  EXPECT_EQ(cut.values.size(), 5u);  // of 260 bytes each
  EXPECT_EQ(cut.retry_after, absl::Seconds(1));
  const grpc::Status sent = ToGrpc(status);
  // In base64, beside the text and what gRPC adds: within the 8 KiB that a peer takes.
  EXPECT_LT(sent.error_message().size() * 3 + sent.error_details().size() * 4 / 3, 7168u);
  EXPECT_EQ(DetailsOf(FromGrpc(sent)), cut);
}

TEST(ErrorDetails, ATimeToWaitIsInWholeMillisecondsAndNeverLess) {
  const auto sent = [](absl::Duration after) {
    return *DetailsOf(WithDetails(absl::UnavailableError(""), {"", {}, after}))->retry_after;
  };
  EXPECT_EQ(sent(absl::Microseconds(1)), absl::Milliseconds(1));
  EXPECT_EQ(sent(absl::Microseconds(2000)), absl::Milliseconds(2));
  EXPECT_EQ(sent(-absl::Seconds(1)), absl::ZeroDuration());
  EXPECT_EQ(sent(absl::InfiniteDuration()), absl::Milliseconds(4294967295));
}

}  // namespace
}  // namespace cpshard
