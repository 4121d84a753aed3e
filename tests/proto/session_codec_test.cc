// Messages of sessions: what is sent says, field by field, what the struct says, and is read as
// that again.
#include "proto/session_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpshard/v1/session.pb.h"
#include "proto/error_details.h"
#include "tests/proto/messages.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

std::string OptionsBytes() {
  return Options::FromJson(R"({"round_robin": {}, "padding_token_id": 7})")->ToBytes();
}

OpenSession FullOpen() {
  OpenSession open;
  open.group = "dp0";
  open.generation = 3;
  open.attempt = "a1";
  open.cp_size = 4;
  open.readers_per_rank = 2;
  open.options = OptionsBytes();
  open.fingerprint = "f0";
  open.job = "j";
  open.job_groups = 8;
  open.executor = ExecutorKind::kCuda;
  open.resume = {{"train", 11}, {"val", 0}};
  open.reader = "rank2.1";
  open.cp_rank = 2;
  open.incarnation = 5;
  open.streams = {{"train", 1, 12, 14, false, false, 4096, ResumeState{2, {{0, {10, "s"}}}}},
                  {"val", 6, 0, -1, true, true, 0, std::nullopt}};
  return open;
}

constexpr char kFullOpen[] = R"(
group: "dp0" generation: 3 attempt: "a1" cp_size: 4 readers_per_rank: 2
options { padding_token_id: 7 round_robin {} }
fingerprint: "f0" job: "j" job_groups: 8 executor: EXECUTOR_CUDA
resume { key: "train" value: 11 } resume { key: "val" value: 0 }
reader: "rank2.1" cp_rank: 2 incarnation: 5
streams { name: "train" pass: 1 next_step: 12 received: 14 max_step_bytes: 4096
          resume { num_loaders: 2 loaders { key: 0 value { step: 10 state: "s" } } } }
streams { name: "val" pass: 6 closed: true finished: true })";

TEST(OpenSessionMessage, ItSaysWhatTheStructSays) {
  const auto expected = FromText<v1::OpenSessionRequest>(kFullOpen);
  v1::OpenSessionRequest message;
  ASSERT_EQ(EncodeOpenSession(FullOpen(), &message), absl::OkStatus());
  EXPECT_EQ(message.DebugString(), expected.DebugString());

  const auto read = DecodeOpenSession(expected);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->streams, FullOpen().streams);
  EXPECT_EQ(read->resume, FullOpen().resume);
  EXPECT_EQ(read->options, OptionsBytes());
  v1::OpenSessionRequest again;
  ASSERT_EQ(EncodeOpenSession(*read, &again), absl::OkStatus());
  EXPECT_EQ(again.DebugString(), expected.DebugString());
}

