// Bad input, row by row: the code, the reason, a text that names what is wrong and the way out; and
// no other group notices.
#include <gtest/gtest.h>

#include <functional>

#include "proto/error_details.h"
#include "tests/server/session/delivery_peers.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;
using Code = absl::StatusCode;

// Group g of two ranks and two loaders, which does wrong; beside it group other, which does not.
struct Scene {
  Scene() {
    other.Start();
    Exchange(0);
    group.Start();
    group.PushSteps(0, 4);
    group.Consume(0, 3);  // the window is [2, 6); 2 and 3 are there
  }

  // Everything that a group does.
  void Exchange(int64_t step) {
    const uint64_t waits = other.readers[1].Ask(step);
    other.PushSteps(step, step + 2);
    EXPECT_THAT(other.readers[1].AnswerTo(waits), Optional(IsOkStatus()));
    other.Consume(step, step + 2);
  }
  std::vector<std::string> WhatOtherWasTold() {
    std::vector<std::string> lines;
    const auto add = [&](const Mailbox& box) {
      lines.insert(lines.end(), box.lines.begin(), box.lines.end());
    };
    for (ScriptedReader& reader : other.readers) add(reader.box());
    for (ScriptedLoader& loader : other.loaders) add(loader.box());
    return lines;
  }

  absl::Status Push(const Item& item) {
    const auto ack = group.loaders[item.step % 2].Push(item);
    return ack ? *ack : absl::UnknownError("it was dropped");
  }
  absl::Status Get(int64_t step, const std::string& stream = kTrain) {
    const auto answer = group.readers[0].Get(step, stream);
    return answer ? *answer : absl::UnknownError("it waits");
  }
  // Of a second session beside the group's, or in place of it.
  absl::Status Open(const std::function<void(OpenSession&)>& change) {
    OpenSession open = group.readers[1].open;
    StreamOf(open).next_step = 3;
    StreamOf(open).received = 2;
    change(open);
    return world.delivery.Open(open, world.now).status();
  }
  absl::Status Hello(const std::function<void(LoaderHello&)>& change) {
    LoaderHello hello = group.loaders[0].hello;
    change(hello);
    return ScriptedLoader(world, hello).Hello();
  }

  DeliveryWorld world;
  ScriptedGroup other{world, 2, 2, {kTrain}, "other"};
  ScriptedGroup group{world, 2, 2};
};

struct Row {
  const char* name;
  std::function<absl::Status(Scene&)> does;
  Code code;
  std::string reason;             // empty: none is promised
  std::vector<std::string> text;  // all of it is said
  bool retry = false;             // with RetryInfo
  bool fails_generation = false;
};

