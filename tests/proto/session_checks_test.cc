// What messages of sessions are refused for, through the decoders.
#include "proto/session_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "cpshard/v1/service.pb.h"
#include "proto/session_codec.h"
#include "tests/proto/messages.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

const std::string kLong(129, 'n');
constexpr int64_t kTooLarge = (int64_t{1} << 62) + 1;

template <typename Message>
struct Case {
  std::vector<std::string> texts;  // that the refusal has; none: it is taken
  std::function<void(Message&)> spoil;
};

// Every case by itself spoils `example`, which is taken.
template <typename Message, typename Decode>
void ExpectRefused(const Message& example, Decode decode, const std::vector<Case<Message>>& cases) {
  EXPECT_EQ(decode(example), absl::OkStatus());
  for (const Case<Message>& c : cases) {
    Message message = example;
    c.spoil(message);
    const absl::Status status = decode(message);
    const auto expected =
        c.texts.empty() ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(status.code(), expected) << message.ShortDebugString().substr(0, 300) << status;
    for (const std::string& text : c.texts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }
}

TEST(SessionChecks, OfAnOpenSession) {
  using M = v1::OpenSessionRequest;
  const auto example = FromText<M>(R"(
      group: "g" generation: 1 cp_size: 4 options { identity {} } reader: "r" cp_rank: 3
      resume { key: "train" value: 5 }
      streams { name: "train" next_step: 5 max_step_bytes: 64
                resume { num_loaders: 2 loaders { key: 0 value { step: 4 } } } }
      streams { name: "val" closed: true max_step_bytes: 64 })");
  const auto first = [](M& m) { return m.mutable_streams(0); };
  const auto state = [](M& m, int64_t loader) -> v1::LoaderState& {
    return (*m.mutable_streams(0)->mutable_resume()->mutable_loaders())[loader];
  };
  ExpectRefused<M>(
      example, [](const M& m) { return DecodeOpenSession(m).status(); },
      {
          {{"group is empty"}, [](M& m) { m.clear_group(); }},
          {{"group has 129 bytes", "128"}, [](M& m) { m.set_group(kLong); }},
          {{}, [](M& m) { m.set_group(kLong.substr(1)); }},
          {{"generation is -1"}, [](M& m) { m.set_generation(-1); }},
          {{"generation is 4611686018427387905"}, [](M& m) { m.set_generation(kTooLarge); }},
          {{}, [](M& m) { m.set_generation(kTooLarge - 1); }},
          {{"attempt has 129"}, [](M& m) { m.set_attempt(kLong); }},
          {{"cp_size is 0"}, [](M& m) { m.clear_cp_size(); }},
          {{"cp_size is 65537"}, [](M& m) { m.set_cp_size(65537); }},
          {{"readers_per_rank is 0"}, [](M& m) { m.set_readers_per_rank(0); }},
          {{"readers_per_rank is 65537"}, [](M& m) { m.set_readers_per_rank(65537); }},
          {{"fingerprint has 129"}, [](M& m) { m.set_fingerprint(kLong); }},
          {{"job has 129"}, [](M& m) { m.set_job(kLong); }},
          {{"job_groups is 0"}, [](M& m) { m.set_job_groups(0); }},
          {{"stream in resume is empty"}, [](M& m) { (*m.mutable_resume())[""] = 0; }},
          {{"resume of stream 'x' is -2"}, [](M& m) { (*m.mutable_resume())["x"] = -2; }},
          {{"resume has 65", "64"},
           [](M& m) {
             for (int i = 0; i < 64; ++i) (*m.mutable_resume())[absl::StrCat(i)] = 0;
           }},
          {{"reader is empty"}, [](M& m) { m.clear_reader(); }},
          {{"cp_rank is 4", "at most 3"}, [](M& m) { m.set_cp_rank(4); }},
          {{"cp_rank is -1"}, [](M& m) { m.set_cp_rank(-1); }},
          {{"incarnation is -1"}, [](M& m) { m.set_incarnation(-1); }},
          {{"streams has 65", "64"},
           [](M& m) {
             for (int i = 0; i < 63; ++i) {
               *m.add_streams() = m.streams(1);
               m.mutable_streams(i + 2)->set_name(absl::StrCat(i));
             }
           }},
          {{"stream 'val' is named twice"}, [&](M& m) { first(m)->set_name("val"); }},
          {{"name of a stream is empty"}, [&](M& m) { first(m)->clear_name(); }},
          {{"'train'", "pass is -1"}, [&](M& m) { first(m)->set_pass(-1); }},
          {{"'train'", "next_step is -1"}, [&](M& m) { first(m)->set_next_step(-1); }},
          {{"'train'", "received is -1", "leave it out"},
           [&](M& m) { first(m)->set_received(-1); }},
          {{"received is 4611686018427387905"}, [&](M& m) { first(m)->set_received(kTooLarge); }},
          {{"'train'", "finished, but not closed"}, [&](M& m) { first(m)->set_finished(true); }},
          {{"max_step_bytes is 0"}, [&](M& m) { first(m)->clear_max_step_bytes(); }},
          {{"max_step_bytes is 1125899906842625"},
           [&](M& m) { first(m)->set_max_step_bytes((int64_t{1} << 50) + 1); }},
          {{},
           [](M& m) {
             m.mutable_streams(1)->set_finished(true);
             m.mutable_streams(1)->clear_max_step_bytes();
           }},
          {{"'train'", "num_loaders is -1"},
           [&](M& m) { first(m)->mutable_resume()->set_num_loaders(-1); }},
          {{"loader 0 is not one of 0"},
           [&](M& m) { first(m)->mutable_resume()->clear_num_loaders(); }},
          {{"loader 2 is not one of 2"}, [&](M& m) { state(m, 2).set_step(2); }},
          {{"loader -1 is not one of 2"}, [&](M& m) { state(m, -1).set_step(1); }},
          {{"step of loader 0 is 6", "at most 4"}, [&](M& m) { state(m, 0).set_step(6); }},
          {{"step of loader 0 is -2"}, [&](M& m) { state(m, 0).set_step(-2); }},
          {{"step 3 is not one of loader 0 of 2"}, [&](M& m) { state(m, 0).set_step(3); }},
          {{}, [&](M& m) { state(m, 0).set_state(std::string(65536, 's')); }},
          {{"state of loader 0 has 65537 bytes", "65536"},
           [&](M& m) { state(m, 0).set_state(std::string(65537, 's')); }},
      });
}

TEST(SessionChecks, OfAnOpenedSession) {
  using M = v1::OpenSessionReply;
  const auto example = FromText<M>(R"(instance: "i" streams { name: "s" floor: 1
      resume { num_loaders: 1 loaders { key: 0 value { step: 9 } } } } hand_off { mode: "inline" })");
  ExpectRefused<M>(example, [](const M& m) { return DecodeOpenedSession(m).status(); },
                   {
                       {{"instance is empty"}, [](M& m) { m.clear_instance(); }},
                       {{"generation is -1"}, [](M& m) { m.set_generation(-1); }},
                       {{"named twice"}, [](M& m) { *m.add_streams() = m.streams(0); }},
                       {{"'s'", "pass is -1"}, [](M& m) { m.mutable_streams(0)->set_pass(-1); }},
                       {{"'s'", "floor is -1"}, [](M& m) { m.mutable_streams(0)->set_floor(-1); }},
                       {{"loader 0 is not one of 0"},
                        [](M& m) { m.mutable_streams(0)->mutable_resume()->clear_num_loaders(); }},
                   });
}