TEST(OpenSessionMessage, WhatIsLeftOutHasItsDefault) {
  const auto read = DecodeOpenSession(FromText<v1::OpenSessionRequest>(
      R"(group: "g" cp_size: 1 options { identity {} } reader: "r"
         streams { name: "train" max_step_bytes: 1 })"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->generation, 0);
  EXPECT_EQ(read->readers_per_rank, 1);
  EXPECT_EQ(read->job_groups, 1);
  EXPECT_EQ(read->executor, ExecutorKind::kAuto);
  EXPECT_EQ(read->attempt + read->fingerprint + read->job, "");
  EXPECT_TRUE(read->resume.empty());
  EXPECT_EQ(read->streams,
            (std::vector<ReaderStream>{{"train", 0, 0, -1, false, false, 1, std::nullopt}}));
}

TEST(OpenSessionMessage, AResumeStateWithoutLoadersIsNotAnAbsentOne) {
  auto message = FromText<v1::OpenSessionRequest>(kFullOpen);
  message.mutable_streams(0)->mutable_resume()->Clear();
  EXPECT_EQ(DecodeOpenSession(message)->streams[0].resume, ResumeState());
  message.mutable_streams(0)->clear_resume();
  EXPECT_EQ(DecodeOpenSession(message)->streams[0].resume, std::nullopt);
}

TEST(OpenSessionMessage, OptionsThatNoLayoutCanBeMadeOfAreRefusedHere) {
  auto message = FromText<v1::OpenSessionRequest>(kFullOpen);
  message.mutable_options()->Clear();
  EXPECT_THAT(std::string(DecodeOpenSession(message).status().message()), HasSubstr("no layout"));
  ASSERT_TRUE(message.mutable_options()->MergeFromString(kUnknownField));
  message.mutable_options()->mutable_identity();
  const absl::Status status = DecodeOpenSession(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("unknown field number 1006"));
}

TEST(OpenSessionMessage, AnExecutorThatIsNoneIsRefused) {
  auto message = FromText<v1::OpenSessionRequest>(kFullOpen);
  message.set_executor(static_cast<v1::Executor>(7));
  const absl::Status status = DecodeOpenSession(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("executor 7 is"));
}

TEST(OpenSessionMessage, OptionsAreTheSameBytesHoweverTheyWereSent) {
  const auto options_of = [](const std::string& bytes) {
    auto message = FromText<v1::OpenSessionRequest>(kFullOpen);
    message.clear_options();
    EXPECT_TRUE(message.mutable_options()->ParseFromString(bytes));
    return DecodeOpenSession(message)->options;
  };
  // padding_token_id is field 2 in either order; what an earlier field said counts no more.
  v1::ShardingOptions padding, layout, earlier;
  padding.set_padding_token_id(7);
  layout.mutable_round_robin();
  earlier.set_padding_token_id(9);
  const std::string one = padding.SerializeAsString(), other = layout.SerializeAsString();
  EXPECT_EQ(options_of(one + other), options_of(other + earlier.SerializeAsString() + one));
  EXPECT_NE(options_of(one + other), options_of(other));
}

TEST(OpenSessionMessage, ForeignFieldsAreIgnored) {
  const std::string bytes = FromText<v1::OpenSessionRequest>(kFullOpen).SerializeAsString();
  const auto read = DecodeOpenSession(Parsed<v1::OpenSessionRequest>(bytes + kUnknownField));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->streams, FullOpen().streams);
}

TEST(OpenSessionMessage, WhatCannotBeIsNotSent) {
  const auto refused = [](auto spoil) {
    OpenSession open = FullOpen();
    spoil(open);
    v1::OpenSessionRequest message;
    return EncodeOpenSession(open, &message);
  };
  EXPECT_EQ(refused([](auto&) {}), absl::OkStatus());
  EXPECT_EQ(refused([](auto& o) { o.cp_rank = 4; }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused([](auto& o) { o.reader = "r\xff"; }).message()),
              HasSubstr("reader is not UTF-8: 'r\\xff'"));
  EXPECT_THAT(std::string(refused([](auto& o) { o.options = "\xff"; }).message()),
              HasSubstr("ShardingOptions"));
}

TEST(OpenSessionMessage, StatesThatNoMessageCanHoldAreRefusedBeforeTheyAreSent) {
  OpenSession open = FullOpen();
  ResumeState& resume = *open.streams[0].resume;
  resume.num_loaders = 128;  // 128 states of 64 KiB: 8 MiB, and a little
  open.streams[0].next_step = 128;
  v1::OpenSessionRequest message;
  resume.loaders.clear();
  for (int i = 0; i < 127; ++i) resume.loaders[i] = {i, std::string(65536, 's')};
  EXPECT_EQ(EncodeOpenSession(open, &message), absl::OkStatus());
  resume.loaders[127] = {127, std::string(65536, 's')};
  message.Clear();
  const absl::Status status = EncodeOpenSession(open, &message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("8388608"));
}

constexpr char kFullOpened[] = R"(
instance: "i9" generation: 3
streams { name: "train" pass: 1 floor: 0
          resume { num_loaders: 2 loaders { key: 1 value { step: 11 } } } }
