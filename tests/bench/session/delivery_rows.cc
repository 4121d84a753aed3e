// How many operations a second the state machine of delivery does on one core, and whether its
// memory stays flat: 8 ranks, 4 loaders, every step through its whole life.
#include "tests/bench/session/delivery_rows.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/session/delivery.h"
#include "tests/bench/session/traffic.h"

namespace cpshard::bench {
namespace {

constexpr int64_t kPrefetch = 2;

class Nothing final : public Payload {};

int64_t HeapBytes() { return static_cast<int64_t>(mallinfo2().uordblks); }

// Peers as quick as they can be: what they are told they do at once.
class Peers {
 public:
  explicit Peers(int64_t steps) : steps_(steps), delivery_(Options()) {
    for (int64_t rank = 0; rank < kRanks; ++rank) Open(rank);
    for (int64_t loader = 0; loader < kLoaders; ++loader) {
      LoaderHello hello;
      hello.group = "bench";
      hello.loader = loader;
      hello.num_loaders = kLoaders;
      hello.streams.push_back({"train"});
      Count(delivery_.Hello(LoaderPeer(loader), hello, now_).ok());
    }
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      for (int64_t step = 0; step <= kPrefetch; ++step) Want(rank, step);
    }
  }

  // Until all steps are consumed; bytes on the heap after a tenth of them and at the end.
  std::pair<int64_t, int64_t> Run() {
    int64_t early = 0;
    while (Follow()) {
      if (early == 0 && consumed_ >= steps_ * kRanks / 10) early = HeapBytes();
    }
    return {early, HeapBytes()};
  }

  int64_t operations() const { return operations_; }
  int64_t consumed() const { return consumed_; }

 private:
  static DeliveryOptions Options() {
    DeliveryOptions options;
    options.instance = "bench";
    options.budget_bytes = int64_t{64} << 30;
    return options;
  }

  static PeerId RankPeer(int64_t rank) { return 1 + rank; }
  static PeerId LoaderPeer(int64_t loader) { return 1 + kRanks + loader; }

  void Count(bool ok) {
    ++operations_;
    failed_ |= !ok;
  }

  void Open(int64_t rank) {
    OpenSession open;
    open.group = "bench";
    open.generation = 1;
    open.cp_size = kRanks;
    open.cp_rank = rank;
    open.reader = std::to_string(rank);
    ReaderStream train;
    train.name = "train";
    train.max_step_bytes = int64_t{64} << 20;
    open.streams.push_back(train);
    Count(delivery_.Open(open, now_).ok());
    Count(delivery_.Attach(RankPeer(rank), {"bench", 1, open.reader, 0}, true, now_).ok());
  }

  void Want(int64_t rank, int64_t step) {
    if (step >= steps_) return;
    cpshard::Want want;
    want.id = static_cast<uint64_t>(step);
    want.at = {"train", 0, step};
    delivery_.Want(RankPeer(rank), want, now_);
    Count(true);
  }

  bool Follow() {
    const std::vector<Output> outputs = delivery_.TakeOutputs();
    for (const Output& output : outputs) {
      if (const auto* credit = std::get_if<LoaderCredit>(&output.what)) Push(output.to, *credit);
      if (const auto* shard = std::get_if<DeliverShard>(&output.what)) Consume(output.to, *shard);
    }
    return !outputs.empty() && !failed_;
  }

  void Push(PeerId peer, const LoaderCredit& credit) {
    PushHead head;
    head.at = credit.at;
    head.epoch = credit.epoch;
    head.last_microbatch = true;
    head.digest = static_cast<uint64_t>(credit.at.step);
    head.state = std::to_string(credit.at.step);
    const PushVerdict verdict = delivery_.BeginPush(peer, head, int64_t{16} << 20, now_);
    Count(verdict.push != 0);
    LandedBatch landed;
    landed.payload = payload_;
    landed.bytes = int64_t{16} << 20;
    landed.digest = *head.digest;
    delivery_.EndPush(verdict.push, landed, now_);
    Count(true);
  }

  void Consume(PeerId peer, const DeliverShard& shard) {
    delivery_.Sent(peer, shard.head.at, shard.head.microbatch, now_);
    Count(delivery_.Commit(peer, {shard.head.at}, now_).ok());
    Count(true);
    ++consumed_;
    Want(static_cast<int64_t>(peer) - 1, shard.head.at.step + kPrefetch + 1);
  }

  const int64_t steps_;
  const absl::Time now_ = absl::UnixEpoch();
  const std::shared_ptr<const Payload> payload_ = std::make_shared<Nothing>();
  Delivery delivery_;
  int64_t operations_ = 0, consumed_ = 0;
  bool failed_ = false;
};

}  // namespace

DeliveryRates MeasureDelivery(int64_t steps) {
  Peers peers(steps);
  const auto begun = std::chrono::steady_clock::now();
  const auto [early, late] = peers.Run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  DeliveryRates rates;
  rates.steps = peers.consumed() / kRanks;
  rates.operations = peers.operations();
  rates.operations_per_second = static_cast<double>(peers.operations()) / took.count();
  rates.heap_growth = late - early;
  return rates;
}

}  // namespace cpshard::bench
