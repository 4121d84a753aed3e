#include "server/stream/arriving_batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/batch/crc32c.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

// Where the last of the streams that the plan reads ends.
int64_t EndOf(const std::vector<std::string>& names, const BatchBegin& begin) {
  int64_t end = 0;
  for (size_t i = 0; i < begin.places.size(); ++i) {
    const bool is_read =
        std::find(names.begin(), names.end(), begin.spec.tensors[i].name) != names.end();
    if (is_read) end = std::max(end, begin.places[i].offset + begin.places[i].nbytes);
  }
  return end;
}

int64_t BytesOf(const std::vector<IndexMap>& maps) {
  size_t bytes = maps.size() * sizeof(IndexMap);
  for (const IndexMap& map : maps) {
    bytes += map.runs().size() * sizeof(Run) + map.starts().size() * sizeof(int64_t);
  }
  return static_cast<int64_t>(bytes);
}

// A document in the plan, and once more in its inspection.
constexpr size_t kDocumentBytes = 2 * sizeof(DocumentSpan);

int64_t BytesOf(const std::vector<LayoutPlan>& layouts) {
  int64_t bytes = 0;
  for (const LayoutPlan& layout : layouts) {
    bytes += BytesOf(layout.placement) + BytesOf(layout.partition);
    for (const auto& row : layout.documents) {
      bytes += static_cast<int64_t>(sizeof(row) + row.size() * kDocumentBytes);
    }
  }
  return bytes;
}

int64_t BytesOf(const Generated& generated) {
  size_t bytes = 0;
  for (const std::vector<Segment>& row : generated.rows) {
    bytes += sizeof(row) + row.size() * sizeof(Segment);
  }
  return static_cast<int64_t>(bytes);
}

// What of a plan grows with the batch.
int64_t BytesOf(const ShardPlan& plan) {
  int64_t bytes = BytesOf(plan.chunks) + BytesOf(plan.others);
  for (const StreamPlan& stream : plan.streams) {
    if (const auto* literal = std::get_if<Literal>(&stream.value.from)) {
      bytes += static_cast<int64_t>(literal->values.size() * sizeof(int64_t));
    } else if (const auto* generated = std::get_if<Generated>(&stream.value.from)) {
      bytes += BytesOf(*generated);
    } else {
      bytes += BytesOf(std::get<ViewOf>(stream.value.from).columns);
    }
  }
  return bytes;
}

}  // namespace

ArrivingBatch::ArrivingBatch(BatchBegin begin, Sharder sharder, const Limits& limits)
    : begin_(std::move(begin)),
      sharder_(std::move(sharder)),
      limits_(limits),
      needs_(sharder_.Needs(begin_.spec)),
      needs_end_(EndOf(needs_, begin_)),
      digest_order_(DigestOrder(begin_.spec.tensors)) {
  batch_.scalars = begin_.spec.scalars;
}

absl::StatusOr<std::unique_ptr<ArrivingBatch>> ArrivingBatch::Make(BatchBegin begin,
                                                                   const Limits& limits) {
  CPSHARD_ASSIGN_OR_RETURN(Sharder sharder, begin.options.MakeSharder());
  std::unique_ptr<ArrivingBatch> batch(
      new ArrivingBatch(std::move(begin), std::move(sharder), limits));
  if (batch->needs_.empty()) CPSHARD_RETURN_IF_ERROR(batch->Plan());
  return batch;
}

absl::Status ArrivingBatch::TakeMemory(BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(buffer_, pool.Allocate(begin_.total_bytes));
  for (size_t i = 0; i < begin_.spec.tensors.size(); ++i) {
    const TensorPlace& place = begin_.places[i];
    batch_.tensors.push_back(
        {begin_.spec.tensors[i],
         place.nbytes > 0 ? buffer_.Slice(place.offset, place.nbytes) : Buffer()});
  }
  return PlanWhenPossible();  // values without bytes are there already
}

absl::Status ArrivingBatch::Land(const BatchFrame& frame) {
  CPSHARD_RETURN_IF_ERROR(CheckPlace(frame));
  if (frame.crc32c) CPSHARD_RETURN_IF_ERROR(CheckCrc(frame));
  last_body_at_ = landed_;
  ++next_seq_;
  CopyIn(frame.body);
  return PlanWhenPossible();
}

