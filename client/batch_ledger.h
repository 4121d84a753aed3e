// The client's side of a ShardBatches stream as a state machine: which batches wait, which are
// under way, what may be sent next, what an answer or the end of a connection means for them.
//
//   Add -> waiting -> NextFrame ... NextFrame -> sent -> Answered
//             ^          |                        |
//             +- Refused (again later), Disconnected
//
// No threads, no gRPC, no clock: time is handed in. Not thread-safe. What is done with - a batch
// answered, refused, given up, too late, lost too often; an answer that nobody wants - leaves
// through TakeClosed, so that the owner can tell the caller and let go of bytes outside of any
// lock.
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
#include "client/send_window.h"
#include "client/shard_stream.h"
#include "proto/frames.h"
#include "proto/replies.h"

namespace cpshard {

struct ClosedBatch {
  std::shared_ptr<PendingBatch> pending;  // nullptr: an answer that nobody waits for any more
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

  // --- connection

  // A connection should be made now. True at once after the start, then only for a batch.
  bool WantsConnection(absl::Time now) const;
  void Connecting();  // it is being made, and may take its time
  void Connected(const StreamLimits& limits, int64_t max_chunk_bytes);
  // No connection could be made (`stage` "cannot connect"), or the one that was there has ended.
  // What was not answered waits to be sent again; but a status that will not change ends it, and a
  // batch that was lost five times ends too: it may be what ends the connections. (From the second
  // loss on it goes alone, so that its neighbours do not fall with it.) Lost: under way when its
  // connection ended, or refused with Unavailable by a server that goes; both together are one.
  void Disconnected(const absl::Status& status, absl::string_view stage, absl::Time now);
  // The server is going down: no new batches on this connection.
  void Drain();
  // Some frame has come.
  void Heard(absl::Time now) { window_.Heard(now); }
  // Nothing more will come of this connection: it is drained, or the server was silent for long
  // while batches passed their deadlines or were given up.
  bool ShouldHangUp() const;

  // --- frames, while connected

  // What to write. Asking means that what came before is written. Nothing: ask again after a
  // change.
  std::optional<FrameToSend> NextFrame(absl::Time now);

  // What frames of this wire id mean.
  enum class Interest { kWanted, kGivenUp, kUnknown };
  Interest InterestIn(uint64_t wire_id) const;

  // The answer is complete; Internal if the shards are not those asked for. Of a batch that was
  // given up: it no longer counts.
  void Answered(uint64_t wire_id, absl::StatusOr<ShardResult> answer);
  // Waits as long as the server asks for, and longer from one refusal of the batch to the next.
  // With Unavailable it is lost, as with its connection.
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
    int64_t losses = 0;               // connections that it was lost with
    int64_t lost_with = 0;            // the last of them, by stats_.connects
    int64_t refusals = 0;             // that were not final
    std::optional<uint64_t> wire_id;  // under way
    std::string refusal;              // the last one
  };

  enum class Link { kDown, kConnecting, kUp, kDraining };
  using Entries = std::map<uint64_t, Entry>;

  void Close(Entries::iterator entry, absl::StatusOr<ShardResult> answer);
  void GiveUp(Entries::iterator entry, absl::Status status);
  void Lose(Entry* entry);
  bool IsLostTooOften(const Entry& entry) const;
  absl::Status LostTooOften(const absl::Status& last) const;
  void BeginNext(absl::Time now);
  bool connected() const { return link_ == Link::kUp || link_ == Link::kDraining; }
  absl::Time NextDeadline() const;
  std::string WhatStandsInTheWay(const Entry& entry) const;

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

  SendWindow window_;  // of this connection
  bool silent_ = false;
};

}  // namespace cpshard
