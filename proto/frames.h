// Frames of a ShardBatches stream, and of PushBatches, PullShards and GetShard, which carry more
// (session_messages.h): the small header is a message, the body stays where it is.
//
// Sending: a header string made here, then the body's bytes, together one valid message. Receiving:
// the message as gRPC hands it over, in slices that lie anywhere; the header is parsed, the body is
// returned as windows on those slices, in whatever order the fields stand. No byte of a body is
// copied here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/exec/executor_kind.h"
#include "core/exec/shard.h"
#include "core/exec/shard_body.h"
#include "core/plan/spec.h"
#include "proto/options.h"
#include "proto/session_messages.h"
#include "proto/tensor_places.h"

namespace cpshard {

namespace v1 {
class BatchBegin;
class ShardFrame;
}  // namespace v1

inline constexpr int64_t kMaxHeaderBytes = int64_t{64} << 10;  // of a frame without its body
// What a serialised begin or head may have, so that the other fields of the frame fit beside it.
inline constexpr int64_t kMaxHeadBytes = kMaxHeaderBytes - 256;
// ... of a session: with a loader's state beside a head.
inline constexpr int64_t kMaxSessionHeaderBytes = kMaxHeaderBytes + kMaxLoaderStateBytes + 1024;
inline constexpr int64_t kMaxChunkBytes = int64_t{4} << 20;  // of the body of a frame
inline constexpr int64_t kChunkBytes = int64_t{2} << 20;     // what this project sends

using Bytes = absl::Span<const std::byte>;

// Which calls a frame is of. Fields of sessions are ignored in frames of ShardBatches, like unknown
// ones.
enum class FrameOf { kShardBatches, kSession };

// The body of a received frame: windows on the message, none of them empty.
struct FrameBody {
  std::vector<Bytes> pieces;
  int64_t size = 0;
};

// Head of a batch, validated.
struct BatchBegin {
  Options options;
  std::optional<int64_t> cp_size;
  std::vector<int64_t> ranks;  // resolved: never empty
  ExecutorKind executor = ExecutorKind::kAuto;
  BatchSpec spec;
  std::vector<TensorPlace> places;  // one per spec.tensors; inside total_bytes, not overlapping
  int64_t total_bytes = 0;
};

// --- loader to server ----------------------------------------------------------------------------

struct BatchFrame {
  uint64_t batch_id = 0;
  uint32_t frame_seq = 0;
  std::shared_ptr<const v1::BatchBegin> begin;  // nullptr in later frames
  uint64_t offset = 0;
  bool last = false;
  std::optional<uint32_t> crc32c;
  bool cancel = false;
  std::optional<PushHead> push;      // beside `begin`
  std::optional<LoaderHello> hello;  // then the frame has nothing else
  std::optional<EndOfStream> end;    // likewise
  FrameBody body;
};

// InvalidArgument, with the sizes: the message is no BatchFrame, or its header is over
// kMaxHeaderBytes (kMaxSessionHeaderBytes). Of a session also: what session_checks.h refuses of
// push, hello and end; `begin` without `push` or the other way round; hello or end beside something
// else. The message must outlive the frame's body.
absl::StatusOr<BatchFrame> DecodeBatchFrame(absl::Span<const Bytes> message,
                                            FrameOf call = FrameOf::kShardBatches);

// total_bytes as the message states it, unchecked; at most 2^62.
int64_t StatedBytes(const v1::BatchBegin& message);

// What DecodeShardBatchRequest refuses, and a total_bytes that is not the end of the last tensor
// (or that rounded up to 64). Nothing of the size of the batch is allocated.
absl::StatusOr<BatchBegin> DecodeBatchBegin(const v1::BatchBegin& message, const Limits& limits);

// Of a batch that is pushed: options, cp_size and executor are the group's, ranks are all of it.
// Refuses a message that has its own; `executor` is left as it is.
absl::StatusOr<BatchBegin> DecodeBatchBegin(const v1::BatchBegin& message, const Options& options,
                                            std::optional<int64_t> cp_size, const Limits& limits);

// A serialised BatchBegin. ResourceExhausted: over kMaxHeaderBytes, less a little. InvalidArgument:
// a cp_size, rank, name or text that has no place on the wire.
absl::StatusOr<std::string> EncodeBatchBegin(const BatchBegin& begin);

// The same of a batch that is pushed: options, cp_size, ranks and executor stay here.
absl::StatusOr<std::string> EncodePushedBegin(const BatchBegin& begin);

// The header of a frame whose body of `body_size` bytes follows; frame.body and frame.begin do not
// count, `begin` is what EncodeBatchBegin or EncodePushedBegin made (empty in later frames). What
// is sent of push, hello and end is not checked: see session_checks.h.
std::string EncodeBatchFrame(const BatchFrame& frame, absl::string_view begin, size_t body_size);

// --- server to loader ----------------------------------------------------------------------------

struct Credit {
  int64_t bytes = 0;
  int64_t batches = 0;
};

// Why a batch failed, and after how long the same one may succeed (absent: never).
struct BatchError {
  absl::Status status;  // of a session with ErrorDetails, whose retry_after is sent too
  std::optional<int64_t> retry_after_ms;
};

struct AnswerBegin {
  int64_t num_shards = 0;
  int64_t total_bytes = 0;
  std::vector<Notice> notices;
  BatchTotals totals;
  std::string executor;  // that made them; empty: a server that does not say
};

// Shards as an answer names them: tensors are windows on the answer buffer.
struct ShardFrame {
  uint64_t batch_id = 0;
  uint32_t frame_seq = 0;
  std::optional<AnswerBegin> begin;
  int64_t num_shards = 0;  // heads in this frame
  uint64_t offset = 0;
  bool last = false;
  std::optional<Credit> credit;
  std::optional<BatchError> error;
  bool draining = false;
  std::optional<DeliveryHead> delivery;  // its id is batch_id
  FrameBody body;
  std::shared_ptr<const v1::ShardFrame> message;  // what ReadShards reads
};

// InvalidArgument: as of DecodeBatchFrame, sizes that no answer has, and a delivery that cannot be.
absl::StatusOr<ShardFrame> DecodeShardFrame(absl::Span<const Bytes> message,
                                            FrameOf call = FrameOf::kShardBatches);

// The shards that `frames` (those of one answer that had heads, in order) name, as windows on the
// complete answer buffer. InvalidArgument: what cannot be.
absl::StatusOr<std::vector<RankShard>> ReadShards(absl::Span<const ShardFrame> frames,
                                                  const Buffer& answer);

struct Answer;

// The heads of an answer, made one by one as frames take them: what is held is the plan, not ranks
// times entries. A copy makes the same heads again. Not thread-safe.
class AnswerHeads {
 public:
  bool done() const { return begun_ && left_over_.empty() && next_rank_ == ranks_.size(); }

