#include "server/stream/outgoing_answer.h"

#include <algorithm>
#include <utility>

namespace cpshard {

OutgoingAnswer::OutgoingAnswer(uint64_t batch_id, Answer answer, Credit credit)
    : batch_id_(batch_id), credit_(credit), content_(std::move(answer)) {}

OutgoingAnswer::OutgoingAnswer(uint64_t batch_id, BatchError error, Credit credit, uint32_t seq)
    : batch_id_(batch_id), credit_(credit), content_(std::move(error)), next_seq_(seq) {}

OutgoingAnswer::OutgoingAnswer(DeliveryHead delivery, Answer answer)
    : batch_id_(delivery.id), delivery_(std::move(delivery)), content_(std::move(answer)) {}

OutgoingAnswer::OutgoingAnswer(uint64_t want_id, BatchError error)
    : batch_id_(want_id), content_(std::move(error)) {}

int64_t OutgoingAnswer::bytes() const {
  return is_error() ? 0 : std::get<Answer>(content_).body.size - sent_;
}

OutFrame OutgoingAnswer::Next() {
  ShardFrame frame;
  frame.batch_id = batch_id_;
  frame.frame_seq = next_seq_++;
  frame.delivery = std::exchange(delivery_, std::nullopt);
  OutFrame out;
  std::string head;
  int64_t body_bytes = 0;
  if (const BatchError* error = std::get_if<BatchError>(&content_)) {
    frame.error = *error;
    done_ = true;
  } else {
    Answer& answer = std::get<Answer>(content_);
    if (!answer.heads.done()) head = answer.heads.Next();
    if (answer.heads.done()) {  // a body comes with the last head at the earliest
      body_bytes = std::min(answer.body.size - sent_, kChunkBytes);
      frame.offset = body_bytes > 0 ? sent_ : 0;
      out.body = Take(body_bytes);
      done_ = sent_ == answer.body.size;
    }
  }
  frame.last = done_;
  if (done_) frame.credit = credit_;
  out.header = EncodeShardFrame(frame, head, body_bytes);
  return out;
}

std::vector<Buffer> OutgoingAnswer::Take(int64_t size) {
  std::vector<Buffer>& pieces = std::get<Answer>(content_).body.pieces;
  std::vector<Buffer> taken;
  sent_ += size;
  while (size > 0) {
    Buffer& piece = pieces[piece_];
    const size_t take = std::min<size_t>(size, piece.size() - piece_taken_);
    taken.push_back(piece.Slice(piece_taken_, take));
    piece_taken_ += take;
    size -= static_cast<int64_t>(take);
    if (piece_taken_ == piece.size()) {
      piece = Buffer();  // lets go: the frame holds what it needs
      ++piece_;
      piece_taken_ = 0;
    }
  }
  return taken;
}

}  // namespace cpshard