streams { name: "val" pass: 6 }
hand_off { mode: "inline" } executor: "cuda:0")";

TEST(OpenedSessionMessage, ItSaysWhatTheStructSays) {
  const auto expected = FromText<v1::OpenSessionReply>(kFullOpened);
  const OpenedSession opened{
      "i9",
      3,
      {{"train", 1, 0, ResumeState{2, {{1, {11, ""}}}}}, {"val", 6, std::nullopt, std::nullopt}},
      "cuda:0"};
  v1::OpenSessionReply message, again;
  EncodeOpenedSession(opened, &message);
  EXPECT_EQ(message.DebugString(), expected.DebugString());
  const auto read = DecodeOpenedSession(expected);
  ASSERT_TRUE(read.ok()) << read.status();
  EncodeOpenedSession(*read, &again);
  EXPECT_EQ(again.DebugString(), expected.DebugString());
}

TEST(OpenedSessionMessage, AnotherHandOffThanWeKnowIsNeverTakenForInline) {
  for (const char* mode : {"fd", ""}) {
    auto message = FromText<v1::OpenSessionReply>(kFullOpened);
    message.mutable_hand_off()->set_mode(mode);
    EXPECT_EQ(DecodeOpenedSession(message).status().code(), absl::StatusCode::kUnimplemented);
  }
}

TEST(CloseSessionMessage, ItNamesTheSession) {
  const auto expected = FromText<v1::CloseSessionRequest>(
      R"(session { group: "g" generation: 4 reader: "r" incarnation: 2 })");
  v1::CloseSessionRequest message;
  EncodeCloseSession({"g", 4, "r", 2}, &message);
  EXPECT_EQ(message.DebugString(), expected.DebugString());
  message.Clear();
  EncodeCloseSession(*DecodeCloseSession(expected), &message);
  EXPECT_EQ(message.DebugString(), expected.DebugString());
  EXPECT_EQ(DecodeCloseSession({}).status().code(), absl::StatusCode::kInvalidArgument);
}

// --- requests and notices

struct RequestCase {
  PullRequest request;
  std::string text;
};

std::vector<RequestCase> RequestCases() {
  const StepAddress at{"train", 1, 7};
  const std::string at_text = R"(at { stream: "train" pass: 1 step: 7 })";
  return {
      {SessionName{"g", 4, "r", 2},
       R"(session { group: "g" generation: 4 reader: "r" incarnation: 2 })"},
      {SessionName{"g", 0, "r", 0}, R"(session { group: "g" reader: "r" })"},
      {Want{9, at, 0, 250, {"input_ids", "labels"}},
       "want { id: 9 " + at_text + R"( microbatch: 0 timeout_ms: 250 keys: "input_ids"
                                    keys: "labels" })"},
      {Want{0, {"val", 0, 0}, {}, {}, {}}, R"(want { at { stream: "val" } })"},
      {Want{8, at, {}, {}, {}, 3}, "want { id: 8 " + at_text + " from_microbatch: 3 }"},
      {Commit{at, {}, 0}, "commit { " + at_text + " }"},
      {Commit{at, StallTime{1, 2, 3, 4}, 50},
       "commit { " + at_text + " stall { loader: 1 peer: 2 server: 3 copy: 4 } elapsed_us: 50 }"},
      {PassClosed{"val", 2, true}, R"(pass_closed { stream: "val" pass: 2 finished: true })"},
      {PassClosed{"val", 0, false}, R"(pass_closed { stream: "val" })"},
  };
}

TEST(PullRequestMessage, EachSaysWhatItsStructSays) {
  for (const RequestCase& c : RequestCases()) {
    const auto expected = FromText<v1::PullRequest>(c.text);
    EXPECT_EQ(Parsed<v1::PullRequest>(EncodePullRequest(c.request)).DebugString(),
              expected.DebugString());
    const std::string bytes = expected.SerializeAsString() + kUnknownField;
    for (size_t cut : {size_t{0}, size_t{1}, bytes.size() / 2}) {
      const auto read = DecodePullRequest(CutAt(bytes, {cut}));
      ASSERT_TRUE(read.ok()) << read.status() << c.text;
      EXPECT_EQ(Parsed<v1::PullRequest>(EncodePullRequest(*read)).DebugString(),
                expected.DebugString());
    }
  }
}

