// The client's side of a ShardBatches stream as a state machine: which batches wait, which are
// under way, what may be sent next, what an answer or the end of a connection means for them.
//
//   Add -> waiting -> NextFrame ... NextFrame -> sent -> Answered
//             ^          |                        |
//             +- Refused (again later), Disconnected
//
// No threads, no gRPC, no clock: time is handed in. Not thread-safe. A batch that is done -
// answered, refused, given up, too late - leaves through TakeClosed, so that its owner can tell the
// caller and let go of its bytes outside of any lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/backoff.h"
#include "client/outgoing_batch.h"
#include "client/pending_batch.h"
#include "client/shard_stream.h"
#include "proto/frames.h"
#include "proto/replies.h"

namespace cpshard {

// One frame to write. Its bytes are made outside of the ledger.
struct FrameToSend {
  uint64_t wire_id = 0;
  uint32_t seq = 0;
  int64_t offset = 0;
  int64_t size = 0;  // of the body
  bool last = false;
  bool cancel = false;
  std::shared_ptr<const OutgoingBatch> batch;  // nullptr in a cancel
};

struct ClosedBatch {
  std::shared_ptr<PendingBatch> pending;
  absl::StatusOr<ShardResult> answer;
  std::shared_ptr<const OutgoingBatch> batch;
};

class BatchLedger {
 public:
  // `address` is for texts. `seed`: of the chance in waits.
  BatchLedger(std::string address, const StreamOptions& options, uint32_t seed);

  // --- callers

  // Batches are numbered in the order in which they come.
  uint64_t Add(std::shared_ptr<PendingBatch> pending, std::shared_ptr<const OutgoingBatch> batch,
               absl::Time now);
  // Closes it with Cancelled; nothing happens if it is closed already.
  void Cancel(uint64_t number);
  void CloseAll(const absl::Status& status);
  std::vector<ClosedBatch> TakeClosed();

  // --- time

  // Closes what is past its deadline.
  void Expire(absl::Time now);
  // When Expire, NextFrame or WantsConnection will have something to say that time alone brings. In
  // the past: WantsConnection has it now.
  absl::Time NextEvent(absl::Time now) const;

  // Of the oldest batch.
  absl::Time NextDeadline() const;

  // --- connection

  // A connection should be made now. True at once after the start, then only for a batch.
  bool WantsConnection(absl::Time now) const;
  void Connected(const StreamLimits& limits, int64_t max_chunk_bytes);
  // No connection could be made (`stage` "cannot connect"), or the one that was there has ended.
  // What was not answered waits to be sent again; but a status that will not change ends it.
  void Disconnected(const absl::Status& status, absl::string_view stage, absl::Time now);
  // The server is going down: no new batches on this connection.
  void Drain();
  // Some frame has come.
  void Heard(absl::Time now) { heard_ = now; }
  // Nothing more will come of this connection: it is drained, or a batch was too late for its
  // deadline while the server was silent for long.
  bool ShouldHangUp() const;

  // --- frames, while connected

  // What to write after what was written before; nothing: ask again after a change.
  std::optional<FrameToSend> NextFrame(absl::Time now);

  // What frames of this wire id mean.
  enum class Interest { kWanted, kGivenUp, kUnknown };
  Interest InterestIn(uint64_t wire_id) const;

  // The answer is complete. Of a batch that was given up: it no longer counts.
  void Answered(uint64_t wire_id, absl::StatusOr<ShardResult> answer);
  void Refused(uint64_t wire_id, const BatchError& error, absl::Time now);
  // Closes the batch with `status`; more of its answer may come.
  void Fail(uint64_t wire_id, const absl::Status& status);

  const StreamStats& stats() const { return stats_; }
  size_t size() const { return batches_.size(); }

 private:
  struct Entry {
    std::shared_ptr<PendingBatch> pending;
    std::shared_ptr<const OutgoingBatch> batch;
    absl::Time deadline;
    absl::Time not_before = absl::InfinitePast();
    int64_t sends = 0;
    std::optional<uint64_t> wire_id;  // under way
    std::string refusal;              // the last one that was not final
  };

  // A batch on the connection: it counts there from its first frame until its answer has ended.
  // Every sending has an id of its own, so that a late frame about one that was given up can never
  // be taken for one about the next.
  struct Sending {
    std::optional<uint64_t> number;  // nullopt: given up
    int64_t bytes = 0;
    uint32_t next_seq = 0;
    int64_t next_offset = 0;
    bool complete = false;
  };

  enum class Link { kDown, kUp, kDraining };
  using Entries = std::map<uint64_t, Entry>;

  void Close(Entries::iterator entry, absl::StatusOr<ShardResult> answer);
  void GiveUp(Entries::iterator entry, absl::Status status);
  void StopSending(uint64_t wire_id);
  std::optional<Sending> EndSending(uint64_t wire_id);
  bool HasRoomFor(int64_t bytes) const;
  std::optional<uint64_t> BeginNext(absl::Time now);
  FrameToSend Continue(uint64_t wire_id);
  std::string WhatStandsInTheWay(const Entry& entry, absl::Time now) const;

  const std::string address_;
  const StreamOptions options_;
  Backoff backoff_;
  StreamStats stats_;
  std::vector<ClosedBatch> closed_;

  Entries batches_;  // by number: the oldest first
  uint64_t next_number_ = 1;
  int64_t postponed_ = 0;  // entries that have a not_before

  Link link_ = Link::kDown;
  bool tried_ = false;  // to connect
  absl::Time connect_at_ = absl::InfinitePast();
  std::string trouble_;  // what was last wrong with the connection

  // Of this connection.
  StreamLimits limits_;
  int64_t chunk_bytes_ = 0;
  std::map<uint64_t, Sending> sendings_;  // by wire id
  int64_t bytes_under_way_ = 0;
  absl::Time heard_;  // or when the first of these batches was begun, if that is later
  bool silent_ = false;
  std::optional<uint64_t> current_;   // is not complete
  std::vector<FrameToSend> cancels_;  // to be written first
  uint64_t next_wire_id_ = 1;
};

}  // namespace cpshard