std::vector<Row> Rows() {
  return {
      {"a second session with other options",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.options = "others"; }); },
       Code::kFailedPrecondition,
       "TERMS_DIFFER",
       {"group g", "options", "others", "generation 2"}},
      {"a second launcher",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.attempt = "b"; }); },
       Code::kFailedPrecondition,
       "TERMS_DIFFER",
       {"attempt", "generation 2"}},
      {"another cp_size",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.cp_size = 4; }); },
       Code::kFailedPrecondition,
       "TERMS_DIFFER",
       {"cp_size", "4", "2"}},
      {"a rank beyond cp_size",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.cp_rank = 2; }); },
       Code::kInvalidArgument,
       "",
       {"cp_rank 2", "cp_size 2"}},
      {"a reader that changes its rank",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.cp_rank = 0; }); },
       Code::kFailedPrecondition,
       "TERMS_DIFFER",
       {"r1", "rank"}},
      {"another checkpoint",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.resume[kTrain] = 2; }); },
       Code::kFailedPrecondition,
       "TERMS_DIFFER",
       {"resume", "train", "2", "0"}},
      {"a data stream that the generation does not have",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.streams[0].name = kVal; }); },
       Code::kNotFound,
       "UNKNOWN_STREAM",
       {"group g", "val"}},
      {"a stale generation",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.generation = 0; }); },
       Code::kInvalidArgument,
       "",
       {"generation 0"}},
      {"a reader behind the floor",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { StreamOf(o).next_step = 1; }); },
       Code::kAborted,
       "ZOMBIE",
       {"r1", "train/1", "before 2", "checkpoint"}},
      {"a lower incarnation of a reader",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.incarnation = 0; }); },
       Code::kAborted,
       "STALE_INCARNATION",
       {"r1", "group g", "1", "end"}},
      {"more memory than there is",
       [](Scene& scene) {
         return scene.Open([](OpenSession& o) {
           o.generation = 2;
           StreamOf(o).max_step_bytes = 5'000;
         });
       },
       Code::kResourceExhausted,
       "BUDGET",
       {"group g", "15000", "10000", "max_step_bytes"}},
      {"a resume state of another loader than it says",
       [](Scene& scene) {
         return scene.Open([](OpenSession& o) {
           StreamOf(o).resume = ResumeState{2, {{0, {1, "s1"}}}};
         });
       },
       Code::kInvalidArgument,
       "",
       {"train", "loader 0 of 2", "step 1"}},

      {"two values of L",
       [](Scene& scene) { return scene.Hello([](LoaderHello& h) { h.num_loaders = 3; }); },
       Code::kFailedPrecondition,
       "LOADERS_DIFFER",
       {"train", "3", "2", "same number"}},
      {"a loader beyond L",
       [](Scene& scene) { return scene.Hello([](LoaderHello& h) { h.loader = 2; }); },
       Code::kInvalidArgument,
       "",
       {"loader 2 of 2"}},
      {"a lower incarnation of a loader",
       [](Scene& scene) { return scene.Hello([](LoaderHello& h) { h.incarnation = 0; }); },
       Code::kAborted,
       "STALE_INCARNATION",
       {"loader 0", "train", "end"}},
      {"more loaders than are allowed",
       [](Scene& scene) {
         return scene.Hello([](LoaderHello& h) {
           h.group = "new";
           h.num_loaders = 9;
         });
       },
       Code::kInvalidArgument,
       "",
       {"loader 0 of 9", "8", "max_loaders", "a loader push"}},
      {"more data streams than a hello may name",
       [](Scene& scene) {
         return scene.Hello([](LoaderHello& h) { h.streams.resize(5, h.streams[0]); });
       },
       Code::kInvalidArgument,
       "",
       {"5 data streams", "4", "max_data_streams", "another group"}},
      {"more data streams than a group may have",
       [](Scene& scene) {
         return scene.Open([](OpenSession& o) { o.streams.resize(5, o.streams[0]); });
       },
       Code::kInvalidArgument,
       "",
       {"5 data streams", "4", "max_data_streams", "another group"}},
      {"more readers than a group may have",
       [](Scene& scene) { return scene.Open([](OpenSession& o) { o.cp_size = 17; }); },
       Code::kInvalidArgument,
       "",
       {"cp_size 17", "16", "max_readers"}},

      {"a request for an unknown data stream",
       [](Scene& scene) { return scene.Get(0, "test"); },
       Code::kNotFound,
       "UNKNOWN_STREAM",
       {"group g", "test"}},
      {"a request below the floor",
       [](Scene& scene) { return scene.Get(1); },
       Code::kOutOfRange,
       "BELOW_FLOOR",
       {"train/1", "2", "generation"}},
      {"a request beyond the end",
       [](Scene& scene) {
         for (ScriptedLoader& loader : scene.group.loaders) {
           EXPECT_THAT(loader.End(5), IsOkStatus());
         }
         return scene.Get(5);
       },
       Code::kOutOfRange,
       "END_OF_STREAM",
       {"train", "step 5"}},
      {"more requests than may wait",
       [](Scene& scene) {
         for (int i = 0; i < 8; ++i) scene.group.readers[0].Ask(4);
         return scene.Get(4);
       },
       Code::kResourceExhausted,
       "TOO_MANY",
       {"train/4", "8", "max_wants"},
       /*retry=*/true},
      {"a commit ahead of delivery",
       [](Scene& scene) { return scene.group.readers[0].Commit(3); },
       Code::kFailedPrecondition,
       "AHEAD_OF_DELIVERY",
       {"train/3", "is 2"}},

      {"a push for an unknown data stream",
       [](Scene& scene) {
         return scene.Push({.step = 4, .stream = "trian", .pass = 0, .epoch = 1});
       },
       Code::kNotFound,
       "UNKNOWN_STREAM",
       {"group g", "trian"}},
      {"an end of an unknown data stream",
       [](Scene& scene) {
         const PeerId peer = scene.group.loaders[0].peer;
         return scene.world.delivery.End(peer, {"trian", 0, 1, 9}, scene.world.now);
       },
       Code::kNotFound,
       "UNKNOWN_STREAM",
       {"group g", "trian"}},
      {"a push that lies beyond the window",
       [](Scene& scene) { return scene.Push({.step = 6}); },
       Code::kResourceExhausted,
       "BEYOND_WINDOW",
       {"train/6", "step 6", "credit"},
       /*retry=*/true},
      {"a push of a step of another loader",
       [](Scene& scene) { return *scene.group.loaders[0].Push({.step = 5}); },
       Code::kInvalidArgument,
       "",
       {"train/5", "loader 0", "loader 1"}},
      {"a push larger than its step may be",
       [](Scene& scene) { return scene.Push({.step = 4, .bytes = 101}); },
       Code::kInvalidArgument,
       "",
       {"train/4", "101", "100", "max_step_bytes"}},
      {"microbatches that are larger together",
       [](Scene& scene) {
         EXPECT_THAT(scene.Push({.step = 4, .last = false, .bytes = 60}), IsOkStatus());
         return scene.Push({.step = 4, .microbatch = 1, .bytes = 60});
       },
       Code::kInvalidArgument,
       "",
       {"train/4", "microbatch 1", "60", "100"}},
      {"more microbatches than a step may have",
       [](Scene& scene) { return scene.Push({.step = 4, .microbatch = 8}); },
       Code::kInvalidArgument,
       "",
       {"train/4", "8", "max_microbatches", "larger"}},
      {"a microbatch behind the last one",
       [](Scene& scene) {
         EXPECT_THAT(scene.Push({.step = 4, .microbatch = 1, .bytes = 10}), IsOkStatus());
         return scene.Push({.step = 4, .microbatch = 2, .bytes = 10});
       },
       Code::kInvalidArgument,
       "",
       {"train/4", "microbatch 2", "2 microbatches"}},
      {"a state that is too large",
       [](Scene& scene) { return scene.Push({.step = 4, .state = std::string(65'537, 's')}); },
       Code::kInvalidArgument,
       "",
       {"train/4", "65537", "65536"}},
      {"a push beyond a declared end",
       [](Scene& scene) {
         EXPECT_THAT(scene.group.loaders[0].End(4), IsOkStatus());
         return scene.Push({.step = 4});
       },
       Code::kFailedPrecondition,
       "END_OF_STREAM",
       {"train/4", "step 4"}},
      {"a damaged batch",
       [](Scene& scene) {
         Item item{.step = 4, .digest = 1};
         const uint64_t push = scene.group.loaders[0].Begin(item);
         item.digest = 2;
         scene.group.loaders[0].Finish(push, item);
         return *scene.group.loaders[0].last_ack();
       },
       Code::kDataLoss,
       "",
       {"train/4", "again"}},

      {"a step that comes again and is another one",
       [](Scene& scene) { return scene.Push({.step = 3, .digest = 17}); },
       Code::kFailedPrecondition,
       "DIGEST_CONFLICT",
       {"train/3", "17", "generation"},
       false,
       true},
      {"two end-of-stream values",
       [](Scene& scene) {
         EXPECT_THAT(scene.group.loaders[0].End(5), IsOkStatus());
         return scene.group.loaders[1].End(6);
       },
       Code::kFailedPrecondition,
       "ENDS_DIFFER",
       {"train", "5", "6", "loader 0", "loader 1"},
       false,
       true},
      {"an end before what is there",
       [](Scene& scene) { return scene.group.loaders[0].End(3); },
       Code::kFailedPrecondition,
       "END_OF_STREAM",
       {"train/3", "step 3"},
       false,
       true},
      {"totals that do not hold",
       [](Scene& scene) {
         return scene.Push({.step = 4, .totals = StepTotals{1, 8, 9}});
       },
       Code::kFailedPrecondition,
       "TOTALS_DIFFER",
       {"train/4", "num_label_tokens", "8", "7"},
       false,
       true},
  };
}

TEST(DeliveryRefusals, NameCodeReasonAndTheWayOut) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.name);
    Scene scene;
    const absl::Status refused = row.does(scene);
    scene.world.Deliver();
    EXPECT_EQ(refused.code(), row.code) << refused;
    const auto details = DetailsOf(refused);
    if (!row.reason.empty()) {
      ASSERT_TRUE(details.has_value()) << refused;
      EXPECT_EQ(details->reason, row.reason);
    }
    for (const std::string& text : row.text) {
      EXPECT_THAT(std::string(refused.message()), HasSubstr(text));
    }
    EXPECT_EQ(details && details->retry_after, row.retry);
    EXPECT_EQ(scene.group.View().failure.empty(), !row.fails_generation);
    EXPECT_EQ(scene.world.alerts.size(), row.fails_generation ? 1u : 0u);
  }
}

