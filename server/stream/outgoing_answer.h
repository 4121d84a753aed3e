// What a batch is answered with, cut into frames as the stream takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/frames.h"

namespace cpshard {

// One message to send: the header, then the pieces of the body.
struct OutFrame {
  std::string header;
  std::vector<Buffer> body;
};

// Movable. Not thread-safe.
class OutgoingAnswer {
 public:
  // `credit` is returned with the last frame.
  OutgoingAnswer(uint64_t batch_id, Answer answer, Credit credit);
  // `seq`: frames of shards that went before under the id; the error makes them void.
  OutgoingAnswer(uint64_t batch_id, BatchError error, Credit credit, uint32_t seq = 0);

  // The answers of a session: `delivery` goes with the first frame, under the id of its Want.
  OutgoingAnswer(DeliveryHead delivery, Answer answer);
  OutgoingAnswer(uint64_t want_id, BatchError error);

  // The next frame. Precondition: !done().
  OutFrame Next();

  bool done() const { return done_; }
  bool begun() const { return next_seq_ > 0; }
  uint32_t next_seq() const { return next_seq_; }
  uint64_t batch_id() const { return batch_id_; }
  bool is_error() const { return std::holds_alternative<BatchError>(content_); }
  int64_t bytes() const;  // of the body, not handed out yet

 private:
  // Takes up to `size` bytes of the body.
  std::vector<Buffer> Take(int64_t size);

  uint64_t batch_id_;
  std::optional<Credit> credit_;
  std::optional<DeliveryHead> delivery_;
  std::variant<Answer, BatchError> content_;
  uint32_t next_seq_ = 0;
  size_t piece_ = 0;        // the piece that is being sent ...
  size_t piece_taken_ = 0;  // ... and how much of it is gone
  int64_t sent_ = 0;
  bool done_ = false;
};

}  // namespace cpshard
