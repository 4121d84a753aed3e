// A call that carries frames, without its transport: what StreamReactor reads for and writes from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/frames.h"
#include "server/stream/outgoing_answer.h"

namespace cpshard {

// Thread-safe, with two exceptions: OnMessage and OnInputEnd come one after the other, and so do
// calls of NextFrame.
//
// Two clocks come from outside. `input` stands still while the peer's frames are not read or wait
// to be landed: it measures what the peer lets pass. `now` is the ordinary one.
class FrameStream {
 public:
  virtual ~FrameStream() = default;

  // A message from the peer. The spans are not used after the call. On a worker.
  virtual void OnMessage(absl::Span<const Bytes> message, absl::Time input) = 0;

  // The peer sends no more.
  virtual void OnInputEnd() = 0;

  // False while so much waits to be sent that reading more would only add to it.
  virtual bool WantsInput() const = 0;

  // The next message to send, if there is one.
  virtual std::optional<OutFrame> NextFrame(absl::Time now) = 0;

  // When what is being sent should be through: at the slowest rate that is tolerated.
  virtual absl::Time OutputDue() const = 0;

  // The status that the call ends with, once nothing is left to be sent.
  virtual std::optional<absl::Status> Ended() const = 0;

  // From now on new work is refused with UNAVAILABLE; the peer is told.
  virtual void Drain() = 0;

  // Takes no more input if nothing is under way; the call ends with `status`, after what is still
  // to be sent.
  virtual void EndIfIdle(const absl::Status& status) = 0;

  // Gives up what does not come: no byte for the stall time, or too slowly on the whole.
  virtual void Expire(absl::Time input) = 0;

  // The peer is gone: everything is let go, nothing is answered any more.
  virtual void Abandon() = 0;

  virtual int64_t batches() const = 0;       // under way; none: a draining server may end the call
  virtual int64_t queued_bytes() const = 0;  // of answers, not handed out yet
};

// Makes the stream of a call. `peer` names the connection; `on_output` is to be called, without a
// lock held, when NextFrame or Ended may have something new.
using MakeFrameStream =
    std::function<std::shared_ptr<FrameStream>(std::string peer, std::function<void()> on_output)>;

// The slowest that a batch or an answer may travel as a whole, beside four times the stall time, in
// bytes a second.
inline constexpr int64_t kMinRate = int64_t{1} << 20;

// The longest that a batch or an answer of this size may take as a whole.
absl::Duration TimeFor(int64_t bytes, absl::Duration stall);

// Why a batch of `bytes` is to be given up, or OK: it was begun at one time, and bytes of it last
// came at another, both by the input's clock.
absl::Status Overdue(int64_t bytes, absl::Time begun, absl::Time moved, absl::Time input,
                     absl::Duration stall);

// Of a call whose one request did not come in time.
absl::Status LateRequest(absl::Duration patience);

}  // namespace cpshard
