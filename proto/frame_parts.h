// The two parts of a frame on the wire: the header, an ordinary message, and the body, the bytes of
// its field 15. Used inside proto/ only.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/frames.h"

namespace cpshard {

// Parses all of `message` but its body into `header` and returns the body: windows on `message`,
// wherever between the fields it stands. Of several bodies the last one counts; those before it
// are part of the header.
// InvalidArgument, with the sizes: no message of this kind; a header that is too large for `call`,
// which is seen before anything is parsed. `name` is for these texts.
absl::StatusOr<FrameBody> ParseFrame(absl::Span<const Bytes> message, absl::string_view name,
                                     FrameOf call, google::protobuf::MessageLite* header);

// Parses a message without a body. InvalidArgument, with the sizes: no message of this kind; one
// over `max_bytes`.
absl::Status ParseMessage(absl::Span<const Bytes> message, absl::string_view name,
                          int64_t max_bytes, google::protobuf::MessageLite* result);

// Appends the tag and length of a field whose `size` bytes follow.
void AppendFieldStart(int field, size_t size, std::string* message);

// `header`, then the tag and length of a body of `body_size` bytes, unless that is 0.
std::string EndHeader(std::string header, size_t body_size);

}  // namespace cpshard
