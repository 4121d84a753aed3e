#include <google/protobuf/stubs/logging.h>

#include <algorithm>

#include "cpshard/v1/service.pb.h"
#include "proto/frames.h"
#include "server/stream/arriving_batch.h"
#include "tests/fuzz/spans.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

void CheckSame(const BatchFrame& frame, const v1::BatchFrame& generic) {
  Must(frame.batch_id == generic.batch_id(), "batch_id");
  Must(frame.frame_seq == generic.frame_seq(), "frame_seq");
  Must(frame.offset == generic.offset(), "offset");
  Must(frame.last == generic.last(), "last");
  Must(frame.cancel == generic.cancel(), "cancel");
  Must(frame.crc32c.has_value() == generic.has_crc32c(), "a checksum or none");
  Must(frame.crc32c.value_or(0) == generic.crc32c(), "crc32c");
  Must((frame.begin != nullptr) == generic.has_begin(), "a begin or none");
  Must(frame.begin == nullptr ||
           frame.begin->SerializeAsString() == generic.begin().SerializeAsString(),
       "begin");
  Must(TextOf(frame.body) == generic.body(), "body");
  Must(frame.body.size == static_cast<int64_t>(generic.body().size()), "size of the body");
}

// Tensors lie inside, aligned, none over another.
void CheckPlaces(const BatchSpec& spec, std::vector<TensorPlace> places, int64_t total) {
  Must(places.size() == spec.tensors.size(), "a place per tensor");
  for (size_t i = 0; i < places.size(); ++i) {
    Must(places[i].nbytes == NumBytes(spec.tensors[i]), "a place for all bytes");
    Must(places[i].nbytes == 0 || places[i].offset % 64 == 0, "tensors are aligned");
  }
  std::sort(places.begin(), places.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::pair(a.offset, a.nbytes) < std::pair(b.offset, b.nbytes);
  });
  int64_t end = 0;
  for (const TensorPlace& place : places) {
    if (place.nbytes == 0) continue;
    Must(place.offset >= end, "tensors do not overlap");
    end = place.offset + place.nbytes;
  }
  Must(total == end || total == AlignUp(end), "total_bytes ends with the last tensor");
}

void CheckBegin(const v1::BatchBegin& message) {
  const Limits limits;
  const auto begin = DecodeBatchBegin(message, limits);
  if (!begin.ok()) return;
  Must(begin->total_bytes <= limits.max_batch_bytes && !begin->ranks.empty(), "within the limits");
  CheckPlaces(begin->spec, begin->places, begin->total_bytes);
  const std::vector<TensorPlace> own = PlaceTensors(begin->spec, {"labels"});
  int64_t end = 0;
  for (const TensorPlace& place : own) end = std::max(end, place.offset + place.nbytes);
  CheckPlaces(begin->spec, own, AlignUp(end));

  const auto encoded = EncodeBatchBegin(*begin);
  Must(encoded.ok() || absl::IsResourceExhausted(encoded.status()), "what was decoded encodes");
  if (!encoded.ok()) return;
  v1::BatchBegin again;
  Must(again.ParseFromString(*encoded), "what was encoded parses");
  const auto decoded = DecodeBatchBegin(again, limits);
  Must(decoded.ok(), "... and decodes");
  Must(decoded->spec.tensors == begin->spec.tensors, "specs survive the wire");
  Must(decoded->ranks == begin->ranks && decoded->cp_size == begin->cp_size, "ranks survive");
}

// As a server takes it: landed, planned with the values that came, and answered if it is complete.
void CheckArrival(const BatchFrame& frame) {
  static auto& pool = *new BufferPool({.max_bytes = 64 << 20, .max_idle_bytes = 4 << 20});
  static auto& executor = *MakeCpuExecutor().release();
  const Limits limits = {.max_tensors = 16, .max_ranks = 16, .max_batch_bytes = 1 << 16};
  auto begin = DecodeBatchBegin(*frame.begin, limits);
  if (!begin.ok()) return;
  auto batch = ArrivingBatch::Make(*std::move(begin), limits);
  if (!batch.ok() || !(*batch)->TakeMemory(pool).ok() || !(*batch)->Land(frame).ok()) return;
  if (!(*batch)->CheckComplete().ok()) return;
  const int64_t bytes = (*batch)->output_bytes();
  auto answer = (*batch)->MakeAnswer(executor, pool);
  Must(answer.ok(), "what was planned is carried out");
  // Up to 63 bytes follow every output and array.
  const int64_t gaps = 64 * 16 * (2 * limits.max_tensors + 8);
  Must(answer->body.size <= bytes + gaps, "an answer is as large as was said");
  while (!answer->heads.done()) {
    Must(static_cast<int64_t>(answer->heads.Next().size()) <= kMaxHeadBytes, "heads fit frames");
  }
}

// As a frame of PushBatches.
void CheckSession(absl::Span<const Bytes> message, const std::string& body) {
  const auto frame = DecodeBatchFrame(message, FrameOf::kSession);
  if (!frame.ok()) return;
  const std::string begin = frame->begin ? frame->begin->SerializeAsString() : "";
  if (frame->begin && begin.empty()) return;  // an empty one is not sent
  const std::string sent = EncodeBatchFrame(*frame, begin, body.size()) + body;
  const Spans spans(sent, 9);
  const auto again = DecodeBatchFrame(spans.get(), FrameOf::kSession);
  Must(again.ok(), "what was encoded decodes");
  Must(EncodeBatchFrame(*again, begin, body.size()) + body == sent, "... to the same");
  if (frame->begin) (void)DecodeBatchBegin(*frame->begin, Options(), 2, Limits());
}

}  // namespace

void BatchFrameTarget(absl::string_view input) {
  static const auto logger = google::protobuf::SetLogHandler(nullptr);
  (void)logger;
  if (input.empty()) return;
  const Spans message(input.substr(1), static_cast<uint8_t>(input[0]));
  const auto frame = DecodeBatchFrame(message.get());
  v1::BatchFrame generic;
  const bool parses = generic.ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1));
  const bool may_be_over = static_cast<int64_t>(input.size()) > kMaxHeaderBytes;
  Must(frame.ok() == parses || may_be_over, "refuses what the generated parser refuses");
  if (!frame.ok()) return;
  Must(parses, "takes only what the generated parser takes");
  CheckSame(*frame, generic);

  const std::string begin = frame->begin ? frame->begin->SerializeAsString() : "";
  const std::string sent = EncodeBatchFrame(*frame, begin, generic.body().size()) + generic.body();
  v1::BatchFrame received;
  Must(received.ParseFromString(sent), "the generated parser reads what was encoded");
  CheckSession(message.get(), generic.body());
  if (begin.empty()) generic.clear_begin();  // an empty one is not sent
  generic.clear_push();                      // of sessions alone
  generic.clear_hello();
  generic.clear_end();
  generic.DiscardUnknownFields();
  received.DiscardUnknownFields();
  Must(received.SerializeAsString() == generic.SerializeAsString(), "... and finds the same");
  if (frame->begin) CheckBegin(*frame->begin);
  if (frame->begin) CheckArrival(*frame);
}

}  // namespace cpshard::fuzz