TEST(SessionChecks, OfPullRequests) {
  using M = v1::PullRequest;
  const auto decode = [](const M& m) {
    return DecodePullRequest({AsBytes(m.SerializeAsString())}).status();
  };
  ExpectRefused<M>(FromText<M>(R"(session { group: "g" reader: "r" })"), decode,
                   {
                       {{"group"}, [](M& m) { m.mutable_session()->clear_group(); }},
                       {{"generation"}, [](M& m) { m.mutable_session()->set_generation(-1); }},
                       {{"reader"}, [](M& m) { m.mutable_session()->set_reader(kLong); }},
                       {{"incarnation"}, [](M& m) { m.mutable_session()->set_incarnation(-1); }},
                   });
  ExpectRefused<M>(
      FromText<M>(R"(want { id: 7 at { stream: "s" } })"), decode,
      {
          {{"want 7", "at.stream is empty"}, [](M& m) { m.mutable_want()->clear_at(); }},
          {{"at.pass is -1"}, [](M& m) { m.mutable_want()->mutable_at()->set_pass(-1); }},
          {{"at.step is -1"}, [](M& m) { m.mutable_want()->mutable_at()->set_step(-1); }},
          {{"at.step is 4611686018427387905"},
           [](M& m) { m.mutable_want()->mutable_at()->set_step(kTooLarge); }},
          {{"microbatch is -1"}, [](M& m) { m.mutable_want()->set_microbatch(-1); }},
          {{"microbatch is 65536"}, [](M& m) { m.mutable_want()->set_microbatch(65536); }},
          {{"timeout_ms is -1"}, [](M& m) { m.mutable_want()->set_timeout_ms(-1); }},
          {{"a key is empty"}, [](M& m) { m.mutable_want()->add_keys(""); }},
          {{"keys has 257", "256"},
           [](M& m) {
             for (int i = 0; i < 257; ++i) m.mutable_want()->add_keys("k");
           }},
      });
  ExpectRefused<M>(FromText<M>(R"(commit { at { stream: "s" } })"), decode,
                   {
                       {{"commit", "at.stream"}, [](M& m) { m.mutable_commit()->clear_at(); }},
                   });
  ExpectRefused<M>(
      FromText<M>(R"(pass_closed { stream: "s" })"), decode,
      {
          {{"pass_closed", "stream"}, [](M& m) { m.mutable_pass_closed()->clear_stream(); }},
          {{"pass is -1"}, [](M& m) { m.mutable_pass_closed()->set_pass(-1); }},
      });
}