TEST(PullRequestMessage, OneThatAsksForNothingIsRefused) {
  for (const std::string& bytes : {std::string(), kUnknownField}) {
    EXPECT_EQ(
        DecodePullRequest({AsBytes(bytes)}).status().message(),
        "a PullRequest names no session, want, commit or pass_closed that this version knows");
  }
  EXPECT_EQ(DecodePullRequest({AsBytes("\x12\x05no")}).status().message(),
            "a message of 4 bytes is not a PullRequest");
  EXPECT_EQ(DecodePullRequest({AsBytes(std::string(65537, '\0'))}).status().message(),
            "a PullRequest has 65537 bytes, over the limit of 65536");
}

TEST(PullRequestMessage, OneThatEndsInTheMiddleIsRefusedHoweverItIsCut) {
  const std::string whole = EncodePullRequest(SessionName{"group", 3, "reader", 2});
  for (size_t zero = 0; zero <= whole.size(); ++zero) {
    std::string bytes = whole;
    bytes.insert(zero, 1, '\0');
    const absl::Status status = DecodePullRequest({AsBytes(bytes)}).status();
    for (size_t first = 1; first < bytes.size(); ++first) {
      for (size_t size : {1, 2, 5}) {
        std::vector<size_t> cuts;
        for (size_t at = first; at < bytes.size(); at += size) cuts.push_back(at);
        EXPECT_EQ(DecodePullRequest(CutAt(bytes, cuts)).status(), status);
      }
    }
  }
  EXPECT_FALSE(DecodePullRequest({AsBytes(whole + std::string(1, '\0'))}).ok());
}

TEST(GetShardMessage, ItIsASessionAWantAndACommit) {
  const auto read = DecodeGetShard(FromText<v1::GetShardRequest>(
      R"(session { group: "g" reader: "r" } want { id: 3 at { stream: "s" step: 5 } } commit: 0)"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->session.group + read->session.reader, "gr");
  EXPECT_EQ(read->want.id, 3u);
  EXPECT_EQ(read->want.at, (StepAddress{"s", 0, 5}));
  EXPECT_EQ(read->commit, 0);
  auto message = FromText<v1::GetShardRequest>(
      R"(session { group: "g" reader: "r" } want { at { stream: "s" } })");
  EXPECT_EQ(DecodeGetShard(message)->commit, std::nullopt);
  message.set_commit(-1);
  EXPECT_THAT(std::string(DecodeGetShard(message).status().message()), HasSubstr("commit is -1"));
  message.clear_want();
  EXPECT_FALSE(DecodeGetShard(message).ok());
  EXPECT_FALSE(DecodeGetShard({}).ok());
}

struct NoticeCase {
  LoaderNotice notice;
  std::string text;
};

std::vector<NoticeCase> NoticeCases() {
  const StepAddress at{"train", 1, 7};
  const std::string at_text = R"(at { stream: "train" pass: 1 step: 7 })";
  return {
      {Welcome{"i9"}, R"(welcome { instance: "i9" })"},
      {Position{3, "train", 1, 2, 8, {0, 2}, LoaderState{6, std::string("\0s", 2)}, 5},
       R"(position { generation: 3 stream: "train" pass: 1 epoch: 2 from_step: 8 landed: 0 landed: 2
                     state { step: 6 state: "\000s" } released: 5 })"},
      {Position{0, "v", 0, 0, 0, {}, std::nullopt, 0}, R"(position { stream: "v" })"},
      {LoaderCredit{at, 2, 4096}, "credit { " + at_text + " epoch: 2 bytes: 4096 }"},
      {AckMessage{at, 2, 1, absl::OkStatus()}, "ack { " + at_text + " epoch: 2 microbatch: 1 }"},
      {AckMessage{at, 2, 0, absl::DataLossError("frame 3 is missing")},
       "ack { " + at_text + R"( epoch: 2 status { code: 15 message: "frame 3 is missing" } })"},
      {AckMessage{at, 0, 0,
                  WithDetails(absl::ResourceExhaustedError("no credit"),
                              {"NO_CREDIT", {{"step", "7"}}, absl::Milliseconds(20)})},
       "ack { " + at_text + R"( status { code: 8 message: "no credit" retry_after_ms: 20
                                         reason: "NO_CREDIT"
                                         values { key: "step" value: "7" } } })"},
      {Released{"train", 1, 2, 6}, R"(released { stream: "train" pass: 1 epoch: 2 before: 6 })"},
      {PassDone{"val", 3, true}, R"(pass_done { stream: "val" pass: 3 finished: true })"},
      {DrainMessage(), "drain {}"},
  };
}

