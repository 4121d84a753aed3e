#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "proto/session_codec.h"
#include "tests/fuzz/seeds.h"

namespace cpshard {
namespace {

const StepAddress kAt = {"train", 1, 7};

OpenSession Open() {
  OpenSession open;
  open.group = "dp0";
  open.generation = 3;
  open.cp_size = 4;
  open.options = Options::FromJson(R"({"round_robin": {}, "padding_token_id": 7})")->ToBytes();
  open.resume = {{"train", 11}};
  open.reader = "r";
  open.cp_rank = 2;
  open.streams = {{"train", 1, 12, 14, false, false, 4096, ResumeState{2, {{0, {10, "s"}}}}},
                  {"val", 6, 0, -1, true, true, 0, std::nullopt}};
  return open;
}

GroupView View() {
  GroupView view{"dp0", 3, true, false, "", 2, {}, {}};
  view.readers = {{"r", 1, 7, true, true, false, 1.5, {{"train", 1, true, 8, 9}}, 3}};
  view.streams.resize(1);
  view.streams[0].stream = "train";
  view.streams[0].floor = 3;
  view.streams[0].loaders = {{1, 5, true, true, 0.25, 10}};
  return view;
}

}  // namespace

void WriteSessionMessages(const Seeds& seeds) {
  const auto write = [&](const char* name, char kind, const std::string& message) {
    seeds.Write("session_message", name, kind + message);
  };
  v1::OpenSessionRequest open;
  if (EncodeOpenSession(Open(), &open).ok()) write("open", 'o', open.SerializeAsString());
  v1::OpenSessionReply opened;
  EncodeOpenedSession({"i", 3, {{"train", 1, 6, ResumeState{1, {{0, {11, "s"}}}}}}}, &opened);
  write("opened", 'O', opened.SerializeAsString());
  v1::CloseSessionRequest close;
  EncodeCloseSession({"dp0", 3, "r", 2}, &close);
  write("close", 'c', close.SerializeAsString());
  v1::DumpGroupReply view;
  EncodeGroupView(View(), &view);
  write("view", 'v', view.SerializeAsString());

  write("session", 'p', EncodePullRequest(SessionName{"dp0", 3, "r", 2}));
  write("want", 'p', EncodePullRequest(Want{9, kAt, 1, 250, {"labels"}}));
  write("want_rest", 'p', EncodePullRequest(Want{10, kAt, {}, 250, {}, 2}));
  write("commit", 'p', EncodePullRequest(Commit{kAt, StallTime{1, 2, 3, 4}, 50}));
  write("pass_closed", 'p', EncodePullRequest(PassClosed{"val", 2, true}));

  write("welcome", 'n', EncodeLoaderNotice(Welcome{"i"}));
  write("position", 'n',
        EncodeLoaderNotice(Position{3, "train", 1, 2, 8, {0, 2}, LoaderState{6, "s"}, 5}));
  write("credit", 'n', EncodeLoaderNotice(LoaderCredit{kAt, 2, 4096}));
  write("ack", 'n', EncodeLoaderNotice(AckMessage{kAt, 2, 1, absl::DataLossError("frame 3")}));
  write("released", 'n', EncodeLoaderNotice(Released{"train", 1, 2, 6}));
  write("pass_done", 'n', EncodeLoaderNotice(PassDone{"val", 3, true}));
  write("drain", 'n', EncodeLoaderNotice(DrainMessage()));

  // Frames; the first byte says how the target cuts them.
  BatchFrame hello, end, push;
  hello.hello = LoaderHello{"dp0", 1, 2, 5, 3, {{"train", 1, 8, 9}}};
  end.end = EndOfStream{"train", 1, 2, 40};
  push.push = PushHead{kAt, 2, 0, true, StepTotals{1, 30, 40}, 5, "state"};
  seeds.Write("batch_frame", "hello", "\3" + EncodeBatchFrame(hello, "", 0));
  seeds.Write("batch_frame", "end", "\2" + EncodeBatchFrame(end, "", 0));
  v1::BatchBegin begin;
  begin.set_total_bytes(0);
  begin.add_entries()->set_name("note");
  begin.mutable_entries(0)->mutable_scalar()->set_int_value(3);
  seeds.Write("batch_frame", "push", "\4" + EncodeBatchFrame(push, begin.SerializeAsString(), 0));
  ShardFrame delivery;
  delivery.batch_id = 9;
  delivery.delivery = DeliveryHead{9, kAt, 2, true, StepTotals{3, 30, 40}, 5, 1, 2, "state"};
  seeds.Write("shard_frame", "delivery", "\5" + EncodeShardFrame(delivery, "", 0));
}

}  // namespace cpshard