TEST(DeliveryRefusals, LeaveTheirOwnGroupAsItWasUnlessTheGenerationFails) {
  for (const Row& row : Rows()) {
    if (row.fails_generation) continue;
    SCOPED_TRACE(row.name);
    Scene scene;
    (void)row.does(scene);
    scene.world.Deliver();
    const auto answer = scene.group.readers[1].Get(3);
    EXPECT_THAT(answer, Optional(IsOkStatus()));
    EXPECT_THAT(scene.group.readers[1].Commit(3), IsOkStatus());
    EXPECT_EQ(scene.group.View().generation, 1);
  }
}

TEST(DeliveryRefusals, DisturbNoOtherGroup) {
  Scene undisturbed;
  undisturbed.Exchange(2);
  const std::vector<std::string> expected = undisturbed.WhatOtherWasTold();
  ASSERT_GT(expected.size(), 20u);
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.name);
    Scene scene;
    (void)row.does(scene);
    scene.world.Deliver();
    scene.Exchange(2);
    EXPECT_EQ(scene.WhatOtherWasTold(), expected);
  }
}

TEST(DeliveryRefusals, ManyGroupsAreRefusedByNumber) {
  DeliveryWorld world;
  std::deque<ScriptedGroup> groups;
  for (int i = 0; i < 4; ++i) {
    groups.emplace_back(world, 1, 1, std::vector<std::string>{kTrain}, "h" + std::to_string(i));
    groups.back().Start();
  }
  ScriptedGroup more(world, 1, 1);
  const absl::Status refused = more.readers[0].Open().status();
  EXPECT_THAT(refused, Refused(Code::kResourceExhausted, "TOO_MANY"));
  EXPECT_TRUE(DetailsOf(refused)->retry_after.has_value());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("max_groups"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4"));
  // One that has ended makes room.
  groups[2].loaders[0].Disconnect();
  groups[2].readers[0].Close();
  groups[2].readers[0].Disconnect();
  EXPECT_TRUE(more.readers[0].Open().ok());
}

TEST(DeliveryRefusals, APushForAnUnknownDataStreamIsAnsweredBeforeAnybodyHasOpened) {
  DeliveryWorld world;
  ScriptedLoader loader(world, HelloOf(0, 1));
  ASSERT_THAT(loader.Hello(), IsOkStatus());
  const auto ack = loader.Push({.stream = "trian", .pass = 0, .epoch = 1});
  ASSERT_TRUE(ack.has_value());
  EXPECT_THAT(*ack, Refused(Code::kNotFound, "UNKNOWN_STREAM"));
  EXPECT_EQ(loader.last_ack()->message().find("opened"), std::string::npos) << "nobody has";
  EXPECT_EQ(world.delivery.counters().refused, 1);
}

TEST(DeliveryRefusals, AServerWithoutMemoryForSessionsTakesNone) {
  DeliveryOptions options = SmallOptions();
  options.budget_bytes = 0;
  DeliveryWorld world(options);
  ScriptedReader reader(world, OpenOf(0, 1));
  ScriptedLoader loader(world, HelloOf(0, 1));
  for (const absl::Status& refused : {reader.Open().status(), loader.Hello()}) {
    EXPECT_THAT(refused, Refused(Code::kFailedPrecondition, "NO_SESSIONS"));
    EXPECT_FALSE(DetailsOf(refused)->retry_after.has_value());
    EXPECT_THAT(std::string(refused.message()), HasSubstr("session_bytes"));
  }
  EXPECT_THAT(world.delivery.Views(world.now), testing::IsEmpty());
  EXPECT_EQ(world.delivery.counters().loaders, 0);
}

TEST(DeliveryRefusals, CallsThatNobodyKnowsAreIgnored) {
  Scene scene;
  scene.group.readers[0].Disconnect();
  scene.group.loaders[0].Disconnect();
  const std::vector<std::string> before = scene.WhatOtherWasTold();
  Delivery& delivery = scene.world.delivery;
  const StepAddress at{kTrain, 0, 3};
  for (const PeerId peer :
       {PeerId{4711}, scene.group.readers[0].peer, scene.group.loaders[0].peer}) {
    delivery.Want(peer, {.id = 1, .at = at, .microbatch = {}, .timeout_ms = {}, .keys = {}},
                  scene.world.now);
    EXPECT_THAT(delivery.Commit(peer, {at}, scene.world.now), IsOkStatus());
    EXPECT_THAT(delivery.ClosePass(peer, {kTrain, 0, true}, scene.world.now), IsOkStatus());
    delivery.Sent(peer, at, 0, scene.world.now);
    EXPECT_EQ(delivery.BeginPush(peer, PushHead{at}, 10, scene.world.now).push, 0u);
    EXPECT_THAT(delivery.End(peer, {kTrain, 0, 1, 4}, scene.world.now), IsOkStatus());
    delivery.Disconnect(peer, scene.world.now);
  }
  delivery.EndPush(4711, absl::UnknownError("of nobody"), scene.world.now);
  EXPECT_THAT(delivery.TakeOutputs(), testing::IsEmpty());
  EXPECT_EQ(scene.WhatOtherWasTold(), before);
  EXPECT_EQ(scene.group.View().streams.at(0).end_step, std::nullopt);
  EXPECT_EQ(scene.group.View().readers.at(0).streams.at(0).pass, 0);
}

TEST(DeliveryRefusals, WhatIsRefusedAtOpenIsNotRemembered) {
  DeliveryWorld world;
  ScriptedReader reader(world, OpenOf(0, 1));
  const OpenSession good = reader.open;
  const std::function<void(OpenSession&)> wrongs[] = {
      [](OpenSession& open) { open.cp_rank = 1; },
      [](OpenSession& open) { open.generation = 0; },
      [](OpenSession& open) { open.cp_size = 17; },
      [](OpenSession& open) { open.readers_per_rank = 17; },
      [](OpenSession& open) { open.job_groups = 0; },
      [](OpenSession& open) { open.streams.clear(); },
      [](OpenSession& open) { open.streams.resize(5, open.streams[0]); },
      [](OpenSession& open) { StreamOf(open).max_step_bytes = 0; },
      [](OpenSession& open) {
        StreamOf(open).resume = ResumeState{1, {{0, {3, "s"}}}};
      },
  };
  for (const auto& wrong : wrongs) {
    reader.open = good;
    wrong(reader.open);
    const absl::Status refused = reader.Open().status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused;
    EXPECT_EQ(world.delivery.View("g", world.now).status().code(), Code::kNotFound);
  }
  EXPECT_EQ(world.delivery.counters().generations, 0);
  reader.open = good;
  EXPECT_TRUE(reader.Open().ok());
}

}  // namespace
}  // namespace cpshard