TEST(LoaderNoticeMessage, EachSaysWhatItsStructSays) {
  for (const NoticeCase& c : NoticeCases()) {
    const auto expected = FromText<v1::LoaderNotice>(c.text);
    EXPECT_EQ(Parsed<v1::LoaderNotice>(EncodeLoaderNotice(c.notice)).DebugString(),
              expected.DebugString());
    const std::string bytes = expected.SerializeAsString() + kUnknownField;
    const auto read = DecodeLoaderNotice(CutAt(bytes, {1, bytes.size() / 2}));
    ASSERT_TRUE(read.ok()) << read.status() << c.text;
    EXPECT_EQ(read->index(), c.notice.index());
    EXPECT_EQ(Parsed<v1::LoaderNotice>(EncodeLoaderNotice(*read)).DebugString(),
              expected.DebugString());
  }
}

TEST(LoaderNoticeMessage, AnAckReadsAsTheStatusThatWasSent) {
  for (const NoticeCase& c : NoticeCases()) {
    const AckMessage* ack = std::get_if<AckMessage>(&c.notice);
    if (ack == nullptr) continue;
    const std::string bytes = EncodeLoaderNotice(c.notice);
    EXPECT_EQ(std::get<AckMessage>(*DecodeLoaderNotice({AsBytes(bytes)})).status, ack->status);
  }
}

TEST(LoaderNoticeMessage, OneThatSaysNothingIsRefused) {
  EXPECT_EQ(DecodeLoaderNotice({}).status().message(),
            "a LoaderNotice says nothing that this version knows");
  EXPECT_EQ(DecodeLoaderNotice({AsBytes("\x0a\x05no")}).status().message(),
            "a message of 4 bytes is not a LoaderNotice");
}

// --- views

GroupView FullView() {
  GroupView view{"g", 4, true, true, "digests differ", 2, {}, {}};
  view.readers = {
      {"r0", 1, 7, true, true, true, 1.5, {{"train", 1, true, 8, 9}}, 3, {1, 2, 3, 4}, 50},
      {"r1", 0, 0, false, false, false, std::nullopt, {{"val", 0, false, 0, -1}}, 0}};
  view.streams = {{"train",
                   1,
                   2,
                   6,
                   9,
                   40,
                   10,
                   3,
                   4,
                   100,
                   200,
                   50,
                   2,
                   {{0, 5, true, true, 0.25, 10}, {1, 0, false, false, std::nullopt, std::nullopt}},
                   "loader 1",
                   6,
                   "train/5 has changed"},
                  {}};
  view.declared = true;
  view.executor = ExecutorKind::kCuda;
  return view;
}

