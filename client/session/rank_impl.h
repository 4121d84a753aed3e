// What is behind a Rank: the ledger's lock and connection, the memory for shards, the waits.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/expected_ranks.h"
#include "client/incoming_answer.h"
#include "client/session/rank.h"
#include "client/session/reader_ledger.h"
#include "client/session/session_stream.h"
#include "client/session/waiting.h"
#include "core/batch/buffer.h"
#include "proto/frames.h"
#include "proto/session_codec.h"

namespace cpshard {

// Thread-safe.
class Rank::Impl final : public SessionStream {
 public:
  Impl(Address address, std::unique_ptr<WakeupFd> wakeup, RankOptions options, OpenSession open);

  absl::StatusOr<std::optional<RankStep>> Next(const std::string& stream);
  void Consumed(const std::string& stream);
  void StartPass(const std::string& stream);
  void ClosePass(const std::string& stream, bool finished);
  TrainState State() const;
  absl::Status CloseSession(absl::Duration patience);
  RankStats stats() const;

 private:
  using Received = std::variant<ReceivedStep, EndOfPass, absl::Status>;

  // An answer that arrives, from its first frame on.
  struct Arriving {
    DeliveryHead head;
    bool dropped = false;  // there was no memory for it
  };

  // --- the trainer

  absl::StatusOr<Received> AwaitStep(const std::string& stream);
  absl::Status AwaitReady(const StepAddress& at, WaitTally* tally)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WaitsFor WhoIsWaitedFor(const StepAddress& at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Late(const StepAddress& at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CloseOnce(absl::Duration patience);

  // --- the connection

  bool Postponed() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Owed() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryAgain() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<absl::Status> Outcome() const override { return std::nullopt; }
  void Connected() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Disconnected() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsFinal(const absl::Status& status, Stage stage) const override;
  absl::Status OnGreeted(const Greeted& greeted) override;
  void OnDown(const absl::Status& status, Stage stage) override;
  void OnLost(const absl::Status& why) override;

  std::optional<grpc::ByteBuffer> NextMessage() override;
  void AddStall(Commit* commit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeRequests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  absl::Status OnAnswer(ShardFrame frame);
  absl::Status OnShards(const DeliveryHead& head, ShardResult shards);
  bool Lands(uint64_t id) const;
  void OnNoMemory(uint64_t id, const absl::Status& status);
  void OnRefused(uint64_t id, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RankOptions options_;
  const SessionName session_;
  const ExpectedRanks expected_;  // of every answer
  BufferPool pool_;
  IncomingAnswers answers_;                // of the call's reads ...
  std::map<uint64_t, Arriving> arriving_;  // ... by the id of the request

  ReaderLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> requests_ ABSL_GUARDED_BY(mutex_);  // to be written
  std::map<uint64_t, StepAddress> asked_ ABSL_GUARDED_BY(mutex_);
  std::set<StepAddress> landing_ ABSL_GUARDED_BY(mutex_);  // bytes of it are coming

  // Of the steps that Next waits for: what the server last said of them.
  std::map<StepAddress, absl::Status> word_ ABSL_GUARDED_BY(mutex_);
  absl::Duration copied_ ABSL_GUARDED_BY(mutex_);
  RankStats stats_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;               // the session, at the server
  Stall told_ ABSL_GUARDED_BY(mutex_);                        // of stats_.all, by commits ...
  absl::Time told_at_ ABSL_GUARDED_BY(mutex_) = SteadyNow();  // ... the last of them
};

}  // namespace cpshard
