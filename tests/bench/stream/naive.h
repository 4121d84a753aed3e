// Naive protobuf: what one writes first. A unary call with `bytes` fields, the synchronous API, the
// C library's allocator as it is, default settings but for the size of a message. The client copies
// its batch into the message; the server copies every rank's runs into `bytes` of the reply; the
// client copies the reply's fields into its own resident buffer.
//
//   kOneField (N)    The whole batch in one field, every rank's shard in one field.
//   kFieldPerTensor  A field for every stream, and for every stream of every rank. glibc keeps
//                    freed blocks of up to 32 MB: pieces that small spare it many page faults.
#pragma once

#include <cstdint>

namespace cpshard::bench {

enum class NaiveKind { kOneField, kFieldPerTensor };

// Says its port on `fd`, then serves either kind until it is killed.
void NaiveServer(int fd);

// See Obey.
void NaiveClient(int fd, NaiveKind kind, uint16_t port);

}  // namespace cpshard::bench