TEST(SessionChecks, OfLoaderNotices) {
  using M = v1::LoaderNotice;
  const auto decode = [](const M& m) {
    return DecodeLoaderNotice({AsBytes(m.SerializeAsString())}).status();
  };
  ExpectRefused<M>(FromText<M>(R"(welcome { instance: "i" })"), decode,
                   {{{"instance"}, [](M& m) { m.mutable_welcome()->clear_instance(); }}});
  ExpectRefused<M>(
      FromText<M>(R"(position { stream: "s" from_step: 4 landed: 0 state { step: 3 } })"), decode,
      {
          {{"generation"}, [](M& m) { m.mutable_position()->set_generation(-1); }},
          {{"stream"}, [](M& m) { m.mutable_position()->clear_stream(); }},
          {{"pass"}, [](M& m) { m.mutable_position()->set_pass(-1); }},
          {{"epoch"}, [](M& m) { m.mutable_position()->set_epoch(-1); }},
          {{"from_step is -1"},
           [](M& m) {
             m.mutable_position()->set_from_step(-1);
             m.mutable_position()->clear_state();
           }},
          {{"landed is -1"}, [](M& m) { m.mutable_position()->set_landed(0, -1); }},
          {{"landed has 65537"},
           [](M& m) { m.mutable_position()->mutable_landed()->Resize(65537, 0); }},
          {{"step of the state is 4", "at most 3"},
           [](M& m) { m.mutable_position()->mutable_state()->set_step(4); }},
          {{},
           [](M& m) { m.mutable_position()->mutable_state()->set_state(std::string(65536, 's')); }},
          {{"state has 65537 bytes"},
           [](M& m) { m.mutable_position()->mutable_state()->set_state(std::string(65537, 's')); }},
          {{"released"}, [](M& m) { m.mutable_position()->set_released(-1); }},
      });
  ExpectRefused<M>(FromText<M>(R"(credit { at { stream: "s" } })"), decode,
                   {
                       {{"credit", "at.stream"}, [](M& m) { m.mutable_credit()->clear_at(); }},
                       {{"epoch"}, [](M& m) { m.mutable_credit()->set_epoch(-1); }},
                       {{"bytes is -1"}, [](M& m) { m.mutable_credit()->set_bytes(-1); }},
                   });
  ExpectRefused<M>(FromText<M>(R"(ack { at { stream: "s" } })"), decode,
                   {
                       {{"ack", "at.stream"}, [](M& m) { m.mutable_ack()->clear_at(); }},
                       {{"epoch"}, [](M& m) { m.mutable_ack()->set_epoch(-1); }},
                       {{"microbatch"}, [](M& m) { m.mutable_ack()->set_microbatch(-1); }},
                   });
  ExpectRefused<M>(FromText<M>(R"(released { stream: "s" })"), decode,
                   {
                       {{"stream"}, [](M& m) { m.mutable_released()->clear_stream(); }},
                       {{"pass"}, [](M& m) { m.mutable_released()->set_pass(-1); }},
                       {{"epoch"}, [](M& m) { m.mutable_released()->set_epoch(-1); }},
                       {{"before"}, [](M& m) { m.mutable_released()->set_before(-1); }},
                   });
  ExpectRefused<M>(FromText<M>(R"(pass_done { stream: "s" })"), decode,
                   {
                       {{"stream"}, [](M& m) { m.mutable_pass_done()->clear_stream(); }},
                       {{"pass"}, [](M& m) { m.mutable_pass_done()->set_pass(-1); }},
                   });
}

