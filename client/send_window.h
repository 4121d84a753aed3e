// What is on the connection of a stream: the batches that count there, what is still to be written
// of them, and how long the server has given no sign of life. No threads, no clock; not
// thread-safe. Part of BatchLedger.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "client/frame_cursor.h"
#include "proto/replies.h"

namespace cpshard {

// A batch on the connection: it counts there from its first frame until its answer has ended.
// Every sending has an id of its own, so that a late frame about one that was given up can never
// be taken for one about the next.
struct Sending {
  std::optional<uint64_t> number;  // of the batch; nullopt: given up
  int64_t bytes = 0;
  bool alone = false;  // no other goes until it is answered
  FrameCursor cursor;
};

class SendWindow {
 public:
  SendWindow(int64_t max_batches, bool checksums)
      : max_batches_(max_batches), checksums_(checksums) {}

  // A new connection: nothing is under way. A limit of 0 is one that the server did not state; then
  // none holds but the caller's.
  void Open(const StreamLimits& limits, int64_t max_chunk_bytes);
  void Clear();

  // --- writing

  // One batch always has room. None has besides one that goes alone.
  bool HasRoomFor(int64_t bytes, bool alone) const;

  // What is begun is written to its end, or until it is given up, before the next one may begin.
  // Returns its wire id. Precondition: HasRoomFor, !HasFrames.
  uint64_t Begin(uint64_t number, int64_t bytes, bool alone, absl::Time now);

  bool HasFrames() const { return current_ || !cancels_.empty(); }
  // The next one, without its batch. Precondition: HasFrames.
  FrameToSend NextFrame();
  // The frame before this call is written.
  void Wrote(absl::Time now);

  // Its answer is not wanted any more; if the server is still to be told, a frame does.
  void GiveUp(uint64_t wire_id);
  // Its answer has ended: it does not count any more. nullopt: it is not under way.
  std::optional<Sending> End(uint64_t wire_id);

  // --- looking

  const Sending* Find(uint64_t wire_id) const;  // nullptr: not under way; valid until a change
  int64_t size() const { return static_cast<int64_t>(sendings_.size()); }
  int64_t bytes() const { return bytes_; }
  bool AnyWanted() const;
  bool AnyGivenUp() const;

  // --- silence

  void Heard(absl::Time now) { heard_ = now; }
  // When the server, if it stays silent, has been so for too long; never while nothing is under
  // way.
  absl::Time SilentAt() const;

 private:
  void StopWriting(uint64_t wire_id);

  const int64_t max_batches_;
  const bool checksums_;
  StreamLimits limits_;
  int64_t chunk_bytes_ = 0;
  std::map<uint64_t, Sending> sendings_;  // by wire id
  int64_t bytes_ = 0;
  std::optional<uint64_t> current_;   // is not complete
  std::vector<FrameToSend> cancels_;  // to be written first
  uint64_t next_wire_id_ = 1;

  // A frame came, a body went, or the first of these batches was begun.
  absl::Time heard_;
  bool writes_body_ = false;  // a further one of its batch
};

}  // namespace cpshard