absl::Status ArrivingBatch::CheckPlace(const BatchFrame& frame) const {
  if (frame.frame_seq < next_seq_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frame_seq ", frame.frame_seq, " came again or out of order; expected ", next_seq_));
  }
  if (frame.frame_seq > next_seq_) {
    return absl::DataLossError(absl::StrCat("a frame is missing: frame_seq ", frame.frame_seq,
                                            " came, expected ", next_seq_));
  }
  const int64_t size = frame.body.size;
  const int64_t left = begin_.total_bytes - landed_;
  if (size > kMaxChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the body of frame_seq ", frame.frame_seq,
                                                   " has ", size, " bytes; at most ",
                                                   kMaxChunkBytes, " are allowed"));
  }
  if (size > 0 && frame.offset != static_cast<uint64_t>(landed_)) {
    return absl::InvalidArgumentError(absl::StrCat("the body of frame_seq ", frame.frame_seq,
                                                   " is for offset ", frame.offset,
                                                   ", but the one before ended at ", landed_));
  }
  if (size > left) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body of frame_seq ", frame.frame_seq, " has ", size, " bytes, but only ",
                     left, " of total_bytes ", begin_.total_bytes, " are missing"));
  }
  if (size % kBufferAlignment != 0 && size != left) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the body of frame_seq ", frame.frame_seq, " has ", size,
        " bytes, which is not a multiple of 64, and is not the end of the ", begin_.total_bytes));
  }
  return absl::OkStatus();
}

absl::Status ArrivingBatch::CheckCrc(const BatchFrame& frame) const {
  const size_t size = landed_ - last_body_at_;
  const uint32_t crc = Crc32c({buffer_.data() + last_body_at_, size});
  if (crc == *frame.crc32c) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "the body before frame_seq %d (bytes %d to %d) has crc32c 0x%08x, sent was 0x%08x; send the "
      "batch again",
      frame.frame_seq, last_body_at_, landed_, crc, *frame.crc32c));
}

void ArrivingBatch::CopyIn(const FrameBody& body) {
  for (const Bytes& piece : body.pieces) {
    std::memcpy(buffer_.data() + landed_, piece.data(), piece.size());
    landed_ += static_cast<int64_t>(piece.size());
    FollowWithDigest();  // piece by piece: what was just written is still in the cache
  }
}

// Tensors enter the digest in the order of their names, as far as they have landed.
void ArrivingBatch::FollowWithDigest() {
  for (; digested_tensors_ < digest_order_.size(); ++digested_tensors_, digested_bytes_ = -1) {
    const size_t i = digest_order_[digested_tensors_];
    const TensorPlace& place = begin_.places[i];
    const int64_t there = std::clamp<int64_t>(landed_ - place.offset, 0, place.nbytes);
    if (digested_bytes_ < 0) {
      digest_.BeginTensor(begin_.spec.tensors[i]);
      digested_bytes_ = 0;
    }
    digest_.AddBytes(batch_.tensors[i].bytes().subspan(digested_bytes_, there - digested_bytes_));
    digested_bytes_ = there;
    if (there < place.nbytes) return;
  }
}

absl::Status ArrivingBatch::PlanWhenPossible() {
  return plan_ != nullptr || landed_ < needs_end_ ? absl::OkStatus() : Plan();
}

absl::Status ArrivingBatch::Plan() {
  const PlanValues values = ViewNeeds(sharder_, begin_.spec, batch_);
  CPSHARD_ASSIGN_OR_RETURN(ShardPlan plan, sharder_.Plan(begin_.spec, values));
  CPSHARD_ASSIGN_OR_RETURN(output_bytes_, CheckedAnswerBytes(plan, begin_.ranks, limits_));
  CPSHARD_RETURN_IF_ERROR(CheckHeads(plan));
  plan_bytes_ = BytesOf(plan) + DerivedBytes(plan, begin_.spec);
  plan_ = std::make_shared<const ShardPlan>(std::move(plan));
  return absl::OkStatus();
}

absl::Status ArrivingBatch::CheckComplete() const {
  if (landed_ == begin_.total_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the last frame has come, but only ", landed_,
                                                 " of total_bytes ", begin_.total_bytes));
}

ArrivedBatch ArrivingBatch::Take() {
  FollowWithDigest();  // tensors without bytes at the end of the order
  return {batch_,      begin_.spec,   begin_.ranks,    plan_, begin_.total_bytes,
          plan_bytes_, output_bytes_, digest_.Finish()};
}

absl::StatusOr<Answer> ArrivingBatch::MakeAnswer(Executor& executor, BufferPool& pool) {
  const ArrivedBatch arrived = Take();
  CPSHARD_ASSIGN_OR_RETURN(ShardBody body,
                           ViewShards(*plan_, arrived.batch, arrived.ranks, executor, pool));
  BatchReport report =
      ReportOf(InspectBatch(*plan_, arrived.spec, arrived.batch, Detail::kBatch), arrived.ranks);
  return EncodeAnswer(plan_, arrived.ranks, std::move(report), arrived.digest, std::move(body),
                      pool);
}

}  // namespace cpshard
