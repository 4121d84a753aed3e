#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "tests/client/batch_ledger.h"

namespace cpshard {
namespace {

// A server that answers, refuses, drains and dies by chance, and callers that lose patience.
TEST_F(BatchLedgerTest, UnderAnyCourseOfEventsEveryBatchEndsOnceAndCreditIsKept) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto chance = [&](int n) { return static_cast<int>(random() % n); };
    const StreamLimits limits{.max_inflight_bytes = 8 * kMega, .max_inflight_batches = 3};
    Make({.deadline = absl::Seconds(2), .checksums = seed % 2 == 0});
    std::vector<Submitted> batches;
    std::map<uint64_t, int64_t> at_server;  // wire id -> bytes; counted as the server counts
    bool connected = false;
    for (int step = 0; step < 400; ++step) {
      if (!connected && ledger_->WantsConnection(now_) && chance(2) == 0) {
        Connect(limits);
        connected = true;
      }
      switch (chance(10)) {
        case 0:
        case 1:
          batches.push_back(Submit(64 * chance(60'000)));
          break;
        case 2:
          if (!batches.empty()) ledger_->Cancel(batches[chance(batches.size())].number);
          break;
        case 3:
          if (connected && chance(20) == 0) ledger_->Drain();
          if (connected && (ledger_->ShouldHangUp() || chance(20) == 0)) {
            Lose();
            at_server.clear();
            connected = false;
          }
          break;
        case 4:
        case 5:
          if (!at_server.empty()) {
            const auto it = std::next(at_server.begin(), chance(at_server.size()));
            const uint64_t id = it->first;
            at_server.erase(it);
            if (chance(3) > 0) {
              Answer(id);
            } else if (chance(2) > 0) {
              Refuse(id, absl::ResourceExhaustedError("later"), chance(50));
            } else if (chance(2) > 0) {
              Refuse(id, absl::UnavailableError("lost cuda:0"), chance(50));
            } else {
              Refuse(id, absl::InvalidArgumentError("never"));
            }
          }
          break;
        default:
          if (std::optional<FrameToSend> frame = ledger_->NextFrame(now_)) {
            ASSERT_TRUE(connected);
            if (!frame->cancel && frame->seq == 0) {
              const bool alone = at_server.empty();
              at_server[frame->wire_id] = frame->batch->total_bytes;
              int64_t bytes = 0;
              for (const auto& [id, size] : at_server) bytes += size;
              EXPECT_TRUE(alone || bytes <= limits.max_inflight_bytes);
              EXPECT_LE(at_server.size(), 3u);
            }
          }
      }
      Pass(absl::Milliseconds(chance(30)));
      // The ledger asks to be woken at once only for a connection.
      EXPECT_TRUE(ledger_->NextEvent(now_) > now_ || ledger_->WantsConnection(now_));
    }
    Pass(absl::Seconds(3));
    EXPECT_EQ(ledger_->size(), 0u);
    for (const Submitted& batch : batches) {
      EXPECT_TRUE(batch.pending->done());
      EXPECT_TRUE(batch.batch.expired());
    }
  }
}

}  // namespace
}  // namespace cpshard
