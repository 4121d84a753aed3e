// What a message of a session can be wrong in by itself; what a group says of it is for
// server/session. The decoders ask this; who sends may ask before, so that it fails at home.
//
// All return InvalidArgument, naming the field and the value: a name of no or over kMaxNameBytes
// bytes, or one that is not UTF-8; a number that is negative or over kMaxNumber; a list or a state
// that is over its limit; fields that contradict each other.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/session_messages.h"

namespace cpshard {

inline constexpr int64_t kMaxNameBytes = 128;
inline constexpr int64_t kMaxNumber = int64_t{1} << 62;     // steps, passes, incarnations, ...
inline constexpr int64_t kMaxStepBytes = int64_t{1} << 50;  // of memory
inline constexpr int64_t kMaxCount = 65'536;             // of ranks, loaders, microbatches, groups
inline constexpr int64_t kMaxDataStreams = 64;           // of a group
inline constexpr int64_t kMaxKeys = 256;                 // of a Want
inline constexpr int64_t kMaxMicros = int64_t{1} << 50;  // of a time: 35 years

absl::Status Check(const OpenSession& open);
absl::Status Check(const OpenedSession& opened);
absl::Status Check(const SessionName& session);

absl::Status Check(const Want& want);
absl::Status Check(const Commit& commit);
absl::Status Check(const PassClosed& closed);
absl::Status Check(const DeliveryHead& delivery);

absl::Status Check(const LoaderHello& hello);
absl::Status Check(const PushHead& push);
absl::Status Check(const EndOfStream& end);

absl::Status Check(const Position& position);
absl::Status Check(const LoaderCredit& credit);
absl::Status Check(const Released& released);
absl::Status Check(const PassDone& done);

}  // namespace cpshard
