#include "proto/frame_parts.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

namespace io = google::protobuf::io;
using google::protobuf::internal::WireFormatLite;

constexpr int kBodyField = 15;
constexpr uint32_t kBodyTag =
    WireFormatLite::MakeTag(kBodyField, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr int kMaxVarint32 = 5;  // bytes; protobuf refuses longer tags and lengths

// Spans that lie anywhere, as one stream.
class SpanStream {
 public:
  explicit SpanStream(absl::Span<const Bytes> spans) {
    for (Bytes span : spans) {
      arrays_.emplace_back(span.data(), static_cast<int>(span.size()));
      inputs_.push_back(&arrays_.back());
    }
    joined_.emplace(inputs_.data(), static_cast<int>(inputs_.size()));
  }

  io::ZeroCopyInputStream* get() { return &*joined_; }

 private:
  std::deque<io::ArrayInputStream> arrays_;
  std::vector<io::ZeroCopyInputStream*> inputs_;
  std::optional<io::ConcatenatingInputStream> joined_;
};

// Where the field of the last body is in a message, and in it the bytes of the body.
struct BodyField {
  int64_t field = 0, begin = 0, end = 0;
};

// Walks the fields, without looking into them. Without a body all of the result is `size`; nullopt:
// no message. (What is wrong inside a field, the parser finds; it does not see the body's, so tag
// and length of that are checked here.)
std::optional<BodyField> FindBody(absl::Span<const Bytes> message, int size) {
  SpanStream stream(message);
  io::CodedInputStream in(stream.get());
  BodyField body{size, size, size};
  for (int field = 0; field < size; field = in.CurrentPosition()) {
    const uint32_t tag = in.ReadTag();
    if (tag != kBodyTag) {
      if (tag == 0 || !WireFormatLite::SkipField(&in, tag)) return std::nullopt;
      continue;
    }
    const int length_at = in.CurrentPosition();
    int length = 0;
    if (!in.ReadVarintSizeAsInt(&length)) return std::nullopt;
    const int begin = in.CurrentPosition();
    if (length_at - field > kMaxVarint32 || begin - length_at > kMaxVarint32) return std::nullopt;
    if (!in.Skip(length)) return std::nullopt;
    body = {field, begin, begin + length};
  }
  return body;
}

// Bytes [begin, end) of the message, without empty windows.
void AppendWindows(absl::Span<const Bytes> message, int64_t begin, int64_t end,
                   std::vector<Bytes>* windows) {
  int64_t at = 0;
  for (Bytes span : message) {
    const int64_t size = static_cast<int64_t>(span.size());
    const int64_t from = std::clamp(begin - at, int64_t{0}, size);
    const int64_t to = std::clamp(end - at, int64_t{0}, size);
    if (from < to) windows->push_back(span.subspan(from, to - from));
    at += size;
  }
}

int64_t SizeOf(absl::Span<const Bytes> message) {
  int64_t size = 0;
  for (Bytes span : message) size += static_cast<int64_t>(span.size());
  return size;
}

absl::Status NoFrame(int64_t size, absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat("a message of ", size, " bytes is not a ", name));
}

}  // namespace

absl::StatusOr<FrameBody> ParseFrame(absl::Span<const Bytes> message, absl::string_view name,
                                     FrameOf call, google::protobuf::MessageLite* header) {
  const int64_t size = SizeOf(message);
  if (size > std::numeric_limits<int>::max() / 2) return NoFrame(size, name);
  const std::optional<BodyField> body = FindBody(message, static_cast<int>(size));
  if (!body) return NoFrame(size, name);
  const int64_t header_size = size - (body->end - body->field);
  const int64_t max = call == FrameOf::kSession ? kMaxSessionHeaderBytes : kMaxHeaderBytes;
  if (header_size > max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", name, " has a header of ", header_size, " bytes, over the ", max,
        " of a frame without its body; name fewer streams in a batch, or shorter ones"));
  }
  // The fields around the body: joined they are a message that says the same.
  std::vector<Bytes> around;
  AppendWindows(message, 0, body->field, &around);
  AppendWindows(message, body->end, size, &around);
  SpanStream stream(around);
  if (!header->ParseFromBoundedZeroCopyStream(stream.get(), static_cast<int>(header_size))) {
    return NoFrame(size, name);
  }
  FrameBody result;
  AppendWindows(message, body->begin, body->end, &result.pieces);
  result.size = body->end - body->begin;
  return result;
}

absl::Status ParseMessage(absl::Span<const Bytes> message, absl::string_view name,
                          int64_t max_bytes, google::protobuf::MessageLite* result) {
  const int64_t size = SizeOf(message);
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", name, " has ", size, " bytes, over the limit of ", max_bytes));
  }
  // In one piece: of one that ends early (a tag of 0) protobuf's parser backs up beyond the last of
  // several short ones, and aborts. (ParseFrame walks the fields before.)
  std::string bytes;
  bytes.reserve(size);
  for (Bytes span : message) bytes.append(reinterpret_cast<const char*>(span.data()), span.size());
  return result->ParseFromString(bytes) ? absl::OkStatus() : NoFrame(size, name);
}

void AppendFieldStart(int field, size_t size, std::string* message) {
  uint8_t start[2 * kMaxVarint32];
  uint8_t* end = io::CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), start);
  end = io::CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(size), end);
  message->append(start, end);
}

std::string EndHeader(std::string header, size_t body_size) {
  if (body_size > 0) AppendFieldStart(kBodyField, body_size, &header);
  return header;
}

}  // namespace cpshard
