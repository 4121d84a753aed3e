#include <google/protobuf/stubs/logging.h>

#include "cpshard/v1/session.pb.h"
#include "proto/session_checks.h"
#include "proto/session_codec.h"
#include "tests/fuzz/spans.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

// What was decoded encodes, and decodes to what encodes alike.
template <typename Message, typename Decode, typename Encode>
void CheckUnary(absl::string_view input, Decode decode, Encode encode) {
  Message message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const auto value = decode(message);
  if (!value.ok()) return;
  Message once, twice;
  encode(*value, &once);
  const auto again = decode(once);
  Must(again.ok(), "what was encoded decodes");
  encode(*again, &twice);
  Must(once.DebugString() == twice.DebugString(), "... to the same");
}

template <typename Decode, typename Encode>
void CheckStreamed(absl::Span<const Bytes> input, Decode decode, Encode encode) {
  const auto value = decode(input);
  if (!value.ok()) return;
  const std::string once = encode(*value);
  const Spans spans(once, 7);
  const auto again = decode(spans.get());
  Must(again.ok(), "what was encoded decodes");
  Must(encode(*again) == once, "... to the same");
}

}  // namespace

void SessionMessageTarget(absl::string_view input) {
  static const auto logger = google::protobuf::SetLogHandler(nullptr);
  (void)logger;
  if (input.empty()) return;
  const absl::string_view bytes = input.substr(1);
  const Spans spans(bytes, 5);
  switch (input[0]) {
    case 'o':
      return CheckUnary<v1::OpenSessionRequest>(
          bytes, DecodeOpenSession, [](const OpenSession& open, v1::OpenSessionRequest* message) {
            Must(EncodeOpenSession(open, message).ok(), "what was decoded encodes");
          });
    case 'O':
      return CheckUnary<v1::OpenSessionReply>(bytes, DecodeOpenedSession, EncodeOpenedSession);
    case 'c':
      return CheckUnary<v1::CloseSessionRequest>(bytes, DecodeCloseSession, EncodeCloseSession);
    case 'v':
      return CheckUnary<v1::DumpGroupReply>(bytes, DecodeGroupView, EncodeGroupView);
    case 'p':
      return CheckStreamed(spans.get(), DecodePullRequest, EncodePullRequest);
    case 'n':
      return CheckStreamed(spans.get(), DecodeLoaderNotice, EncodeLoaderNotice);
    default:
      return;
  }
}

}  // namespace cpshard::fuzz
