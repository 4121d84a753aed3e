// What the tests of the ledger share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/batch_ledger.h"

namespace cpshard {

inline constexpr int64_t kMega = int64_t{1} << 20;

// A stream without a connection: the test is the server, the clock and the callers.
class BatchLedgerTest : public testing::Test {
 protected:
  BatchLedgerTest() { Make({}); }

  void Make(const StreamOptions& options) {
    ledger_ = std::make_unique<BatchLedger>("unix:/s", options, /*seed=*/1);
  }

  void Connect(const StreamLimits& limits = {}, int64_t max_chunk_bytes = 4 * kMega) {
    ledger_->Connected(limits, max_chunk_bytes);
  }

  struct Submitted {
    uint64_t number;
    std::shared_ptr<PendingBatch> pending;
    std::weak_ptr<const OutgoingBatch> batch;
  };

  Submitted Submit(int64_t bytes) {
    auto batch = std::make_shared<OutgoingBatch>();
    batch->total_bytes = bytes;
    Submitted submitted{0, std::make_shared<PendingBatch>(), batch};
    submitted.number = ledger_->Add(submitted.pending, std::move(batch), now_);
    return submitted;
  }

  // Tells the callers, as the owner of a ledger does.
  void Settle() {
    for (ClosedBatch& closed : ledger_->TakeClosed()) {
      if (closed.pending != nullptr) closed.pending->Resolve(std::move(closed.answer));
    }
  }

  std::vector<FrameToSend> Written() {
    std::vector<FrameToSend> frames;
    while (std::optional<FrameToSend> frame = ledger_->NextFrame(now_)) {
      frames.push_back(*std::move(frame));
    }
    return frames;
  }

  // Wire ids of the batches that are begun with what is written now.
  std::vector<uint64_t> Begun() {
    std::vector<uint64_t> ids;
    for (const FrameToSend& frame : Written()) {
      if (frame.seq == 0 && !frame.cancel) ids.push_back(frame.wire_id);
    }
    return ids;
  }

  void Answer(uint64_t wire_id) {
    ledger_->Answered(wire_id, ShardResult());
    Settle();
  }

  void Refuse(uint64_t wire_id, const absl::Status& status, std::optional<int64_t> retry_ms = {}) {
    ledger_->Refused(wire_id, {status, retry_ms}, now_);
    Settle();
  }

  void Lose(const absl::Status& status = absl::UnavailableError("reset")) {
    ledger_->Disconnected(status, "connection lost", now_);
    Settle();
  }

  void Pass(absl::Duration time) {
    now_ += time;
    ledger_->Expire(now_);
    Settle();
  }

  static absl::StatusCode CodeOf(const Submitted& batch) {
    return batch.pending->done() ? batch.pending->Wait().status().code()
                                 : absl::StatusCode::kUnknown;  // stands for "not done"
  }
  static std::string TextOf(const Submitted& batch) {
    return batch.pending->done() ? std::string(batch.pending->Wait().status().message()) : "";
  }

  std::unique_ptr<BatchLedger> ledger_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(5);
};

}  // namespace cpshard