constexpr char kFullView[] = R"(
group: "g" generation: 4 opened: true ended: true failure: "digests differ" cp_size: 2
declared: true executor: EXECUTOR_CUDA
readers { reader: "r0" cp_rank: 1 incarnation: 7 opened: true connected: true closed: true
          away_seconds: 1.5 wants: 3
          stall { loader: 1 peer: 2 server: 3 copy: 4 } elapsed_us: 50
          streams { stream: "train" pass: 1 open: true next_step: 8 delivered: 9 } }
readers { reader: "r1" streams { stream: "val" } }
streams { stream: "train" pass: 1 epoch: 2 floor: 6 frontier: 9 end_step: 40 window_steps: 10
          complete_steps: 3 granted_steps: 4 used_bytes: 100 guaranteed_bytes: 200
          max_step_bytes: 50 num_loaders: 2 waiting_for: "loader 1"
          digest_changes: 6 notice: "train/5 has changed"
          loaders { loader: 0 incarnation: 5 known: true connected: true silent_seconds: 0.25
                    next_step: 10 }
          loaders { loader: 1 } }
streams {})";

TEST(GroupViewMessage, ItSaysWhatTheStructSays) {
  const auto expected = FromText<v1::GroupView>(kFullView);
  v1::DumpGroupReply one, one_again;
  EncodeGroupView(FullView(), &one);
  EXPECT_EQ(one.group().DebugString(), expected.DebugString());
  EncodeGroupView(*DecodeGroupView(one), &one_again);
  EXPECT_EQ(one_again.DebugString(), one.DebugString());

  v1::ListGroupsReply list, list_again;
  EncodeGroupViews({FullView(), {.group = "other"}}, &list);
  ASSERT_EQ(list.groups_size(), 2);
  EXPECT_EQ(list.groups(0).DebugString(), expected.DebugString());
  EXPECT_EQ(list.groups(1).DebugString(), "group: \"other\"\n");
  EncodeGroupViews(*DecodeGroupViews(list), &list_again);
  EXPECT_EQ(list_again.DebugString(), list.DebugString());
}

TEST(GroupViewMessage, WhatNoMessageHasRoomForIsRefusedWithSizeAndWayOut) {
  const GroupView half = {.group = "one", .failure = std::string(5 << 20, 'x')};
  const GroupView whole = {.group = "two", .failure = std::string(8 << 20, 'x')};
  v1::DumpGroupReply one;
  EncodeGroupView(half, &one);
  EXPECT_TRUE(CheckFits(one).ok());
  v1::ListGroupsReply list;
  EncodeGroupViews({half}, &list);
  EXPECT_TRUE(CheckFits(list).ok());
  EncodeGroupViews({half}, &list);
  const absl::Status of_list = CheckFits(list);
  EncodeGroupView(whole, &one);
  const absl::Status of_one = CheckFits(one);
  for (const absl::Status& refused : {of_list, of_one}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("8388608"));
    ASSERT_TRUE(DetailsOf(refused).has_value());
    EXPECT_EQ(DetailsOf(refused)->reason, "TOO_LARGE");
    EXPECT_FALSE(DetailsOf(refused)->retry_after.has_value());
  }
  EXPECT_THAT(std::string(of_list.message()), testing::HasSubstr("2 groups"));
  EXPECT_THAT(std::string(of_list.message()), testing::HasSubstr("DumpGroup"));
  EXPECT_THAT(std::string(of_one.message()), testing::HasSubstr("group two"));
}

TEST(GroupViewMessage, ARequestNamesAGroup) {
  v1::DumpGroupRequest message;
  for (const std::string& name : {std::string(), std::string(129, 'g'), std::string("\xFF")}) {
    message.set_group(name);
    EXPECT_EQ(DecodeDumpGroup(message).status().code(), absl::StatusCode::kInvalidArgument);
  }
  message.set_group(std::string(128, 'g'));
  EXPECT_EQ(*DecodeDumpGroup(message), message.group());
}

TEST(GroupViewMessage, ItIsOfAGroup) {
  EXPECT_EQ(DecodeGroupView({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(DecodeGroupViews({})->empty());
}

}  // namespace
}  // namespace cpshard