absl::Status DecodeFrame(const v1::BatchFrame& message) {
  return DecodeBatchFrame({AsBytes(message.SerializeAsString())}, FrameOf::kSession).status();
}

TEST(SessionChecks, OfAHello) {
  using M = v1::BatchFrame;
  const auto hello = [](M& m) { return m.mutable_hello(); };
  ExpectRefused<M>(
      FromText<M>(R"(hello { group: "g" loader: 1 num_loaders: 2 streams { name: "s" } })"),
      DecodeFrame,
      {
          {{"hello", "group"}, [&](M& m) { hello(m)->clear_group(); }},
          {{"num_loaders is 0"}, [&](M& m) { hello(m)->clear_num_loaders(); }},
          {{"num_loaders is 65537"}, [&](M& m) { hello(m)->set_num_loaders(65537); }},
          {{"loader is 2", "at most 1"}, [&](M& m) { hello(m)->set_loader(2); }},
          {{"loader is -1"}, [&](M& m) { hello(m)->set_loader(-1); }},
          {{"incarnation"}, [&](M& m) { hello(m)->set_incarnation(-1); }},
          {{"generation_seen"}, [&](M& m) { hello(m)->set_generation_seen(-1); }},
          {{},
           [&](M& m) {
             for (int i = 0; i < 63; ++i) hello(m)->add_streams()->set_name(absl::StrCat(i));
           }},
          {{"streams has 65", "64"},
           [&](M& m) {
             for (int i = 0; i < 64; ++i) hello(m)->add_streams()->set_name(absl::StrCat(i));
           }},
          {{"'s' is named twice"}, [&](M& m) { hello(m)->add_streams()->set_name("s"); }},
          {{"name of a stream is empty"}, [&](M& m) { hello(m)->add_streams(); }},
          {{"'s'", "pass"}, [&](M& m) { hello(m)->mutable_streams(0)->set_pass(-1); }},
          {{"'s'", "released"}, [&](M& m) { hello(m)->mutable_streams(0)->set_released(-1); }},
          {{"'s'", "held_from"}, [&](M& m) { hello(m)->mutable_streams(0)->set_held_from(-1); }},
      });
}