  // A piece of a serialised ShardFrame: the heads of the next ranks, as many as fit kMaxHeadBytes.
  // The first piece holds the begin. Precondition: !done().
  std::string Next();

 private:
  friend absl::StatusOr<Answer> EncodeAnswer(std::shared_ptr<const ShardPlan> plan,
                                             std::vector<int64_t> ranks, BatchReport report,
                                             uint64_t digest, ShardBody body, BufferPool& pool);

  AnswerHeads(std::shared_ptr<const ShardPlan> plan, std::vector<int64_t> ranks, BatchReport report,
              uint64_t digest, std::string executor);

  void MakeHead(size_t k, v1::ShardFrame* frame);
  int64_t Place(size_t stream, int64_t bytes);

  std::shared_ptr<const ShardPlan> plan_;
  std::vector<int64_t> ranks_;
  BatchReport report_;
  LayoutRecords records_;  // of *plan_
  std::string executor_;
  int64_t total_bytes_ = 0;
  std::vector<std::string> large_layouts_;  // what MoveLargeLayouts left in the heads

  // Where outputs lie in the body: PlaceShards for one rank after the other, without its list.
  std::vector<int64_t> whole_at_;  // of a stream that every rank holds whole
  int64_t local_at_ = 0;           // of the next output that is a rank's own

  bool begun_ = false;
  size_t next_rank_ = 0;   // its head is not made yet
  std::string left_over_;  // the head of the rank before it, when the last piece had no room for it
};

// An answer, ready to be cut into frames.
struct Answer {
  AnswerHeads heads;
  ShardBody body;  // with the large arrays of layouts at its end, and without its offsets
};

// Bytes of the body of an answer: the shards, and the layouts that leave the heads. An upper bound:
// to be asked when the plan is made. InvalidArgument: shards or layouts are over
// limits.max_batch_bytes.
absl::StatusOr<int64_t> CheckedAnswerBytes(const ShardPlan& plan, absl::Span<const int64_t> ranks,
                                           const Limits& limits);

// Whether the head of every rank, and the notices, fit a frame: to be asked when the plan is made.
// Costs streams + ranks: an upper bound decides, so what would just fit may be refused (some 20
// bytes an entry, and up to 16 KiB where the layout reports indices or positions).
// InvalidArgument, with rank, number of entries and sizes.
absl::Status CheckHeads(const ShardPlan& plan);

// Precondition: CheckHeads passed; ranks passed ResolveRanks; report and body are theirs. Notices
// of the report for which a frame has no room beside the plan's own are left out.
// ResourceExhausted: the pool.
absl::StatusOr<Answer> EncodeAnswer(std::shared_ptr<const ShardPlan> plan,
                                    std::vector<int64_t> ranks, BatchReport report, uint64_t digest,
                                    ShardBody body, BufferPool& pool);

// The header of a frame whose body of `body_size` bytes follows; `head` is of AnswerHeads::Next, or
// empty. frame.begin, frame.body, frame.num_shards and frame.message do not count.
std::string EncodeShardFrame(const ShardFrame& frame, absl::string_view head, size_t body_size);

}  // namespace cpshard
