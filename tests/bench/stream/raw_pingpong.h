// Raw sockets: what the kernel's TCP allows, without gRPC.
//
// A trip: the client sends the S bytes of its batch, the server receives all of them, then sends S
// bytes back, which the client receives. All in calls of at most 1 MB, blocking, default socket
// buffers, TCP_NODELAY; every buffer is resident, 64-byte aligned and used again.
//
//   kEcho (R)            The server receives into a buffer and sends that same buffer back: no pass
//                        in user space at all.
//   kShardPass (R_touch) The server receives into a buffer (the kernel's own copy is the landing),
//                        then makes one pass over it into a second resident buffer - the shard
//                        pass, ShardPass() of this folder - and sends that one. The client receives
//                        straight to where the shards stay, so it makes no pass.
#pragma once

#include <cstdint>

namespace cpshard::bench {

enum class RawKind { kEcho, kShardPass };

// Says its port on `fd`, then serves one connection after the other.
void RawServer(int fd, RawKind kind);

// See Obey.
void RawClient(int fd, RawKind kind, uint16_t port);

}  // namespace cpshard::bench