TEST(SessionChecks, OfAPushAndOfAnEnd) {
  using M = v1::BatchFrame;
  const auto push = [](M& m) { return m.mutable_push(); };
  ExpectRefused<M>(
      FromText<M>(R"(begin {} push { at { stream: "s" } last_microbatch: true state: "s" })"),
      DecodeFrame,
      {
          {{"push", "at.stream"}, [&](M& m) { push(m)->clear_at(); }},
          {{"epoch"}, [&](M& m) { push(m)->set_epoch(-1); }},
          {{"microbatch is -1"}, [&](M& m) { push(m)->set_microbatch(-1); }},
          {{"microbatch is 65536"}, [&](M& m) { push(m)->set_microbatch(65536); }},
          {{"num_microbatches is 0"}, [&](M& m) { push(m)->mutable_totals(); }},
          {{"num_label_tokens is -1"},
           [&](M& m) {
             push(m)->mutable_totals()->set_num_microbatches(1);
             push(m)->mutable_totals()->set_num_label_tokens(-1);
           }},
          {{"num_tokens_excl_tail_pad is -1"},
           [&](M& m) {
             push(m)->mutable_totals()->set_num_microbatches(1);
             push(m)->mutable_totals()->set_num_tokens_excl_tail_pad(-1);
           }},
          {{"totals stand with microbatch 1", "microbatch 0"},
           [&](M& m) {
             push(m)->set_microbatch(1);
             push(m)->mutable_totals()->set_num_microbatches(2);
           }},
          {{"state", "not the last one"}, [&](M& m) { push(m)->clear_last_microbatch(); }},
          {{"state", "not the last one"},
           [&](M& m) {
             push(m)->clear_last_microbatch();
             push(m)->set_state("");
           }},
          {{}, [&](M& m) { push(m)->set_state(std::string(65536, 's')); }},
          {{"state has 65537 bytes", "65536"},
           [&](M& m) { push(m)->set_state(std::string(65537, 's')); }},
      });
  ExpectRefused<M>(FromText<M>(R"(end { stream: "s" })"), DecodeFrame,
                   {
                       {{"end", "stream"}, [](M& m) { m.mutable_end()->clear_stream(); }},
                       {{"pass"}, [](M& m) { m.mutable_end()->set_pass(-1); }},
                       {{"epoch"}, [](M& m) { m.mutable_end()->set_epoch(-1); }},
                       {{"end_step"}, [](M& m) { m.mutable_end()->set_end_step(-1); }},
                   });
}

TEST(SessionChecks, OfADelivery) {
  using M = v1::ShardFrame;
  const auto decode = [](const M& m) {
    return DecodeShardFrame({AsBytes(m.SerializeAsString())}, FrameOf::kSession).status();
  };
  const auto delivery = [](M& m) { return m.mutable_delivery(); };
  ExpectRefused<M>(FromText<M>(R"(delivery { at { stream: "s" } owner: 1 num_loaders: 2 })"),
                   decode,
                   {
                       {{"delivery", "at.stream"}, [&](M& m) { delivery(m)->clear_at(); }},
                       {{"microbatch is -1"}, [&](M& m) { delivery(m)->set_microbatch(-1); }},
                       {{"num_microbatches is 0"}, [&](M& m) { delivery(m)->mutable_totals(); }},
                       {{"num_loaders is 0"}, [&](M& m) { delivery(m)->clear_num_loaders(); }},
                       {{"owner is 2"}, [&](M& m) { delivery(m)->set_owner(2); }},
                       {{}, [&](M& m) { delivery(m)->set_owner_state(std::string(65536, 's')); }},
                       {{"owner_state has 65537 bytes"},
                        [&](M& m) { delivery(m)->set_owner_state(std::string(65537, 's')); }},
                   });
}

}  // namespace
}  // namespace cpshard
