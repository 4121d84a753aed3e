#include "tests/server/session/delivery_peers.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/error_details.h"

namespace cpshard {
namespace {

std::string Text(const StepAddress& at) {
  return absl::StrCat(at.stream, "#", at.pass, "/", at.step);
}

struct Sorter {
  Mailbox& box;

  template <typename... Parts>
  void Line(Parts... parts) {
    box.lines.push_back(absl::StrCat(parts...));
  }
  void operator()(DeliverShard& out) {
    Line("shard ", out.head.id, " ", Text(out.head.at), " mb ", out.head.microbatch, " last ",
         out.head.last, " digest ", out.head.digest, " rank ", out.cp_rank);
    box.shards.push_back(std::move(out));
  }
  void operator()(RequestStatus& out) {
    Line("answer ", out.id, " ", out.status.ToString());
    box.answers.push_back(std::move(out));
  }
  void operator()(Position& out) {
    Line("position ", out.generation, " ", out.stream, "#", out.pass, " epoch ", out.epoch,
         " from ", out.from_step, " landed ", absl::StrJoin(out.landed, ","), " state ",
         out.state ? out.state->state : "-", " released ", out.released);
    box.positions.push_back(std::move(out));
  }
  void operator()(LoaderCredit& out) {
    Line("credit ", Text(out.at), " epoch ", out.epoch, " bytes ", out.bytes);
    box.credits.push_back(std::move(out));
  }
  void operator()(PushAck& out) {
    Line("ack ", Text(out.at), " mb ", out.microbatch, " ", out.status.ToString());
    box.acks.push_back(std::move(out));
  }
  void operator()(Released& out) {
    Line("released ", out.stream, "#", out.pass, " before ", out.before);
    box.released.push_back(std::move(out));
  }
  void operator()(PassDone& out) {
    Line("done ", out.stream, "#", out.pass, " finished ", out.finished);
    box.dones.push_back(std::move(out));
  }
  void operator()(DrainNotice&) {
    Line("drain");
    ++box.drains;
  }
  void operator()(EndCall& out) {
    Line("end ", out.status.ToString());
    box.ends.push_back(std::move(out.status));
  }
};

class Batch : public Payload {};

}  // namespace

DeliveryOptions SmallOptions() {
  DeliveryOptions options;
  options.instance = "first";
  options.budget_bytes = 10'000;
  options.replay_steps = 1;
  options.ahead_steps = 3;
  options.max_groups = 4;
  options.max_streams = 4;
  options.max_ranks = 16;
  options.max_loaders = 8;
  options.max_microbatches = 8;
  options.max_wants = 8;
  options.rank_timeout = absl::Seconds(60);
  return options;
}

// --- world

DeliveryWorld::DeliveryWorld(DeliveryOptions options_in)
    : options(std::move(options_in)), delivery(options) {}

void DeliveryWorld::Deliver() {
  for (Output& output : delivery.TakeOutputs()) std::visit(Sorter{boxes_[output.to]}, output.what);
  for (Alert& alert : delivery.TakeAlerts()) alerts.push_back(std::move(alert));
}

void DeliveryWorld::Disconnect(PeerId peer) {
  delivery.Disconnect(peer, now);
  Deliver();
}

void DeliveryWorld::Pass(absl::Duration time) {
  now += time;
  delivery.Tick(now);
  Deliver();
}

// --- readers

OpenSession OpenOf(int64_t rank, int64_t cp_size, const std::vector<std::string>& streams) {
  OpenSession open;
  open.group = "g";
  open.generation = 1;
  open.attempt = "a";
  open.cp_size = cp_size;
  open.options = "options";
  open.fingerprint = "data";
  open.reader = absl::StrCat("r", rank);
  open.cp_rank = rank;
  open.incarnation = 1;
  for (const std::string& name : streams) {
    ReaderStream& stream = open.streams.emplace_back();
    stream.name = name;
    stream.max_step_bytes = kStepBytes;
  }
  return open;
}

ReaderStream& StreamOf(OpenSession& open, const std::string& stream) {
  for (ReaderStream& of : open.streams) {
    if (of.name == stream) return of;
  }
  ADD_FAILURE() << "no data stream " << stream;
  return open.streams.front();
}

absl::StatusOr<OpenedSession> ScriptedReader::Open() {
  auto opened = world_.delivery.Open(open, world_.now);
  world_.Deliver();
  return opened;
}

absl::Status ScriptedReader::Attach() {
  peer = world_.Connect();
  sent_ = 0;
  const absl::Status status = world_.delivery.Attach(peer, name(), /*lasting=*/true, world_.now);
  world_.Deliver();
  return status;
}

void ScriptedReader::Start() {
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  const absl::Status attached = Attach();
  ASSERT_TRUE(attached.ok()) << attached;
}

uint64_t ScriptedReader::Ask(Want want) {
  want.id = next_id_++;
  world_.delivery.Want(peer, want, world_.now);
  world_.Deliver();
  return want.id;
}

uint64_t ScriptedReader::Ask(int64_t step, const std::string& stream, int64_t pass) {
  Want want;
  want.at = {stream, pass, step};
  return Ask(std::move(want));
}

std::optional<absl::Status> ScriptedReader::AnswerTo(uint64_t id) const {
  for (const RequestStatus& answer : box().answers) {
    if (answer.id == id) return answer.status;
  }
  for (const DeliverShard& shard : box().shards) {
    if (shard.head.id == id && shard.head.last) return absl::OkStatus();
  }
  return std::nullopt;
}

absl::Status ScriptedReader::Commit(int64_t step, const std::string& stream, int64_t pass) {
  const absl::Status status =
      world_.delivery.Commit(peer, cpshard::Commit{{stream, pass, step}}, world_.now);
  world_.Deliver();
  return status;
}

absl::Status ScriptedReader::ClosePass(int64_t pass, bool finished, const std::string& stream) {
  const absl::Status status =
      world_.delivery.ClosePass(peer, PassClosed{stream, pass, finished}, world_.now);
  world_.Deliver();
  return status;
}

void ScriptedReader::SentAll() {
  for (; sent_ < box().shards.size(); ++sent_) {
    const DeliveryHead head = box().shards[sent_].head;
    world_.delivery.Sent(peer, head.at, head.microbatch, world_.now);
    world_.Deliver();
  }
}

PeerId ScriptedReader::Close() {
  const PeerId call = world_.Connect();
  world_.delivery.Close(call, name(), world_.now);
  world_.Deliver();
  return call;
}

std::optional<absl::Status> ScriptedReader::EndOf(PeerId call) const {
  const auto& ends = world_.BoxOf(call).ends;
  if (ends.empty()) return std::nullopt;
  return ends.front();
}

std::vector<int64_t> ScriptedReader::steps() const {
  std::vector<int64_t> steps;
  for (const DeliverShard& shard : box().shards) steps.push_back(shard.head.at.step);
  return steps;
}

// --- loaders

LoaderHello HelloOf(int64_t loader, int64_t num_loaders, const std::vector<std::string>& streams) {
  LoaderHello hello;
  hello.group = "g";
  hello.loader = loader;
  hello.num_loaders = num_loaders;
  hello.incarnation = 1;
  for (const std::string& name : streams) hello.streams.push_back({name, 0, 0, 0});
  return hello;
}

uint64_t DigestOf(const Item& item) {
  return item.digest.value_or(
      std::hash<std::string>()(absl::StrCat(item.stream, "/", item.step, "/", item.microbatch)));
}

absl::Status ScriptedLoader::Hello() {
  peer = world_.Connect();
  const absl::Status status = world_.delivery.Hello(peer, hello, world_.now);
  world_.Deliver();
  return status;
}

void ScriptedLoader::Start() {
  const absl::Status status = Hello();
  ASSERT_TRUE(status.ok()) << status;
}

const Position& ScriptedLoader::position(const std::string& stream) const {
  const auto& positions = box().positions;
  for (auto it = positions.rbegin(); it != positions.rend(); ++it) {
    if (it->stream == stream) return *it;
  }
  static const Position none;
  ADD_FAILURE() << "no position of " << stream;
  return none;
}

std::vector<int64_t> ScriptedLoader::credits(const std::string& stream) const {
  std::vector<int64_t> steps;
  for (const LoaderCredit& credit : box().credits) {
    if (credit.at.stream == stream) steps.push_back(credit.at.step);
  }
  return steps;
}

std::optional<absl::Status> ScriptedLoader::last_ack() const {
  if (box().acks.empty()) return std::nullopt;
  return box().acks.back().status;
}

PushHead ScriptedLoader::HeadOf(const Item& item) const {
  PushHead head;
  const bool placed = item.pass && item.epoch;
  head.at = {item.stream, placed ? *item.pass : item.pass.value_or(position(item.stream).pass),
             item.step};
  head.epoch = placed ? *item.epoch : item.epoch.value_or(position(item.stream).epoch);
  head.microbatch = item.microbatch;
  head.last_microbatch = item.last;
  head.totals = item.totals;
  if (item.send_digest) head.digest = DigestOf(item);
  head.state = item.state;
  return head;
}

uint64_t ScriptedLoader::Begin(const Item& item) {
  const PushVerdict verdict = world_.delivery.BeginPush(peer, HeadOf(item), item.bytes, world_.now);
  world_.Deliver();
  return verdict.push;
}

void ScriptedLoader::Finish(uint64_t push, const Item& item) {
  LandedBatch batch;
  batch.payload = std::make_shared<Batch>();
  batch.bytes = item.bytes;
  batch.digest = DigestOf(item);
  batch.num_label_tokens = item.num_label_tokens;
  batch.num_tokens_excl_tail_pad = item.num_tokens_excl_tail_pad;
  batch.row_need = item.row_need;
  world_.delivery.EndPush(push, std::move(batch), world_.now);
  world_.Deliver();
}

void ScriptedLoader::Break(uint64_t push, absl::Status why) {
  world_.delivery.EndPush(push, std::move(why), world_.now);
  world_.Deliver();
}

std::optional<absl::Status> ScriptedLoader::Push(const Item& item) {
  const size_t acks = box().acks.size();
  if (const uint64_t push = Begin(item); push != 0) Finish(push, item);
  if (box().acks.size() == acks) return std::nullopt;
  return box().acks.back().status;
}

void ScriptedLoader::PushSteps(int64_t step, int64_t end, const std::string& stream) {
  for (; step < end; ++step) {
    if (step % hello.num_loaders != hello.loader) continue;
    Item item{step};
    item.stream = stream;
    const auto ack = Push(item);
    ASSERT_TRUE(ack.has_value()) << stream << "/" << step << " was dropped";
    ASSERT_TRUE(ack->ok()) << *ack;
  }
}

absl::Status ScriptedLoader::End(int64_t end_step, const std::string& stream) {
  const Position& at = position(stream);
  const absl::Status status =
      world_.delivery.End(peer, EndOfStream{stream, at.pass, at.epoch, end_step}, world_.now);
  world_.Deliver();
  return status;
}

// --- a group

ScriptedGroup::ScriptedGroup(DeliveryWorld& world_in, int64_t cp_size, int64_t num_loaders,
                             const std::vector<std::string>& streams, const std::string& group_in)
    : world(world_in), group(group_in) {
  for (int64_t rank = 0; rank < cp_size; ++rank) {
    readers.emplace_back(world, OpenOf(rank, cp_size, streams)).open.group = group;
  }
  for (int64_t loader = 0; loader < num_loaders; ++loader) {
    loaders.emplace_back(world, HelloOf(loader, num_loaders, streams)).hello.group = group;
  }
}

void ScriptedGroup::Start() {
  for (ScriptedReader& reader : readers) reader.Start();
  for (ScriptedLoader& loader : loaders) loader.Start();
}

void ScriptedGroup::PushSteps(int64_t step, int64_t end, const std::string& stream) {
  for (; step < end; ++step) {
    for (ScriptedLoader& loader : loaders) loader.PushSteps(step, step + 1, stream);
  }
}

void ScriptedGroup::Consume(int64_t step, int64_t end, const std::string& stream) {
  for (; step < end; ++step) {
    for (ScriptedReader& reader : readers) {
      const auto answer = reader.Get(step, stream);
      ASSERT_TRUE(answer.has_value()) << stream << "/" << step << " did not come";
      ASSERT_TRUE(answer->ok()) << *answer;
      reader.SentAll();
    }
    for (ScriptedReader& reader : readers) {
      const absl::Status committed = reader.Commit(step, stream);
      ASSERT_TRUE(committed.ok()) << committed;
    }
  }
}

GroupView ScriptedGroup::View() const {
  auto view = world.delivery.View(group, world.now);
  EXPECT_TRUE(view.ok()) << view.status();
  return view.value_or(GroupView{});
}

// --- what is expected

namespace {

MATCHER_P2(RefusedWith, code, reason,
           absl::StrCat("is ", absl::StatusCodeToString(code), " with reason ", reason)) {
  *result_listener << "which is " << arg.ToString();
  const auto details = DetailsOf(arg);
  return arg.code() == code && details && details->reason == reason;
}

MATCHER(IsOkMatcher, "is OK") {
  *result_listener << "which is " << arg.ToString();
  return arg.ok();
}

}  // namespace

testing::Matcher<absl::Status> Refused(absl::StatusCode code, const std::string& reason) {
  return RefusedWith(code, reason);
}

testing::Matcher<absl::Status> IsOkStatus() { return IsOkMatcher(); }

}  // namespace cpshard
